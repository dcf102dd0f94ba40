#include "spawn/cell_root.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "base/parse.h"
#include "spawn/make/mounts.h"
#include "spawn/make/userns.h"
#include "spawn/weaken.h"

enum { CELL_DIRS_MAX = 16, CELL_USER = ID_BOX_USER };

struct cell_root {
    int proc;
    bool rootless;
    uint32_t first; /* as root: first host id of the worker */
    int userns;     /* as root: made in advance */
    int dirs[CELL_DIRS_MAX];
    int count;
};

/* --- ids --- */

/* Rootless: only the user itself is mapped. Its files then belong to the worker. */
static int cell_enter_userns(struct cell_root *c) {
    char uids[32], gids[32];
    snprintf(uids, sizeof(uids), "%u %u 1\n", CELL_USER, geteuid());
    snprintf(gids, sizeof(gids), "%u %u 1\n", CELL_USER, getegid());
    if (unshare(CLONE_NEWUSER) < 0)
        return -errno;
    int r = write_file_at(c->proc, "self/setgroups", "deny");
    if (r >= 0)
        r = write_file_at(c->proc, "self/uid_map", uids);
    return r < 0 ? r : write_file_at(c->proc, "self/gid_map", gids);
}

/*
 * As root: an id map for one directory, as for the directories that boxes are granted. Its owner
 * appears as the worker. In a writable directory other owners have no id.
 */
static int cell_dir_ids(const struct cell_root *c, int mount, const struct stat *st,
                        bool writable) {
    struct id_map map = {id_list_swap(st->st_uid, c->first), id_list_swap(st->st_gid, c->first)};
    if (writable)
        map = (struct id_map){id_list_one(st->st_uid, c->first), id_list_one(st->st_gid, c->first)};
    int userns DEFER_CLOSE = userns_new(c->proc, 0, &map);
    return userns < 0 ? userns : mount_idmap(mount, userns);
}

/* --- mounts --- */

/* Makes a detached mount of one directory, without what is mounted in it. */
static int cell_dir_new(const struct cell_root *c, const char *word, struct err *err) {
    bool writable = strncmp(word, "rw:", 3) == 0;
    const char *path = word + 3;
    struct stat st;
    if (strlen(word) < 4 || (!writable && strncmp(word, "ro:", 3) != 0))
        return err_set(err, ERR_INVALID, "'%s' is not MODE:PATH", word);
    int dir DEFER_CLOSE = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0 || fstat(dir, &st) < 0)
        return err_sys(err, "cannot open directory '%s'", path);
    int mount DEFER_CLOSE = mount_clone(dir, "");
    if (mount == -EINVAL && c->rootless) {
        err_set(err, ERR_UNSUPPORTED, "directory '%s' has other filesystems mounted in it", path);
        return err_remedy(err, "grant a directory without mounts, or run the command as root");
    }
    int r = mount;
    if (r >= 0 && !c->rootless)
        r = cell_dir_ids(c, mount, &st, writable);
    if (r == -EINVAL) {
        err_set(err, ERR_UNSUPPORTED, "the filesystem of directory '%s' does not support id maps",
                path);
        return err_remedy(err, "grant a directory of another filesystem, or do not run it as root");
    }
    if (r >= 0)
        r = writable || weakened("cellro") ? mount_confine(mount) : mount_shelve(mount);
    return r < 0 ? err_num(err, r, "cannot mount directory '%s'", path) : TAKE_FD(mount);
}

static int cell_dirs_new(struct cell_root *c, char **words, int count, struct err *err) {
    for (c->count = 0; c->count < count; c->count++) {
        c->dirs[c->count] = cell_dir_new(c, words[c->count], err);
        if (c->dirs[c->count] < 0)
            return -1;
    }
    return 0;
}

/* Attaches the root where any directory is: the old tree goes away with pivot_root(). */
static int cell_tree_build(const struct cell_root *c, int root) {
    if (move_mount(root, "", AT_FDCWD, "/proc", MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return -errno;
    int r = 0;
    for (int i = 0; r >= 0 && i < c->count; i++) {
        char name[8];
        snprintf(name, sizeof(name), "%d", i);
        r = mkdirat(root, name, 0755) < 0 ? -errno : mount_attach(c->dirs[i], root, name);
    }
    return r < 0 ? r : mount_shelve(root);
}

static int cell_tree_enter(int root) {
    if (fchdir(root) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 ||
        chdir("/") < 0)
        return -errno;
    return 0;
}

static int cell_tree_make(struct cell_root *c, char **words, int count, struct err *err) {
    static const struct mount_option options[] = {
        {"mode", "0755"}, {"size", "64k"}, {"nr_inodes", "32"}};
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return err_sys(err, "cannot create the worker's mount namespace");
    if (cell_dirs_new(c, words, count, err) < 0)
        return -1;
    umask(0);
    int root DEFER_CLOSE = mount_new("tmpfs", options, sizeof(options) / sizeof(*options), 0);
    int r = root < 0 ? root : cell_tree_build(c, root);
    if (r >= 0)
        r = cell_tree_enter(root);
    return r < 0 ? err_num(err, r, "cannot create the worker's root directory") : 0;
}

/* As root: a copy of the mounts that belongs to the user namespace, so that all are locked there.
 */
static int cell_tree_give(const struct cell_root *c) {
    if (c->rootless)
        return 0;
    return setns(c->userns, CLONE_NEWUSER) < 0 || unshare(CLONE_NEWNS) < 0 ? -errno : 0;
}

/* --- the two processes --- */

static int cell_root_make(struct cell_root *c, char **words, int count, int ret[2],
                          struct err *err) {
    if (c->rootless && cell_enter_userns(c) < 0) {
        err_set(err, ERR_UNSUPPORTED,
                "the kernel does not allow this user to create user namespaces");
        return err_remedy(err, "sudo sysctl kernel.unprivileged_userns_clone=1");
    }
    if (cell_tree_make(c, words, count, err) < 0)
        return -1;
    if (cell_tree_give(c) < 0)
        return err_sys(err, "cannot give the mounts to the worker's user namespace");
    ret[0] = openat(c->proc, "self/ns/user", O_RDONLY | O_CLOEXEC);
    ret[1] = openat(c->proc, "self/ns/mnt", O_RDONLY | O_CLOEXEC);
    if (ret[0] < 0 || ret[1] < 0)
        return err_sys(err, "cannot open the worker's namespaces");
    return 0;
}

static void cell_root_fail(int socket, const struct err *err) {
    char text[sizeof(err->text) + sizeof(err->remedy) + 4];
    int n = snprintf(text, sizeof(text), "e%s\n%s", err->text, err->remedy);
    send_fds(socket, text, (size_t)n, NULL, 0);
}

/* As root: takes ids that no box and no other worker has. */
static int cell_take_ids(struct cell_root *c, struct slots *slots, uint32_t *ret_slot,
                         int *ret_lock, struct err *err) {
    static char text[1 << 20];
    static const char *const files[] = {"/etc/subuid", "/etc/subgid"};
    slots->lock_dir = open("/run", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; i < 2; i++)
        if (read_file_at(AT_FDCWD, files[i], text, sizeof(text)) > 0)
            slots_avoid(slots, text);
    if (slots_take(slots, ret_slot, ret_lock, err) < 0)
        return -1;
    c->first = slots_first(slots, *ret_slot);
    struct id_map map = id_map_plain(c->first);
    c->userns = userns_new(c->proc, 0, &map);
    return c->userns < 0 ? err_num(err, c->userns, "cannot create the worker's user namespace") : 0;
}

/* Waits until the other end is closed: then the worker has ended. */
static void cell_wait_for_end(int socket) {
    char byte;
    while (read(socket, &byte, 1) < 0 && errno == EINTR)
        ;
}

static int cell_root_serve(struct cell_root *c, int socket, char **words, int count,
                           struct err *err) {
    int namespaces[2];
    pid_t pid = fork();
    if (pid < 0)
        return err_sys(err, "cannot start a process");
    if (pid == 0) {
        struct err failed;
        if (cell_root_make(c, words, count, namespaces, &failed) == 0)
            send_fds(socket, "k", 1, namespaces, 2);
        else
            cell_root_fail(socket, &failed);
        _exit(0);
    }
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return 0;
}

static int cell_root_run(int socket, char **words, int count, unsigned uid_base, struct err *err) {
    static struct slots slots;
    struct cell_root c = {.rootless = geteuid() != 0, .userns = -1};
    int lock DEFER_CLOSE = -1;
    uint32_t slot = UINT32_MAX;
    slots = (struct slots){.base = uid_base, .count = SLOT_MAX, .lock_dir = -1};
    c.proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (count < 1 || count > CELL_DIRS_MAX)
        return err_set(err, ERR_INVALID, "between 1 and %d directories can be granted",
                       CELL_DIRS_MAX);
    int r = c.rootless ? 0 : cell_take_ids(&c, &slots, &slot, &lock, err);
    if (r == 0)
        r = cell_root_serve(&c, socket, words, count, err);
    if (r == 0 && !c.rootless)
        cell_wait_for_end(socket);
    close_fd(&lock);
    slots_give(&slots, slot);
    if (!c.rootless)
        slots_close(&slots);
    return r;
}

int cell_root_main(int argc, char **argv, unsigned uid_base) {
    struct err err;
    uint64_t socket;
    if (argc < 1 || parse_u64(argv[0], 3, 1024, &socket, &err) < 0)
        return 1;
    fcntl((int)socket, F_SETFD, FD_CLOEXEC);
    /* Ctrl-C ends the worker. The ids are given back after that. */
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    if (cell_root_run((int)socket, argv + 1, argc - 1, uid_base, &err) == 0)
        return 0;
    cell_root_fail((int)socket, &err);
    return 1;
}
