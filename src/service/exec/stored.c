#include "service/exec/stored.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fs/dir.h"
#include "base/fs/folder.h"
#include "base/wire/msg.h"

enum { STORED_PATH = 1200 };

/* ---- the mark in the row ---- */

void stored_print(const struct stored_mark *m, char ret[STORE_STORED_SIZE]) {
    snprintf(ret, STORE_STORED_SIZE, "%c %" PRIu64 " %" PRIu64 " %d %u %u %u",
             m->is_stored ? 'P' : 'R', m->left_ms, m->stdin_at, m->stdin_ended, m->stdio[0],
             m->stdio[1], m->stdio[2]);
}

bool stored_parse(const char *text, struct stored_mark *ret) {
    char kind = 0;
    unsigned ended = 0, stdio[3];
    struct stored_mark m = {0};
    if (sscanf(text, "%c %" SCNu64 " %" SCNu64 " %u %u %u %u", &kind, &m.left_ms, &m.stdin_at,
               &ended, &stdio[0], &stdio[1], &stdio[2]) != 7 ||
        (kind != 'P' && kind != 'R'))
        return false;
    for (int i = 0; i < 3; i++) {
        if (stdio[i] > MSG_STDIO_SAME)
            return false;
        m.stdio[i] = (uint8_t)stdio[i];
    }
    m.is_stored = kind == 'P';
    m.stdin_ended = ended;
    *ret = m;
    return true;
}

/* ---- files ---- */

static int stored_dir(const char *home, const char *machine, bool make) {
    char all[STORED_PATH], path[STORED_PATH + ID_SIZE];
    snprintf(all, sizeof(all), "%s/stored", home);
    snprintf(path, sizeof(path), "%s/%s", all, machine);
    if (make && (folder_make(all) < 0 || folder_make(path) < 0))
        return -1;
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

int stored_create(const char *home, const char *machine, const char *exec, struct err *err) {
    int dir DEFER_CLOSE = stored_dir(home, machine, true);
    int fd =
        dir < 0 ? -1 : openat(dir, exec, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    return fd < 0 ? err_sys(err, "cannot create the file of a stored command") : fd;
}

int stored_open(const char *home, const char *machine, const char *exec, struct err *err) {
    int dir DEFER_CLOSE = stored_dir(home, machine, false);
    int fd = dir < 0 ? -1 : openat(dir, exec, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 ? err_sys(err, "cannot open the file of a stored command") : fd;
}

/* Keeps all files: only empty folders go. */
static bool stored_all(void *arg, const char *exec) {
    (void)arg, (void)exec;
    return true;
}

void stored_remove(const char *home, const char *machine, const char *exec) {
    int dir DEFER_CLOSE = stored_dir(home, machine, false);
    if (dir >= 0)
        unlinkat(dir, exec, 0);
    stored_drop(home, machine, stored_all, NULL);
}

int stored_sync(const char *home, const char *machine, struct err *err) {
    int dir DEFER_CLOSE = stored_dir(home, machine, false);
    return dir < 0 || fsync(dir) < 0 ? err_sys(err, "cannot sync the files of stored commands") : 0;
}

void stored_drop(const char *home, const char *machine, bool (*keeps)(void *arg, const char *exec),
                 void *arg) {
    DIR *dir DEFER(dir_close) = dir_take(stored_dir(home, machine, false));
    char path[STORED_PATH + ID_SIZE];
    if (!dir)
        return;
    for (struct dirent *e; (e = readdir(dir));)
        if (e->d_name[0] != '.' && !(keeps && keeps(arg, e->d_name)))
            unlinkat(dirfd(dir), e->d_name, 0);
    snprintf(path, sizeof(path), "%s/stored/%s", home, machine);
    rmdir(path); /* fails if a file is kept */
    snprintf(path, sizeof(path), "%s/stored", home);
    rmdir(path);
}

void stored_sweep(const char *home, bool (*keeps)(void *arg, const char *machine), void *arg) {
    char all[STORED_PATH];
    snprintf(all, sizeof(all), "%s/stored", home);
    DIR *dir DEFER(dir_close) = opendir(all);
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (id_valid(e->d_name, strlen(e->d_name), 'm') && !keeps(arg, e->d_name))
            stored_drop(home, e->d_name, NULL, NULL);
}
