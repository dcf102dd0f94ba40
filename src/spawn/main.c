/* carrel-spawn: the start of the spawner, from options to its event loop. See spawner.h. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/lockfile.h"
#include "base/log.h"
#include "base/parse.h"
#include "spawn/cell_root.h"
#include "spawn/fuse/server.h"
#include "spawn/rootless.h"
#include "spawn/spawner.h"
#include "spawn/vm/serial.h"
#include "spawn/weaken.h"

enum { IDLE_MS = 60000 };
/* first host user id of machines, above the ranges that distributions assign */
#define UID_BASE 1879048192u

struct options {
    struct spawner_paths paths;
    uint64_t idle_ms;
    uint64_t uid_base;
    /* number of ready boxes to keep; 0: every box is created on request, from a berth */
    uint64_t ready_boxes;
    int ready; /* descriptor that gets a byte once the spawner's socket accepts requests */
};

static const struct option long_options[] = {
    {"run", required_argument, NULL, 'r'},         {"home", required_argument, NULL, 'h'},
    {"guest", required_argument, NULL, 'g'},       {"worker", required_argument, NULL, 'w'},
    {"idle-ms", required_argument, NULL, 'i'},     {"archiver", required_argument, NULL, 'a'},
    {"ready-fd", required_argument, NULL, 'f'},    {"uid-base", required_argument, NULL, 'u'},
    {"ready-boxes", required_argument, NULL, 'b'}, {NULL, 0, NULL, 0},
};

static int read_options(int argc, char **argv, struct options *o, struct err *err) {
    uint64_t n;
    for (int c; (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        switch (c) {
        case 'r':
            o->paths.run = optarg;
            break;
        case 'h':
            o->paths.home = optarg;
            break;
        case 'g':
            o->paths.guest = optarg;
            break;
        case 'w':
            o->paths.worker = optarg;
            break;
        case 'a':
            o->paths.archiver = optarg;
            break;
        case 'i':
            if (parse_u64(optarg, 1, 86400000, &o->idle_ms, err) < 0)
                return -1;
            break;
        case 'f':
            if (parse_u64(optarg, 0, INT_MAX, &n, err) < 0)
                return -1;
            o->ready = (int)n;
            fcntl(o->ready, F_SETFD, FD_CLOEXEC);
            break;
        case 'u':
            if (parse_u64(optarg, 65536, 0xf0000000, &o->uid_base, err) < 0)
                return -1;
            break;
        case 'b':
            if (parse_u64(optarg, 0, READY_MAX, &o->ready_boxes, err) < 0)
                return -1;
            break;
        default:
            return err_set(err, ERR_INVALID, "carrel-spawn: unknown option or missing value");
        }
    }
    if (!o->paths.run || !o->paths.home || !o->paths.guest)
        return err_set(err, ERR_INVALID,
                       "carrel-spawn: the options --run, --home and --guest are required");
    return 0;
}

/* Only one spawner may use a run directory. A second one fails with ERR_BUSY. */
static int take_lock(const struct spawner_paths *paths, struct err *err) {
    char path[4096];
    struct lock_holder other;
    bool is_taken;
    if (mkdir(paths->run, 0700) < 0 && errno != EEXIST)
        return err_sys(err, "cannot create directory '%s'", paths->run);
    snprintf(path, sizeof(path), "%s/spawn.lock", paths->run);
    return lockfile_take(path, paths->home, &is_taken, &other, err);
}

static int open_socket(int run, struct err *err) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd DEFER_CLOSE = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    unlinkat(run, "spawn.sock", 0);
    snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/spawn.sock", run);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, 128) < 0)
        return err_sys(err, "cannot listen on the spawner's socket spawn.sock");
    return TAKE_FD(fd);
}

/*
 * Frees the resources of the spawner. It is also called after a failed start, when only some of
 * them exist.
 */
static void main_leave(struct spawner *s) {
    char workshop[48];
    pool_drop(s);
    nursery_close(&s->nursery);
    boxes_sweep(s);
    uppers_close(&s->maker.uppers);
    unlinkat(s->run, "spawn.sock", 0);
    cgroups_drop_kept(&s->cgroups);
    cgroups_close(&s->cgroups);
    slots_close(&s->maker.slots);
    dynmods_restore(&s->dynmods, s->run);
    snprintf(workshop, sizeof(workshop), "/proc/self/fd/%d/workshop", s->run);
    umount2(workshop, MNT_DETACH);
    unlinkat(s->run, "workshop", AT_REMOVEDIR);
    unlinkat(s->run, "boxes", AT_REMOVEDIR);
}

static void avoid_ranges(struct spawner *s) {
    static const char *const files[] = {"etc/subuid", "etc/subgid"};
    static char text[1 << 20];
    for (size_t i = 0; i < 2 && !s->rootless; i++)
        if (read_file_at(s->host, files[i], text, sizeof(text)) > 0)
            slots_avoid(&s->maker.slots, text);
}

static int serve(struct spawner *s, struct options *o, struct err *err) {
    if (spawner_open(s, &o->paths, err) < 0)
        return -1;
    s->maker.slots.lock_dir = openat(s->host, "run", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    avoid_ranges(s);
    dynmods_favor(&s->dynmods, s->run, s->maker.slots.lock_dir);
    boxes_adopt(s);
    if (!s->list)
        rootless_dismiss(s);
    int listener DEFER_CLOSE = open_socket(s->run, err);
    if (listener < 0)
        return -1;
    if (o->ready >= 0) {
        (void)!write(o->ready, "r", 1);
        close(o->ready);
        o->ready = -1;
    }
    return server_run(s, listener, o->idle_ms, err);
}

/*
 * Hashes the spawner's program before the host's files are out of reach. The weakened program of a
 * test reports the hash of the real one.
 */
static void note_program(struct spawner *s) {
    char path[PATH_MAX] = "";
    ssize_t n = weakened("version") ? readlink("/proc/self/exe", path, sizeof(path) - 1) : 0;
    if (n > 5)
        path[n - 5] = '\0'; /* cut off "-weak" */
    program_id(n > 5 ? path : "/proc/self/exe", s->program);
}

static int main_run(struct options *o, struct err *err) {
    static struct spawner spawner;
    struct spawner *s = &spawner;
    int lock DEFER_CLOSE = take_lock(&o->paths, err);
    if (lock < 0)
        return -1;
    note_program(s);
    vm_templates_init(&s->templates);
    s->run = s->dynmods.lock = -1;
    s->cgroups = (struct cgroups){.back = -1, .memory = -1, .cpu = -1, .pids = -1, .freezer = -1};
    s->maker.uppers = UPPERS_NONE;
    s->maker.slots =
        (struct slots){.base = (uint32_t)o->uid_base, .count = SLOT_MAX, .lock_dir = -1};
    s->ready.wanted = o->ready_boxes;
    if (rootless_enter(s, err) < 0)
        return -1;
    int r = serve(s, o, err);
    main_leave(s);
    return r;
}

/* Raises the limit of open files, because a thousand boxes need several thousand descriptors. */
static void allow_descriptors(void) {
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

int main(int argc, char **argv) {
    struct options o = {
        .idle_ms = IDLE_MS, .uid_base = UID_BASE, .ready_boxes = READY_DEFAULT, .ready = -1};
    struct err err = {0};
    stdio_hold();
    if (argc > 1 && strcmp(argv[1], "--serve-files") == 0)
        return fuse_server_main(argc - 2, argv + 2);
    if (argc > 1 && strcmp(argv[1], "--serve-serial") == 0)
        return serial_main(argc - 2, argv + 2);
    prctl(PR_SET_NAME, "carrel-spawn");
    if (argc > 1 && strcmp(argv[1], "--cell-root") == 0)
        return cell_root_main(argc - 2, argv + 2, UID_BASE);
    umask(077);
    allow_descriptors();
    if (read_options(argc, argv, &o, &err) == 0 && main_run(&o, &err) == 0)
        return 0;
    /* The process that started the spawner reads the reason of the failure from this pipe. */
    if (o.ready >= 0)
        dprintf(o.ready, "%c%s\n%s", err.code == ERR_BUSY ? 'B' : 'E', err.text, err.remedy);
    log_line(LOG_ERROR, "spawn", "%s", err.text);
    return 1;
}
