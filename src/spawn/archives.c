#include "spawn/archives.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fs/dir.h"
#include "base/id.h"
#include "base/image_id.h"
#include "base/parse.h"
#include "spawn/disk/layers.h"
#include "spawn/disk/tree.h"
#include "spawn/spawner.h"
#include "spawn/undertaker.h"

enum { FD_DIR = 3, FD_REPORT = 4, FD_TREE = 5, AWAY = 64 };

/*
 * One task for a worker, which is a process of the program carrel-image: its arguments and
 * descriptors. See image/main.c.
 */
struct work {
    const char *verb;
    const char *how; /* "view" or "sealed"; NULL: the files of the image are in `dir` */
    int in, out, report, dir, tree; /* descriptors for the worker; -1: none */
    const char *id;                 /* id of the image, if the worker needs it */
    uint64_t disk;                  /* limit for the unpacked image in bytes; 0: none */
};

/*
 * True for the id of an image, or of an image that is being made ("n-4kq2x7w3n5ab"); false for a
 * path.
 */
static bool is_name(const char *name) {
    return image_id_valid(name) || id_valid(name, strlen(name), 'n');
}

static int bad_name(const char *name, struct err *err) {
    return err_set(err, ERR_INVALID,
                   "the daemon's request is malformed: '%.60s' is not an image id", name);
}

/* ---- worker process ---- */

/*
 * Makes the host's root directory the root again, because the worker loads its libraries from
 * there.
 */
static void go_home(const struct spawner *s) {
    if (fchdir(s->host) < 0 || chroot(".") < 0 || chdir("/") < 0)
        _exit(127);
}

/*
 * Leaves the spawner's own mounts: if the spawner is killed, the worker must not keep them and
 * their files alive. All files that the worker reads are already open.
 */
static void leave_workshop(const struct spawner *s) {
    char link[32], path[PATH_MAX];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", s->maker.workshop);
    ssize_t n = readlink(link, path, sizeof(path) - 1);
    if (n <= 0 || unshare(CLONE_NEWNS) < 0)
        return;
    path[n] = '\0';
    umount2(path, MNT_DETACH);
}

static int away(int fd) {
    return fd < 0 ? -1 : fcntl(fd, F_DUPFD, AWAY);
}

static void place(int fd, int at) {
    if (fd >= 0 && dup2(fd, at) < 0)
        _exit(127);
}

static void become(const struct spawner *s, const struct work *w) {
    char ids[32], disk[32], as[IMAGE_ID_SIZE + 8];
    const char *argv[8] = {"carrel-image", w->verb};
    size_t n = 2;
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGCHLD, SIG_DFL);
    go_home(s);
    leave_workshop(s);
    if (w->how)
        argv[n++] = w->how;
    if (w->id) {
        snprintf(as, sizeof(as), "as=%s", w->id);
        argv[n++] = as;
    }
    if (w->disk) {
        snprintf(disk, sizeof(disk), "disk=%" PRIu64, w->disk);
        argv[n++] = disk;
    }
    if (s->rootless) {
        snprintf(ids, sizeof(ids), "ids=%" PRIu32, s->maker.slots.base);
        argv[n++] = ids;
    }
    int null = open("/dev/null", O_RDWR);
    const int from[] = {away(w->in < 0 ? null : w->in), away(w->out < 0 ? null : w->out),
                        away(w->dir), away(w->report), away(w->tree)};
    place(from[0], 0);
    place(from[1], 1);
    place(from[2], FD_DIR);
    place(from[3], FD_REPORT);
    place(from[4], FD_TREE);
    close_range((unsigned)(from[4] >= 0 ? FD_TREE : FD_REPORT) + 1, ~0u, 0);
    char locale[] = "LC_ALL=C.UTF-8", *const env[] = {locale, NULL};
    execve(s->archiver, (char *const *)argv, env);
    _exit(127);
}

/*
 * Forks twice, so that the worker is not a child of the spawner, which need not wait for its end.
 */
static int archives_start(struct spawner *s, const struct work *w, struct err *err) {
    if (!s->archiver[0] || faccessat(s->host, s->archiver + 1, X_OK, 0) < 0) {
        err_set(err, ERR_UNSUPPORTED,
                "program carrel-image, which reads and writes image archives, is not installed");
        return err_remedy(
            err, "reinstall Carrel: carrel-image must be in the directory of carrel-spawn");
    }
    pid_t pid = fork();
    if (pid == 0) {
        if (fork() == 0)
            become(s, w);
        _exit(0);
    }
    if (pid < 0)
        return err_sys(err, "cannot start program carrel-image");
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return 0;
}

/* ---- requests ---- */

/* Creates the directory of a new image. Only the worker uses it until the image is complete. */
static int make_staging(struct spawner *s, const char *name, struct err *err) {
    uid_t root = s->rootless ? id_shared(0, s->maker.slots.base) : 0;
    /* If the directory exists, an earlier copy of this request already started a worker. */
    int r = mkdirat(s->store, name, 0700) < 0 ? -errno : 0;
    int dir DEFER_CLOSE = r < 0 ? -1 : dir_open(s->store, name);
    if (r == 0 && dir < 0)
        r = -errno;
    if (r == 0)
        r = tree_dir(dir, "root", 0755, root, root);
    if (r == 0)
        r = tree_dir(dir, "spool", 0700, 0, 0);
    return r < 0 ? err_num(err, r, "cannot create the directory of a new image") : TAKE_FD(dir);
}

/*
 * Handles UNPACK: starts a worker that unpacks an archive to a new image. `text` is the image's
 * temporary id and a disk limit in bytes, such as "n-4kq2x7w3n5ab 16777216"; no number, or 0, means
 * no limit.
 */
static int begin_unpack(struct spawner *s, const char *text, const struct fd_message *in,
                        struct err *err) {
    char name[ID_SIZE];
    uint64_t disk = 0;
    size_t n = strcspn(text, " ");
    if (!id_valid(text, n, 'n') ||
        (text[n] && parse_u64(text + n + 1, 0, UINT64_MAX >> 2, &disk, NULL) < 0))
        return bad_name(text, err);
    snprintf(name, sizeof(name), "%.*s", (int)n, text);
    int dir DEFER_CLOSE = make_staging(s, name, err);
    const struct work w = {"unpack", NULL, in->fds[0], -1, in->fds[1], dir, -1, NULL, disk};
    return dir < 0 ? -1 : archives_start(s, &w, err);
}

/* Opens the directory of an image with a shared lock, so that it is not deleted while a worker
 * reads it. */
static int open_packed(struct spawner *s, const char *name, struct err *err) {
    int dir DEFER_CLOSE = dir_open(s->store, name);
    if (dir < 0 || flock(dir, LOCK_SH | LOCK_NB) < 0)
        return err_set(err, ERR_NOT_FOUND, "image '%s' does not exist", name);
    return TAKE_FD(dir);
}

/* Opens the mounted tree of a sealed image; *ret is -1 if the image is a directory in `dir`. */
static int open_tree_apart(struct spawner *s, const char *name, int dir, int *ret,
                           struct err *err) {
    struct image image;
    struct stat st, top;
    if (sealed_image(s, name, &image, err) < 0)
        return -1;
    bool apart =
        fstat(image.skeleton, &st) == 0 && fstat(dir, &top) == 0 && st.st_dev != top.st_dev;
    *ret = apart ? dir_open(image.skeleton, ".") : -1;
    image_close(&image);
    return 0;
}

/*
 * Handles PACK: starts a worker that writes an image to an archive. `text` is the format and the
 * image id, such as "oci i-...".
 */
static int begin_pack(struct spawner *s, const char *text, const struct fd_message *in,
                      struct err *err) {
    static const char *const forms[] = {"tar", "tar.zst", "oci", "erofs"};
    enum { FORMS = sizeof(forms) / sizeof(*forms), SEAL = FORMS - 1 };
    size_t n = strcspn(text, " "), i = 0;
    const char *name = text[n] ? text + n + 1 : "";
    while (i < FORMS && (strlen(forms[i]) != n || strncmp(forms[i], text, n) != 0))
        i++;
    if (i == FORMS || !image_id_valid(name))
        return bad_name(text, err);
    if (i == SEAL && sealed_can(s, err) < 0)
        return -1;
    int tree DEFER_CLOSE = -1, dir DEFER_CLOSE = open_packed(s, name, err);
    if (dir < 0 || (i != SEAL && open_tree_apart(s, name, dir, &tree, err) < 0))
        return -1;
    const struct work w = {forms[i], tree < 0 ? NULL : "sealed", -1, in->fds[0], in->fds[1], dir,
                           tree,     i == SEAL ? name : NULL,    0};
    return archives_start(s, &w, err);
}

/*
 * Handles DRAW: starts a worker that writes the files of a machine's layers to an archive; the
 * worker reads them through mounts of its own.
 */
static int begin_draw(struct spawner *s, const struct plan_message *m, const struct fd_message *in,
                      struct err *err) {
    int dirs[2] = {-1, -1};
    if (layers_open_view(s, m->plan.id, m->plan.stack, dirs, err) < 0)
        return -1;
    int root DEFER_CLOSE = dirs[0], usr DEFER_CLOSE = dirs[1];
    const struct work w = {"tar", "view", -1, in->fds[0], in->fds[1], root, usr, NULL, 0};
    return archives_start(s, &w, err);
}

int archives_begin(struct spawner *s, const struct plan_message *m, const struct fd_message *in,
                   struct err *err) {
    if (in->nfds != 2)
        return err_set(err, ERR_INVALID,
                       "the daemon's request is malformed: it has %zu descriptors instead of two, "
                       "for the image archive and the report",
                       in->nfds);
    switch (m->type) {
    case PLAN_UNPACK:
        return begin_unpack(s, m->text, in, err);
    case PLAN_PACK:
        return begin_pack(s, m->text, in, err);
    default:
        return begin_draw(s, m, in, err);
    }
}

static int check_unused(const struct spawner *s, const char *id, struct err *err) {
    for (const struct box *b = s->list; b; b = b->next)
        if (!b->dead && strcmp(b->image_key, id) == 0)
            return err_set(err, ERR_BUSY, "machine '%s' uses image '%s'", b->id, id);
    return 0;
}

/* Checks that an image is sealed (one erofs file) and that no worker reads its old directory, so
 * that the directory may be deleted. */
static int check_left(struct spawner *s, const char *id, struct err *err) {
    struct image image;
    if (sealed_can(s, err) < 0 || sealed_image(s, id, &image, err) < 0)
        return -1;
    image_close(&image);
    int dir DEFER_CLOSE = dir_open(s->store, id);
    if (dir < 0 || !sealed_is_mounted(s, id))
        return err_set(err, ERR_INVALID, "image '%s' is not stored as an erofs file", id);
    return flock(dir, LOCK_EX | LOCK_NB) < 0
               ? err_set(err, ERR_BUSY,
                         "image '%s' is in use: another process still reads its directory", id)
               : 0;
}

int archives_wipe(struct spawner *s, const struct plan_message *m, struct undertaker *u,
                  struct err *err) {
    char id[IMAGE_ID_SIZE + 1], to[IMAGE_ID_SIZE + 32];
    size_t n = strcspn(m->text, "/");
    bool left = strcmp(m->text + n, "/root") == 0;
    snprintf(id, sizeof(id), "%.*s", (int)(n < sizeof(id) ? n : sizeof(id) - 1), m->text);
    if (left ? !image_id_valid(id) : !is_name(m->text))
        return bad_name(m->text, err);
    if (check_unused(s, id, err) < 0 || (left && check_left(s, id, err) < 0))
        return -1;
    if (left) {
        ready_renew(s, id); /* ready boxes of this image may use the directory */
    } else {
        ready_forget(s, id);
        sealed_forget(s, id);
    }
    if (mkdirat(s->store, "trash", 0700) < 0 && errno != EEXIST)
        return err_sys(err, "cannot create the trash directory in the store directory");
    snprintf(to, sizeof(to), "trash/%s", id_new('t').text);
    if (renameat(s->store, m->text, s->store, to) < 0 && errno != ENOENT)
        return err_sys(err, "cannot move image '%s' to the trash directory", id);
    /*
     * If the undertaker (the process that deletes files) is too busy or dies, the next spawner
     * empties the trash.
     */
    undertaker_wipe(u, s->store);
    return 0;
}
