/*
 * carrel store init: sets the disk format of new machines. It writes a file into the store, which
 * the daemon and the spawner read at their start; existing machines keep their disks.
 */
#include "cli/store_init.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/amount.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/disks.h"
#include "io/place.h"

static int check_choice(const struct store_init *o, struct err *err) {
    if (o->plain == (o->btrfs_bytes > 0)) {
        err_set(err, ERR_INVALID,
                o->plain ? "--btrfs and --plain exclude each other"
                         : "carrel store init requires --btrfs or --plain");
        return err_remedy(err, "use carrel store init --btrfs SIZE, or --plain");
    }
    if (geteuid() != 0) {
        err_set(err, ERR_UNSUPPORTED,
                "machines of an ordinary user have their disks in memory: "
                "only root can mount other disks");
        return err_remedy(err, "run as root");
    }
    return 0;
}

static bool kernel_has_btrfs(void) {
    char text[8192] = "";
    read_file_at(AT_FDCWD, "/proc/filesystems", text, sizeof(text));
    return strstr(text, "\tbtrfs\n") != NULL;
}

static int check_btrfs(const struct place *place, uint64_t bytes, struct err *err) {
    char wanted[AMOUNT_SIZE], free[AMOUNT_SIZE];
    struct statvfs fs;
    amount_size(bytes, wanted);
    if (bytes < DISKS_BTRFS_MIN || bytes > DISKS_BTRFS_MAX)
        return err_set(err, ERR_INVALID, "--btrfs %s: must be between 256M and 64T", wanted);
    if (access("/sbin/mkfs.btrfs", X_OK) < 0) {
        err_set(err, ERR_UNSUPPORTED, "/sbin/mkfs.btrfs does not exist");
        return err_remedy(err, "apt-get install btrfs-progs");
    }
    if (!kernel_has_btrfs()) {
        err_set(err, ERR_UNSUPPORTED, "the kernel does not support btrfs");
        return err_remedy(err, "modprobe btrfs");
    }
    if (statvfs(place->home, &fs) < 0)
        return err_sys(err, "cannot read the free disk space of '%s'", place->home);
    if ((uint64_t)fs.f_bavail * fs.f_frsize >= bytes)
        return 0;
    amount_size((uint64_t)fs.f_bavail * fs.f_frsize, free);
    err_set(err, ERR_LIMIT, "--btrfs %s: the disk that holds '%s' has only %s free", wanted,
            place->home, free);
    return err_remedy(err, "choose a smaller size, or set CARREL_HOME to a directory on a larger "
                           "disk");
}

static bool answers(const char *run, const char *name) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int dir DEFER_CLOSE = open(run, O_PATH | O_DIRECTORY | O_CLOEXEC);
    /* The spawner's socket is SOCK_SEQPACKET, the daemon's SOCK_STREAM. */
    int kind = strcmp(name, "spawn.sock") == 0 ? SOCK_SEQPACKET : SOCK_STREAM;
    int fd DEFER_CLOSE = socket(AF_UNIX, kind | SOCK_CLOEXEC, 0);
    snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/%s", dir, name);
    return dir >= 0 && fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0;
}

/* Refuses while a daemon or spawner runs, because it has already read the old disk format. */
static int check_quiet(const struct place *place, struct err *err) {
    static const char *const sockets[] = {"carrel.sock", "spawn.sock"};
    for (size_t i = 0; i < sizeof(sockets) / sizeof(*sockets); i++)
        if (answers(place->run, sockets[i])) {
            err_set(err, ERR_BUSY, "%s is running and uses the old disk format",
                    i == 0 ? "the daemon" : "the spawner");
            return err_remedy(err, "stop it, or delete all machines and wait: then it exits "
                                   "after a minute");
        }
    return 0;
}

/* Writes the format to a temporary file, and renames the file. */
static int write_down(const struct place *place, const struct disks *d, struct err *err) {
    static const char beside[] = DISKS_NAME ".new";
    char text[DISKS_TEXT_SIZE];
    int home DEFER_CLOSE = open(place->home, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (home >= 0)
        unlinkat(home, beside, 0);
    int fd DEFER_CLOSE =
        home < 0 ? -1 : openat(home, beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    disks_print(d, text);
    int r = fd < 0 ? -errno : write_all(fd, text, strlen(text));
    if (r == 0 &&
        (fsync(fd) < 0 || renameat(home, beside, home, DISKS_NAME) < 0 || fsync(home) < 0))
        r = -errno;
    return r < 0
               ? err_num(err, r, "cannot write the disk format to '%s/%s'", place->home, DISKS_NAME)
               : 0;
}

int store_init(const struct store_init *o, struct err *err) {
    struct place place;
    struct disks d = {.said = true, .btrfs = !o->plain, .bytes = o->btrfs_bytes};
    char size[AMOUNT_SIZE];
    amount_size(d.bytes, size);
    if (check_choice(o, err) < 0 || place_find(&place, err) < 0 || place_make(&place, err) < 0 ||
        (d.btrfs && check_btrfs(&place, d.bytes, err) < 0) || check_quiet(&place, err) < 0 ||
        write_down(&place, &d, err) < 0)
        return -1;
    if (o->json)
        printf("{\"disks\":\"%s\",\"bytes\":%" PRIu64 "}\n", d.btrfs ? "btrfs" : "plain", d.bytes);
    else if (d.btrfs)
        printf("each new machine gets a btrfs disk of %s in '%s', unless --disk gives another "
               "size\n",
               size, place.home);
    else
        printf("new machines get disks without btrfs\n");
    return 0;
}
