#include "operator/transcript.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"

enum { PATH_SIZE = 1200, PIECE = 256 << 10 };

static void transcript_path_of(const char *dir, const char *id, char ret[PATH_SIZE]) {
    snprintf(ret, PATH_SIZE, "%s/%s.jsonl", dir, id);
}

/* Syncs the directory, so that the new file name survives a power failure. */
static int sync_dir(const char *dir, struct err *err) {
    int fd DEFER_CLOSE = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 || fsync(fd) < 0 ? err_sys(err, "cannot flush directory '%s'", dir) : 0;
}

int transcript_new(const char *dir, const char *id, struct transcript *ret, struct err *err) {
    char path[PATH_SIZE];
    transcript_path_of(dir, id, path);
    int fd DEFER_CLOSE =
        open(path, O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_sys(err, "cannot create transcript '%s'", path);
    if (sync_dir(dir, err) < 0)
        return -1;
    *ret = (struct transcript){.fd = TAKE_FD(fd)};
    return 0;
}

void transcript_close(struct transcript *t) {
    close_fd(&t->fd);
}

static int read_all(int fd, size_t size, char *to, struct err *err) {
    for (size_t at = 0; at < size;) {
        ssize_t n = pread(fd, to + at, size - at, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_sys(err, "cannot read the transcript of a run");
        at += (size_t)n;
    }
    return 0;
}

static int take_file(int fd, size_t size, struct run *run, size_t *ret_used, struct err *err) {
    char *bytes DEFER_FREE = malloc(size + 1);
    if (!bytes)
        return err_set(err, ERR_LIMIT, "not enough memory to read the transcript");
    if (read_all(fd, size, bytes, err) < 0)
        return -1;
    return size ? run_take_bytes(run, bytes, size, ret_used, err) : 0;
}

int transcript_open(const char *dir, const char *id, struct transcript *ret, struct run *run,
                    struct err *err) {
    char path[PATH_SIZE];
    struct stat st;
    size_t used = 0;
    transcript_path_of(dir, id, path);
    int fd DEFER_CLOSE = open(path, O_RDWR | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 && errno == ENOENT)
        return err_set(err, ERR_NOT_FOUND, "run '%s' does not exist", id);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(err, "cannot open transcript '%s'", path);
    if (st.st_size > TRANSCRIPT_BYTES_MAX)
        return err_set(err, ERR_LIMIT, "the transcript of run '%s' is too long", id);
    if (take_file(fd, (size_t)st.st_size, run, &used, err) < 0)
        return err_wrap(err, "cannot read run '%s'", id);
    if (!run->lines)
        return err_set(err, ERR_NOT_FOUND, "run '%s' has an empty transcript", id);
    if (used < (size_t)st.st_size && ftruncate(fd, (off_t)used) < 0)
        return err_sys(err, "cannot remove the incomplete last line of transcript '%s'", path);
    *ret = (struct transcript){.fd = TAKE_FD(fd), .size = used};
    return 0;
}

int transcript_add(struct transcript *t, const struct run_event *e, struct err *err) {
    struct buf line DEFER(buf_done) = BUF(RUN_LINE_MAX);
    if (run_event_write(e, &line, err) < 0)
        return -1;
    if (t->size + line.len > TRANSCRIPT_BYTES_MAX)
        return err_set(err, ERR_LIMIT,
                       "the transcript of the run has reached its limit of %d MiB: start a new run",
                       TRANSCRIPT_BYTES_MAX >> 20);
    int status = write_all(t->fd, line.data, line.len);
    if (status < 0) { /* remove a partial line */
        if (ftruncate(t->fd, (off_t)t->size) < 0)
            err_sys(err, "cannot remove an incomplete line of a transcript");
        return err_num(err, status, "cannot write to the transcript of a run");
    }
    t->size += line.len;
    return 0;
}

int transcript_sync(int fd, struct err *err) {
    return fdatasync(fd) < 0 ? err_sys(err, "cannot flush the transcript of a run") : 0;
}

int transcript_read(int fd, uint64_t from, size_t max, struct buf *to, struct err *err) {
    size_t whole = 0;
    while (!whole || to->len < max) {
        char piece[PIECE / 16];
        ssize_t n = pread(fd, piece, sizeof(piece), (off_t)(from + to->len));
        if (n < 0)
            return err_sys(err, "cannot read the transcript of a run");
        if (n == 0)
            break;
        if (!buf_add(to, piece, (size_t)n))
            return err_set(err, ERR_LIMIT, "the transcript line is too long");
        const char *last = memrchr(to->data, '\n', to->len);
        whole = last ? (size_t)(last + 1 - to->data) : 0;
    }
    to->len = whole;
    if (to->data)
        to->data[whole] = '\0';
    return 0;
}
