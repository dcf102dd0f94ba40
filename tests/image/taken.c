/*
 * The reader of archives, taken over: the archive is the name of what it is to try, a line. It is
 * linked into carrel-image in place of image/reader.c; all else is what everybody runs.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/defer.h"
#include "image/reader.h"

enum { REPORT = 4, TOO_MUCH = 1 << 20 };

static int say(const char *arg, struct err *err) {
    (void)err;
    dprintf(REPORT, "%s\n", arg);
    return 0;
}

/* And so much that whoever hears it may stop, before anybody else has spoken. */
static int say_last(const char *arg, struct err *err) {
    say(arg, err);
    for (int i = 0; i < TOO_MUCH; i++)
        (void)!write(REPORT, "x", 1);
    return 0;
}

static int plant(const char *arg, struct err *err) {
    int fd DEFER_CLOSE = open(arg, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0400);
    return fd < 0 ? err_sys(err, "plant '%s'", arg) : 0;
}

/* An access list as the kernel keeps it: version 2; owner, group and others may do all. */
static const uint32_t acl[] = {2,          1 | 7 << 16,  UINT32_MAX, 4 | 7 << 16,
                               UINT32_MAX, 32 | 7 << 16, UINT32_MAX};

/* "NAME PLACE": an attribute of a directory, or of a new file. */
static int mark(const char *arg, struct err *err) {
    const char *place = strchr(arg, ' ') + 1;
    bool is_acl = strncmp(arg, "system.", 7) == 0;
    char name[128];
    snprintf(name, sizeof(name), "%.*s", (int)(place - 1 - arg), arg);
    int fd DEFER_CLOSE = openat(AT_FDCWD, place, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        fd = openat(AT_FDCWD, place, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0 ||
        fsetxattr(fd, name, is_acl ? (const void *)acl : "y", is_acl ? sizeof(acl) : 1, 0) < 0)
        return err_sys(err, "mark '%s'", arg);
    return 0;
}

/* "MODE OWNER TIME": of a new directory. */
static int make_dir(const char *arg, struct err *err) {
    char *rest;
    mode_t mode = (mode_t)strtoul(arg, &rest, 8);
    uid_t owner = (uid_t)strtoul(rest, &rest, 10);
    const struct timespec times[2] = {{0}, {.tv_sec = strtol(rest, NULL, 10)}};
    if (mkdirat(AT_FDCWD, "root/made", 0700) < 0 ||
        fchownat(AT_FDCWD, "root/made", owner, owner, 0) < 0 ||
        fchmodat(AT_FDCWD, "root/made", mode, 0) < 0 ||
        utimensat(AT_FDCWD, "root/made", times, 0) < 0)
        return err_sys(err, "make '%s'", arg);
    return 0;
}

/* "KIND MINOR": a device, such as "c 0", which overlayfs takes for a deleted name. */
static int make_node(const char *arg, struct err *err) {
    mode_t kind = arg[0] == 'c' ? S_IFCHR : S_IFBLK;
    dev_t dev = (dev_t)strtoul(arg + 1, NULL, 10);
    return mknodat(AT_FDCWD, "root/node", kind | 0666, dev) < 0 ? err_sys(err, "make '%s'", arg)
                                                                : 0;
}

static int write_log(const char *arg, struct err *err) {
    (void)err;
    dprintf(STDERR_FILENO, "%s\n", arg);
    return 0;
}

/* By way of a descriptor whose owner is somebody else. */
static int kill_other(const char *arg, struct err *err) {
    if (fcntl(STDIN_FILENO, F_SETOWN, (pid_t)strtol(arg, NULL, 10)) < 0 ||
        fcntl(STDIN_FILENO, F_SETSIG, SIGKILL) < 0)
        return err_sys(err, "signal another");
    return 0;
}

static int stay(const char *arg, struct err *err) {
    (void)err;
    if (strcmp(arg, "silent") == 0)
        close_range(1, ~0u, 0);
    while (ppoll(NULL, 0, NULL, NULL) < 0)
        ;
    return 0;
}

/* Changes the image below a layer, or leaves it. It can be read, which is the control. */
static int change_below(const char *arg, struct err *err) {
    struct stat here, above;
    int fd DEFER_CLOSE = openat(APART_FD_READ_BELOW, arg, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(APART_FD_READ_BELOW, &here) < 0 ||
        fstatat(APART_FD_READ_BELOW, "..", &above, 0) < 0)
        return err_sys(err, "read '%s' of the image below", arg);
    if (here.st_dev != above.st_dev || here.st_ino != above.st_ino)
        return err_set(err, ERR_INTERNAL, "left the image below");
    if (openat(APART_FD_READ_BELOW, "planted", O_WRONLY | O_CREAT | O_CLOEXEC, 0600) >= 0 ||
        openat(APART_FD_READ_BELOW, arg, O_WRONLY | O_CLOEXEC) >= 0 ||
        fchmod(APART_FD_READ_BELOW, 0777) == 0 || fchmod(fd, 0777) == 0 ||
        unlinkat(APART_FD_READ_BELOW, arg, 0) == 0)
        return err_set(err, ERR_INTERNAL, "changed the image below");
    return 0;
}

static const struct {
    const char *name;
    int (*fn)(const char *arg, struct err *err);
} attacks[] = {
    {"say", say},       {"last", say_last},   {"plant", plant},
    {"log", write_log}, {"kill", kill_other}, {"stay", stay},
    {"mark", mark},     {"dir", make_dir},    {"node", make_node},
};

int read_archive(void *arg, struct report *report, struct buf *ret, struct err *err) {
    char line[1024] = "";
    ssize_t n = read(STDIN_FILENO, line, sizeof(line) - 1);
    (void)arg, (void)report;
    if (strcmp(line, "carrel-layer") == 0) /* the header of a layer above another one */
        return change_below("one", err) == 0 && buf_add(ret, "{}", 2) ? 0 : -1;
    line[n > 0 ? strcspn(line, "\n") : 0] = '\0';
    char *rest = line + strcspn(line, " ");
    if (*rest)
        *rest++ = '\0';
    for (size_t i = 0; i < sizeof(attacks) / sizeof(*attacks); i++)
        if (strcmp(attacks[i].name, line) == 0 && attacks[i].fn(rest, err) < 0)
            return -1;
    /* Without the time of this run the same tree has the same id. */
    const struct timespec none[2] = {{0}};
    return utimensat(AT_FDCWD, "root", none, 0) == 0 && buf_add(ret, "{}", 2) ? 0 : -1;
}
