#include "spawn/inside.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/dir.h"
#include "spawn/make/mountinfo.h"
#include "spawn/make/mounts.h"
#include "spawn/spawner.h"

enum { TABLE_SIZE = 1 << 18, PASSES = 2 * PLAN_MAX_GRANTS };

int box_go_in(struct spawner *s, const struct box *box) {
    char path[32];
    snprintf(path, sizeof(path), "%d/ns/mnt", (int)box->pid);
    int ns DEFER_CLOSE = openat(s->proc, path, O_RDONLY | O_CLOEXEC);
    if (ns < 0 && errno != ENOENT)
        return -errno;
    /* The pid is valid only while the box lives. */
    if (ns < 0 || poll(&(struct pollfd){.fd = box->pidfd, .events = POLLIN}, 1, 0) != 0)
        return -ESRCH;
    return setns(ns, CLONE_NEWNS) < 0 ? -errno : 0;
}

void box_go_out(struct spawner *s) {
    if (setns(s->own_mnt, CLONE_NEWNS) < 0)
        /*
         * the spawner could not leave the box's namespace: everything that follows would happen
         * inside the box
         */
        abort();
}

const char *box_side_path(char side) {
    return side == 'b' ? "/b" : "/a";
}

/* ---- granted directories ---- */

bool lend_is_own(const char *path) {
    static const char *const own[] = {"/proc", "/dev", "/sys", "/usr", "/run/carrel"};
    if (strcmp(path, "/") == 0)
        return true;
    for (size_t i = 0; i < sizeof(own) / sizeof(*own); i++) {
        size_t n = strlen(own[i]);
        if (strncmp(path, own[i], n) == 0 && (path[n] == '/' || path[n] == '\0'))
            return true;
    }
    return false;
}

bool lend_stays(const char *lines, const char *path) {
    size_t n = strlen(path);
    while (*lines) {
        size_t len = strcspn(lines, "\n");
        if (len == n && memcmp(lines, path, n) == 0)
            return true;
        lines += len + (lines[len] == '\n');
    }
    return false;
}

/* Returns the path of a mount relative to the box's root; NULL: the mount is not in the root. */
static const char *path_inside(const struct box *box, const char *path) {
    const char *side = box_side_path(box->side);
    size_t n = strlen(side);
    if (strncmp(path, side, n) != 0 || (path[n] != '/' && path[n] != '\0'))
        return NULL;
    return path[n] ? path + n : "/";
}

/*
 * Runs in the box's mount namespace: finds the next mount to remove. 1: *ret is its path; 0: there
 * is none. Reads the mount table of the spawner itself, because the guest may be changing its root.
 */
static int find_stray(const struct spawner *s, const struct box *box, const char *stay,
                      char ret[PATH_MAX]) {
    char *text DEFER_FREE = malloc(TABLE_SIZE);
    static struct mount_line line;
    ssize_t n = text ? read_file_at(s->proc, "self/mountinfo", text, TABLE_SIZE) : -ENOMEM;
    if (n < 0 || n >= TABLE_SIZE - 1)
        return n < 0 ? (int)n : -EFBIG;
    for (const char *at = text; mountinfo_next(&at, &line);) {
        const char *path = path_inside(box, line.path);
        if (path && !lend_is_own(path) && !lend_stays(stay, path)) {
            snprintf(ret, PATH_MAX, "%s", path);
            return 1;
        }
    }
    return 0;
}

/*
 * Unmounts `path` by its name in the parent directory, so that no descriptor of the spawner keeps
 * the mount busy. 1: a process in the box still uses the mount.
 */
static int take_away(const struct box *box, char *path) {
    char *name = strrchr(path, '/');
    int root DEFER_CLOSE = dir_open_path(AT_FDCWD, box_side_path(box->side));
    *name++ = '\0';
    int parent DEFER_CLOSE = root < 0 ? -errno : mount_point(root, *path ? path + 1 : ".");
    if (parent < 0)
        return parent;
    if (fchdir(parent) < 0)
        return -errno;
    if (umount2(name, UMOUNT_NOFOLLOW) == 0)
        return 0;
    if (errno != EBUSY)
        return -errno;
    return umount2(name, UMOUNT_NOFOLLOW | MNT_DETACH) < 0 ? -errno : 1;
}

/*
 * True if the error r means that a process in the box moved the mount meanwhile: then search again.
 */
static bool is_elsewhere(int r) {
    return r == -ENOENT || r == -ENOTDIR || r == -EINVAL || r == -ELOOP;
}

/*
 * Unmounts all granted directories whose paths are not in `stay`. Returns how many were in use, or
 * -errno; -EAGAIN: new mounts keep appearing.
 */
static int take_strays(const struct spawner *s, const struct box *box, const char *stay) {
    static char path[PATH_MAX];
    int in_use = 0;
    for (int pass = 0; pass < PASSES; pass++) {
        int r = find_stray(s, box, stay, path);
        if (r <= 0)
            return r < 0 ? r : in_use;
        r = take_away(box, path);
        if (r < 0 && !is_elsewhere(r))
            return r;
        in_use += r == 1;
    }
    return -EAGAIN;
}

int box_lend(struct spawner *s, const struct box *box, struct plan_message *m, struct err *err) {
    int r = box_go_in(s, box);
    if (r < 0)
        return err_num(err, r, "cannot enter the mount namespace of machine '%s'", box->id);
    r = take_strays(s, box, m->text);
    box_go_out(s);
    if (r == -EAGAIN) {
        err_set(err, ERR_BUSY,
                "cannot unmount a granted directory: processes in machine '%s' keep moving it",
                box->id);
        return err_remedy(err, "stop the machine first: carrel stop %s", box->id);
    }
    if (r < 0)
        return err_num(err, r, "cannot unmount a granted directory of machine '%s'", box->id);
    m->type = PLAN_TEXT;
    snprintf(m->text, sizeof(m->text), "%s", r ? "in use" : "");
    return 0;
}
