/*
 * Drafts of builds, in the directory `drafts` of the store: NAME is the text of a draft, NAME.FILE
 * a file of it. Only the front end knows what they say.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/dir.h"
#include "base/log.h"
#include "service/images/build_inner.h"

enum { DRAFT_TEXT_MAX = 256 << 10, DRAFT_FILE_SIZE = NAME_MAX + 1 };

/* Opens the directory of drafts. Returns -errno if that fails. */
static int drafts_open(const struct service *s, bool create) {
    char path[PLACE_SIZE + 16];
    snprintf(path, sizeof(path), "%s/drafts", s->place->home);
    if (create && mkdir(path, 0700) < 0 && errno != EEXIST)
        return -errno;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static void draft_warn(const char *name, int number) {
    log_line(LOG_WARN, "service", "keep a build that waits: %s draft=%s", strerror(number), name);
}

static int draft_write(int dir, const char *name, const char *text, size_t n) {
    char new[DRAFT_FILE_SIZE];
    snprintf(new, sizeof(new), "%s.new", name);
    int fd DEFER_CLOSE = openat(dir, new, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int r = fd < 0 ? -errno : write_all(fd, text, n);
    return r < 0 ? r : renameat(dir, new, dir, name) < 0 ? -errno : 0;
}

void service_draft_put(struct service *s, const char *name, const char *text, size_t n) {
    int dir DEFER_CLOSE = drafts_open(s, true);
    int r = dir < 0 ? dir : draft_write(dir, name, text, n);
    if (r < 0)
        draft_warn(name, -r);
}

void service_draft_add(struct service *s, const char *name, const char *file, int fd) {
    char from[32], to[DRAFT_FILE_SIZE];
    int dir DEFER_CLOSE = drafts_open(s, true);
    snprintf(from, sizeof(from), "/proc/self/fd/%d", fd);
    snprintf(to, sizeof(to), "%s.%s", name, file);
    if (dir >= 0)
        unlinkat(dir, to, 0);
    if (dir < 0 || linkat(AT_FDCWD, from, dir, to, AT_SYMLINK_FOLLOW) < 0)
        draft_warn(name, dir < 0 ? -dir : errno);
}

int service_draft_open(struct service *s, const char *name, const char *file) {
    char path[DRAFT_FILE_SIZE];
    int dir DEFER_CLOSE = drafts_open(s, false);
    snprintf(path, sizeof(path), "%s.%s", name, file);
    int fd = dir < 0 ? dir : openat(dir, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 && dir >= 0 ? -errno : fd;
}

/* Deletes the files whose name starts with that of the draft. */
void service_draft_drop(struct service *s, const char *name) {
    int dir DEFER_CLOSE = drafts_open(s, false);
    DIR *d DEFER(dir_close) = dir < 0 ? NULL : dir_list(dir, ".");
    size_t n = strlen(name);
    for (struct dirent *e; d && (e = readdir(d));)
        if (strncmp(e->d_name, name, n) == 0 && (!e->d_name[n] || e->d_name[n] == '.'))
            unlinkat(dir, e->d_name, 0);
}

/* Whether a file of a draft is without its draft, or was not written to its end. */
static bool is_astray(int dir, const char *file) {
    char name[DRAFT_FILE_SIZE];
    const char *dot = strchr(file, '.');
    snprintf(name, sizeof(name), "%.*s", dot ? (int)(dot - file) : 0, file);
    return dot && (strcmp(dot, ".new") == 0 || faccessat(dir, name, F_OK, 0) < 0);
}

void service_drafts_load(struct service *s, service_draft_fn *came, void *arg) {
    char *text DEFER_FREE = xmalloc(DRAFT_TEXT_MAX);
    int dir DEFER_CLOSE = drafts_open(s, false);
    DIR *d DEFER(dir_close) = dir < 0 ? NULL : dir_list(dir, ".");
    for (struct dirent *e; d && (e = readdir(d));) {
        if (is_dots(e->d_name) || strchr(e->d_name, '.'))
            continue;
        ssize_t n = read_file_at(dir, e->d_name, text, DRAFT_TEXT_MAX);
        json_t *draft DEFER(json_decrefp) = n < 0 ? NULL : json_loadb(text, (size_t)n, 0, NULL);
        if (!draft || !came(arg, e->d_name, draft))
            unlinkat(dir, e->d_name, 0);
    }
    if (d)
        rewinddir(d);
    for (struct dirent *e; d && (e = readdir(d));)
        if (!is_dots(e->d_name) && is_astray(dir, e->d_name))
            unlinkat(dir, e->d_name, 0);
}
