#include "service/review/baselines.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/baseline.h"
#include "base/fs/dir.h"
#include "base/fs/folder.h"
#include "base/hex.h"
#include "base/log.h"
#include "base/sha256.h"
#include "grant/dir_record.h"

enum { PATH_SIZE = PLACE_SIZE + 128, NAME_BYTES = 12 };

static void dir_of(const struct service *s, const char *machine, char ret[PATH_SIZE]) {
    snprintf(ret, PATH_SIZE, "%s/baselines%s%s", s->place->home, *machine ? "/" : "", machine);
}

/* `place` is the granted path in the machine. It has slashes, so its hash is the file name. */
static void baselines_path_of(const struct service *s, const char *machine, const char *place,
                              char ret[PATH_SIZE]) {
    struct sha256 hash;
    uint8_t bytes[SHA256_BYTES];
    char name[2 * SHA256_BYTES + 1], dir[PATH_SIZE];
    sha256_init(&hash);
    sha256_add(&hash, place, strlen(place));
    sha256_end(&hash, bytes);
    hex_put(bytes, NAME_BYTES, name);
    dir_of(s, machine, dir);
    if (snprintf(ret, PATH_SIZE, "%.*s/%s", PATH_SIZE - 64, dir, name) >= PATH_SIZE)
        ret[0] = '\0';
}

static int make_dirs(const struct service *s, const char *machine, struct err *err) {
    char path[PATH_SIZE];
    const char *const names[] = {"", machine};
    for (size_t i = 0; i < 2; i++) {
        dir_of(s, names[i], path);
        int status = folder_make(path);
        if (status < 0)
            return err_num(err, status, "cannot create directory '%s'", path);
    }
    return 0;
}

/* Creates a new baseline file: change sets may have a link to the old one. */
static int open_new(const struct service *s, const char *machine, const char *place,
                    struct err *err) {
    char path[PATH_SIZE];
    baselines_path_of(s, machine, place, path);
    if (make_dirs(s, machine, err) < 0)
        return -1;
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return fd < 0 ? err_sys(err, "cannot create baseline file '%s'", path) : fd;
}

static int flush_new(const struct service *s, const char *machine, int to, struct err *err) {
    char path[PATH_SIZE];
    dir_of(s, machine, path);
    int status = fdatasync(to) < 0 ? -errno : folder_sync(path);
    return status < 0 ? err_num(err, status, "cannot sync a baseline in directory '%s'", path) : 0;
}

int baseline_begin(const struct service *s, const char *machine, const char *place, bool durable,
                   struct err *err) {
    int to DEFER_CLOSE = open_new(s, machine, place, err);
    if (to < 0)
        return -1;
    int status = write_all(to, BASELINE_HEAD, strlen(BASELINE_HEAD));
    if (status < 0)
        return err_num(err, status, "cannot write the baseline of granted path '%s'", place);
    return durable ? flush_new(s, machine, to, err) : 0;
}

int baseline_make(const struct service *s, const char *machine, const char *place, int dir,
                  struct err *err) {
    int to DEFER_CLOSE = open_new(s, machine, place, err);
    if (to < 0)
        return -1;
    if (dir_record(dir, to, err) < 0)
        return err_wrap(err, "cannot record the files of granted directory '%s'", place);
    return flush_new(s, machine, to, err);
}

void baseline_keep(const struct service *s, const char *machine, const char *place,
                   const char *path) {
    char from[PATH_SIZE];
    baselines_path_of(s, machine, place, from);
    if (link(from, path) < 0 && errno != ENOENT)
        log_line(LOG_WARN, "service", "link a baseline to a change set: %s id=%s", strerror(errno),
                 machine);
}

void baselines_remove(const struct service *s, const char *machine) {
    char path[PATH_SIZE];
    dir_of(s, machine, path);
    DIR *d DEFER(dir_close) = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] != '.')
            unlinkat(dirfd(d), e->d_name, 0);
    if (d)
        rmdir(path);
}
