#include "spawn/archives.h"

#include <assert.h>
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
#include "spawn/disk/wipe.h"
#include "spawn/make/mounts.h"
#include "spawn/spawner.h"
#include "spawn/undertaker.h"

/* Descriptors of a worker (image/main.c), and more of them than a worker gets. */
enum { FD_DIR = 3, FD_REPORT = 4, FD_MORE = 5, FD_BELOW = 7, AWAY = 256 };
enum { MORE_MAX = LAYERS_MAX + 3 * IMAGE_LAYERS_MAX };

/* Descriptors that a worker gets besides the usual ones. */
struct more {
    int fds[MORE_MAX];
    size_t count;
};

static void more_done(struct more *m) {
    while (m->count)
        close(m->fds[--m->count]);
}

static void more_add(struct more *m, int fd) {
    assert(m->count < MORE_MAX);
    m->fds[m->count++] = fd;
}

/*
 * One task for a worker, which is a process of the program carrel-image: its arguments and
 * descriptors. See image/main.c.
 */
struct work {
    const char *verb;
    const char *how;          /* "view" or "sealed"; NULL: the files of the image are in `dir` */
    int in, out, report, dir; /* descriptors for the worker; -1: none */
    const struct more *more;  /* or NULL */
    int more_at;              /* number of the first of these in the worker; 0: FD_MORE */
    const char *id;           /* id of the image, if the worker needs it */
    const char *on;           /* id of the image below, if the worker needs it */
    uint64_t disk;            /* limit for the unpacked image in bytes; 0: none */
    size_t uppers;            /* number of layers of a machine among `more` */
    size_t layers;            /* number of layers of an image at the start of `more` */
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

/* Puts the descriptors where the worker expects them, and closes all others. */
static void place_all(const struct work *w) {
    int null = open("/dev/null", O_RDWR), more[MORE_MAX];
    int at = w->more_at ? w->more_at : FD_MORE, count = w->more ? (int)w->more->count : 0;
    const int from[] = {away(w->in < 0 ? null : w->in), away(w->out < 0 ? null : w->out),
                        away(w->dir), away(w->report)};
    for (int i = 0; i < count; i++)
        more[i] = away(w->more->fds[i]);
    place(from[0], 0);
    place(from[1], 1);
    place(from[2], FD_DIR);
    place(from[3], FD_REPORT);
    for (int i = 0; i < count; i++)
        place(more[i], at + i);
    if (at > FD_MORE) /* no descriptor of the spawner may be in between */
        close_range(FD_MORE, (unsigned)at - 1, 0);
    close_range((unsigned)(count ? at + count : FD_MORE), ~0u, 0);
}

enum { WORD_SIZE = IMAGE_ID_SIZE + 16, WORDS_MAX = 9 };
struct words {
    char text[WORDS_MAX][WORD_SIZE];
    const char *v[WORDS_MAX + 1];
    size_t count;
};

static void word(struct words *w, const char *name, const char *value) {
    snprintf(w->text[w->count], WORD_SIZE, "%s%s", name, value);
    w->v[w->count] = w->text[w->count];
    w->count++;
}

static void word_number(struct words *w, const char *name, uint64_t value) {
    char number[24];
    snprintf(number, sizeof(number), "%" PRIu64, value);
    word(w, name, number);
}

static void become(const struct spawner *s, const struct work *w) {
    struct words words = {.count = 0};
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGCHLD, SIG_DFL);
    go_home(s);
    leave_workshop(s);
    word(&words, "carrel-image", "");
    word(&words, w->verb, "");
    if (w->how)
        word(&words, w->how, "");
    if (w->id)
        word(&words, "as=", w->id);
    if (w->on)
        word(&words, "on=", w->on);
    if (w->disk)
        word_number(&words, "disk=", w->disk);
    if (w->uppers)
        word_number(&words, "uppers=", w->uppers);
    if (w->layers)
        word_number(&words, "layers=", w->layers);
    if (w->more && w->more->count)
        word_number(&words, "more=", w->more->count);
    if (s->rootless)
        word_number(&words, "ids=", s->maker.slots.base);
    place_all(w);
    char locale[] = "LC_ALL=C.UTF-8", *const env[] = {locale, NULL};
    execve(s->archiver, (char *const *)words.v, env);
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

/* Opens the directory of an image with a shared lock, so that it is not deleted while a worker
 * reads it. */
static int open_packed(struct spawner *s, const char *name, struct err *err) {
    int dir DEFER_CLOSE = dir_open(s->store, name);
    if (dir < 0 || flock(dir, LOCK_SH | LOCK_NB) < 0)
        return err_set(err, ERR_NOT_FOUND, "image '%s' does not exist", name);
    return TAKE_FD(dir);
}

/*
 * Locks the directory of an image like open_packed(), through a mount of that directory alone. So
 * the worker, which gets the descriptor, cannot open "..", or write to the image.
 */
static int lock_packed(struct spawner *s, const char *name, struct err *err) {
    int dir DEFER_CLOSE = open_packed(s, name, err);
    if (dir < 0)
        return -1;
    int mount DEFER_CLOSE = mount_clone(dir, "");
    int r = mount < 0 ? mount : mount_shelve(mount);
    int lock DEFER_CLOSE = r < 0 ? -1 : dir_open(mount, ".");
    if (r == 0 && lock < 0)
        r = lock;
    if (r == 0 && flock(lock, LOCK_SH | LOCK_NB) < 0)
        r = -errno;
    return r < 0 ? err_num(err, r, "cannot lock image '%.14s'", name) : TAKE_FD(lock);
}

/* Opens the directories of an image and of those below it, with shared locks. */
static int add_locks(struct spawner *s, const char *id, struct more *ret, struct err *err) {
    struct image_below below;
    int r = image_below_read(s->store, id, &below);
    if (r < 0)
        return err_num(err, r, "cannot read the list of layers of image '%.14s'", id);
    for (size_t i = 0; i <= below.count; i++) {
        int lock = lock_packed(s, i == 0 ? id : below.ids[i - 1], err);
        if (lock < 0)
            return -1;
        more_add(ret, lock);
    }
    return 0;
}

/* Opens the merged files of an image. */
static int add_view(struct spawner *s, const char *id, struct more *ret, struct err *err) {
    int view DEFER_CLOSE = sealed_view(s, id, err);
    int readable DEFER_CLOSE = view < 0 ? -1 : dir_open(view, ".");
    if (view >= 0 && readable < 0)
        err_num(err, readable, "cannot open the files of image '%.14s'", id);
    if (readable < 0)
        return -1;
    more_add(ret, TAKE_FD(readable));
    return 0;
}

/*
 * Handles UNPACK: starts a worker that unpacks an archive to a new image. `text` is the image's
 * temporary id and a disk limit in bytes, such as "n-4kq2x7w3n5ab 16777216"; no number, or 0, means
 * no limit. The id of an image may follow: the archive is a layer above it. Or "host": the archive
 * is above the host's /usr.
 */
static int begin_unpack(struct spawner *s, const char *text, const struct fd_message *in,
                        struct err *err) {
    char name[ID_SIZE], number[24];
    uint64_t disk = 0;
    size_t n = strcspn(text, " ");
    const char *limit = text[n] ? text + n + 1 : "0";
    size_t digits = strcspn(limit, " ");
    const char *below = limit[digits] ? limit + digits + 1 : NULL;
    bool is_host = below && strcmp(below, "host") == 0;
    snprintf(number, sizeof(number), "%.*s", (int)digits, limit);
    if (!id_valid(text, n, 'n') || digits >= sizeof(number) ||
        parse_u64(number, 0, UINT64_MAX >> 2, &disk, NULL) < 0 ||
        (below && !is_host && !image_id_valid(below)))
        return bad_name(text, err);
    snprintf(name, sizeof(name), "%.*s", (int)n, text);
    struct more more DEFER(more_done) = {.count = 0};
    /* The locks follow the view: without them, the tree below would be deleted while it is read, as
     * soon as the file of that image is there. */
    if (below && !is_host &&
        (add_view(s, below, &more, err) < 0 || add_locks(s, below, &more, err) < 0))
        return -1;
    int dir DEFER_CLOSE = make_staging(s, name, err);
    const struct work w = {.verb = "unpack",
                           .in = in->fds[0],
                           .out = -1,
                           .report = in->fds[1],
                           .dir = dir,
                           .more = &more,
                           .more_at = FD_BELOW,
                           .on = below,
                           .disk = disk};
    return dir < 0 ? -1 : archives_start(s, &w, err);
}

/* Opens the layers of an image for reading, topmost first. */
static int add_layers(const struct image *image, struct more *ret, struct err *err) {
    for (size_t i = 0; i <= image->over_count; i++) {
        int fd = dir_open(i < image->over_count ? image->over[i] : image->skeleton, ".");
        if (fd < 0)
            return err_num(err, fd, "cannot open a layer of image '%.14s'", image->key);
        more_add(ret, fd);
    }
    return 0;
}

/*
 * Opens the tree of an image that is not simply the directory `root` in `dir`: it is sealed, or has
 * several layers. Adds nothing if it is that directory. ret_layers: opens several layers apart from
 * each other, and returns their number; NULL: merged.
 */
static int add_tree_apart(struct spawner *s, const char *name, int dir, size_t *ret_layers,
                          struct more *ret, struct err *err) {
    struct image image DEFER(image_close) = IMAGE_NONE;
    struct stat st, top;
    if (sealed_image(s, name, &image, err) < 0)
        return -1;
    bool apart = image.over_count || (fstat(image.skeleton, &st) == 0 && fstat(dir, &top) == 0 &&
                                      st.st_dev != top.st_dev);
    if (image.over_count && ret_layers) {
        *ret_layers = 1 + image.over_count;
        return add_layers(&image, ret, err);
    }
    return apart ? add_view(s, name, ret, err) : 0;
}

/*
 * Handles PACK: starts a worker that writes an image to an archive. `text` is the format and the
 * image id, such as "oci i-...".
 */
static int begin_pack(struct spawner *s, const char *text, const struct fd_message *in,
                      struct err *err) {
    static const char *const forms[] = {"tar", "tar.zst", "oci", "oci.zst", "packs", "erofs"};
    enum { FORMS = sizeof(forms) / sizeof(*forms), SEAL = FORMS - 1, FIRST_OF_LAYERS = 2 };
    size_t n = strcspn(text, " "), i = 0;
    const char *name = text[n] ? text + n + 1 : "";
    while (i < FORMS && (strlen(forms[i]) != n || strncmp(forms[i], text, n) != 0))
        i++;
    if (i == FORMS || !image_id_valid(name))
        return bad_name(text, err);
    if (i == SEAL && sealed_can(s, err) < 0)
        return -1;
    if (image_is_lent(s->store, name))
        return err_set(err, ERR_UNSUPPORTED,
                       "image '%.14s' cannot be written to an archive: it uses the host's /usr",
                       name);
    struct more more DEFER(more_done) = {.count = 0};
    int dir DEFER_CLOSE = open_packed(s, name, err);
    size_t layers = 0;
    if (dir < 0 || (i != SEAL && add_tree_apart(s, name, dir, i >= FIRST_OF_LAYERS ? &layers : NULL,
                                                &more, err) < 0))
        return -1;
    bool apart = more.count > 0;
    if (apart && add_locks(s, name, &more, err) < 0)
        return -1;
    const struct work w = {.verb = forms[i],
                           .how = apart ? "sealed" : NULL,
                           .in = -1,
                           .out = in->fds[0],
                           .report = in->fds[1],
                           .dir = dir,
                           .more = &more,
                           .layers = layers,
                           .id = i == SEAL ? name : NULL};
    return archives_start(s, &w, err);
}

/*
 * Handles DRAW: starts a worker that writes the files of a machine's layers to an archive; the
 * worker reads them through mounts of its own. With a third descriptor, the record of the backup
 * before, it writes a backup; of /usr only what differs from the host's.
 */
static int draw_all(struct spawner *s, const struct plan_message *m, const struct fd_message *in,
                    struct err *err) {
    bool backup = in->nfds == 3;
    struct more more DEFER(more_done) = {.count = 0};
    struct layers_usr usr = {.base = -1};
    int dirs[2] = {-1, -1};
    if (layers_open_view(s, m->plan.id, m->plan.stack, dirs, backup ? &usr : NULL, err) < 0)
        return -1;
    int root DEFER_CLOSE = dirs[0];
    if (dirs[1] >= 0)
        more_add(&more, dirs[1]);
    if (usr.base >= 0)
        more_add(&more, usr.base);
    for (size_t i = 0; i < usr.count; i++)
        more_add(&more, usr.uppers[i]);
    const struct work w = {.verb = backup ? "backup" : "tar",
                           .how = usr.base >= 0 ? "lent" : "view",
                           .uppers = usr.count,
                           .in = backup ? in->fds[2] : -1,
                           .out = in->fds[0],
                           .report = in->fds[1],
                           .dir = root,
                           .more = &more};
    return archives_start(s, &w, err);
}

/*
 * The same for what differs from the image `text`. The worker gets the files of that image, and the
 * layers that may differ: those of the machine, and those of its image that are above `text`.
 */
static int draw_layer(struct spawner *s, const struct plan_message *m, const struct fd_message *in,
                      struct err *err) {
    struct more more DEFER(more_done) = {.count = 0};
    struct layers_changes changes;
    if (!image_id_valid(m->text))
        return bad_name(m->text, err);
    if (add_view(s, m->text, &more, err) < 0 || layers_open_changes(s, m, &changes, err) < 0)
        return -1;
    int root DEFER_CLOSE = changes.root;
    for (size_t i = 0; i < changes.count; i++)
        more_add(&more, changes.uppers[i]);
    /* The locks follow the layers. The worker keeps them open, though it does not know them. */
    if (add_locks(s, m->text, &more, err) < 0)
        return -1;
    const struct work w = {.verb = "layer",
                           .in = -1,
                           .out = in->fds[0],
                           .report = in->fds[1],
                           .dir = root,
                           .more = &more,
                           .uppers = changes.count};
    return archives_start(s, &w, err);
}

int archives_begin(struct spawner *s, const struct plan_message *m, const struct fd_message *in,
                   struct err *err) {
    bool backup = in->nfds == 3 && m->type == PLAN_DRAW && !m->text[0];
    if (in->nfds != 2 && !backup)
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
        return m->text[0] ? draw_layer(s, m, in, err) : draw_all(s, m, in, err);
    }
}

static int check_unused(const struct spawner *s, const char *id, struct err *err) {
    for (const struct box *b = s->list; b; b = b->next)
        if (!b->dead && sealed_is_part(s, b->image_key, id))
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
    char id[IMAGE_ID_SIZE + 1];
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
    int r = trash_put(s->store, m->text, id_new('t').text);
    if (r < 0 && r != -ENOENT)
        return err_num(err, r, "cannot move image '%s' to the trash directory", id);
    /*
     * If the undertaker (the process that deletes files) is too busy or dies, the next spawner
     * empties the trash.
     */
    undertaker_wipe(u, s->store);
    return 0;
}
