#include "grant/dir_record.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/baseline.h"
#include "base/fs/dir.h"

enum { DEPTH_MAX = 64, PATH_SIZE = 4096, PIECE = 256 << 10 };

struct recording {
    int to;
    struct buf text;
    size_t count;
    bool cut;
};

static int dir_record_flush(struct recording *r, struct err *err) {
    int status = write_all(r->to, r->text.data ? r->text.data : "", r->text.len);
    r->text.len = 0;
    return status < 0
               ? err_num(err, status, "cannot write the list of files of a granted directory")
               : 0;
}

static int walk(struct recording *r, int fd, const char *prefix, int depth, struct err *err);

static int visit(struct recording *r, int dir, const char *name, const char *path, int depth,
                 struct err *err) {
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0; /* the file was deleted meanwhile */
    if (S_ISDIR(st.st_mode)) {
        int below = dir_open(dir, name);
        return walk(r, below, path, depth + 1, err);
    }
    if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
        return 0;
    r->count++;
    if (!baseline_put(&r->text, path, &st))
        return err_set(err, ERR_LIMIT, "out of memory");
    return r->text.len > PIECE ? dir_record_flush(r, err) : 0;
}

/* Takes ownership of fd. */
static int walk(struct recording *r, int fd, const char *prefix, int depth, struct err *err) {
    DIR *d DEFER(dir_close) = dir_take(fd);
    if (!d || depth > DEPTH_MAX) {
        r->cut = true;
        return 0;
    }
    for (struct dirent *e; r->count < BASELINE_FILES_MAX && (e = readdir(d));) {
        char path[PATH_SIZE];
        if (is_dots(e->d_name))
            continue;
        int n = snprintf(path, sizeof(path), "%s%s%s", prefix, *prefix ? "/" : "", e->d_name);
        if (n >= (int)sizeof(path))
            r->cut = true;
        else if (visit(r, dirfd(d), e->d_name, path, depth, err) < 0)
            return -1;
    }
    return 0;
}

int dir_record(int dir, int to, struct err *err) {
    struct recording r = {.to = to, .text = BUF(2 * PIECE)};
    struct stat top;
    int fd = dir_open(dir, ".");
    if (fd < 0 || fstat(dir, &top) < 0)
        return err_sys(err, "cannot open a granted directory");
    bool fits = buf_addf(&r.text, BASELINE_HEAD) && baseline_put(&r.text, ".", &top);
    int status = fits ? walk(&r, fd, "", 0, err) : err_set(err, ERR_LIMIT, "out of memory");
    bool cut = r.cut || r.count >= BASELINE_FILES_MAX;
    if (status == 0 && cut && !buf_addf(&r.text, "cut\n"))
        status = err_set(err, ERR_LIMIT, "out of memory");
    status = status < 0 ? -1 : dir_record_flush(&r, err);
    buf_done(&r.text);
    return status;
}
