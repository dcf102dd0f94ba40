/* Devices, descriptors, the root directory, setuid files, terminals: groups 4, 13, 14, 18, 19, 37.
 */
#include <dirent.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "attack.h"

#define HIGH (1L << 32)

static int make_node(const struct attack *a) {
    char path[64];
    snprintf(path, sizeof(path), "%s/attack-node-%d", a->path, (int)getpid());
    int r = mknod(path, (mode_t)a->n[0] | 0600, makedev((unsigned)a->n[1], (unsigned)a->n[2]));
    int e = attack_outcome(r);
    unlink(path);
    return e;
}

/* A command has 0, 1 and 2. Anything above is the host's or the guest's. */
static int stray_descriptor(const struct attack *a) {
    for (int fd = (int)a->n[0]; fd < a->n[1]; fd++) {
        struct stat st;
        int flags = fcntl(fd, F_GETFD);
        if (flags < 0 || flags & FD_CLOEXEC)
            continue; /* ours are marked, an inherited one is not */
        if (fstat(fd, &st) == 0)
            return 0;
    }
    return EBADF;
}

/* Standard streams must be pipes, terminals or null, never a file or directory of the host. */
static int stream_is_file(const struct attack *a) {
    (void)a;
    for (int fd = 0; fd < 3; fd++) {
        struct stat st;
        if (fstat(fd, &st) == 0 &&
            (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode) || S_ISSOCK(st.st_mode)))
            return 0;
    }
    return ENODATA;
}

static int through_descriptor(const struct attack *a) {
    (void)a;
    const char *mark = attack_fact("mark");
    for (int fd = 3; fd < 1024; fd++)
        if (mark && openat(fd, mark + 1, O_RDONLY) >= 0)
            return 0;
    return EBADF;
}

static int cwd_is_outside(const struct attack *a) {
    (void)a;
    char path[4096];
    return getcwd(path, sizeof(path)) && path[0] == '/' ? ENOENT : 0;
}

/* The classic: keep a directory open, chroot below it, walk up past the root, look around. */
static int leave_chroot(const struct attack *a) {
    char dir[] = "/tmp/attack-XXXXXX", up[64] = "";
    const char *mark = attack_fact("mark");
    if (!mkdtemp(dir))
        return errno;
    int root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < 20; i++)
        strcat(up, "../");
    bool out =
        chroot(dir) == 0 && (!a->n[0] || fchdir(root) == 0) && chdir(up) == 0 && chroot(".") == 0;
    int e = attack_outcome(out ? open(mark ? mark : "/nowhere", O_RDONLY | O_CLOEXEC) : -1);
    unlinkat(root, dir + 1, AT_REMOVEDIR);
    return e;
}

/* After that walk the root is the anchor: it must be empty and read-only. */
static int write_above_root(const struct attack *a) {
    (void)a;
    char dir[] = "/tmp/attack-XXXXXX";
    int root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (!mkdtemp(dir))
        return errno;
    bool out = chroot(dir) == 0 && fchdir(root) == 0 && chdir("../../../..") == 0;
    int e = attack_outcome(out ? mkdir("attack-above", 0700) : -1);
    rmdir("attack-above");
    unlinkat(root, dir + 1, AT_REMOVEDIR);
    return e;
}

/* A copy of this program, owned by root, that tells its effective user when run. */
static int copy_self(const char *to, mode_t mode) {
    char block[65536];
    int in = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);
    for (ssize_t n; in >= 0 && out >= 0 && (n = read(in, block, sizeof(block))) > 0;)
        if (write(out, block, (size_t)n) != n)
            return -1;
    close(in);
    return out < 0 ? -1 : fchmod(out, mode) + close(out);
}

/* As root: give a file power, become somebody, run it. Its exit status says what it got. */
static int gain_by_file(const struct attack *a) {
    char path[64];
    snprintf(path, sizeof(path), "%s/attack-suid-%d", a->path, (int)getpid());
    if (copy_self(path, a->n[0] ? 0755 : 06755) < 0)
        return errno;
    if (a->n[0]) {
        struct vfs_cap_data caps = {.magic_etc = VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE,
                                    .data = {{.permitted = 1u << CAP_DAC_OVERRIDE}}};
        if (setxattr(path, "security.capability", &caps, sizeof(caps), 0) < 0) {
            int e = errno;
            unlink(path);
            return e;
        }
    }
    pid_t pid = fork();
    if (pid == 0) {
        char *argv[] = {path, (char *)"--bomb", (char *)"power", NULL};
        if (setgid(1000) < 0 || setuid(1000) < 0)
            _exit(2);
        execv(path, argv);
        _exit(3);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    unlink(path);
    return WIFEXITED(status) && WEXITSTATUS(status) == 42 ? 0 : EPERM;
}

/* The setuid program of the image, as user: root's account is locked. */
static int system_suid(const struct attack *a) {
    if (access(a->path, X_OK) < 0)
        return errno;
    int ends[2];
    char text[4096];
    size_t len = 0;
    if (pipe(ends) < 0)
        return errno;
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], 1);
        close(ends[0]);
        char *argv[] = {(char *)a->path, (char *)"-c", (char *)"id -u", (char *)"root", NULL};
        execv(a->path, argv);
        _exit(3);
    }
    close(ends[1]);
    for (ssize_t n; (n = read(ends[0], text + len, sizeof(text) - 1 - len)) > 0;)
        len += (size_t)n;
    text[len] = '\0';
    waitpid(pid, NULL, 0);
    return text[0] == '0' ? 0 : EPERM;
}

static int set_xattr(const struct attack *a) {
    char path[64];
    snprintf(path, sizeof(path), "/tmp/attack-xattr-%d", (int)getpid());
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    int e = fd < 0 ? errno : attack_outcome(fsetxattr(fd, a->path, "y", 1, 0));
    unlink(path);
    return e;
}

static int set_flags(const struct attack *a) {
    char path[64];
    int flags = (int)a->n[0];
    snprintf(path, sizeof(path), "/tmp/attack-flags-%d", (int)getpid());
    int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    int e = fd < 0 ? errno : attack_outcome(ioctl(fd, FS_IOC_SETFLAGS, &flags));
    flags = 0;
    if (fd >= 0)
        ioctl(fd, FS_IOC_SETFLAGS, &flags);
    unlink(path);
    return e;
}

/* Without an argument: where the call gets to the kernel at all, that is what it minds. */
static int set_attributes(const struct attack *a) {
    int fd = open(a->path, O_RDONLY | O_CLOEXEC);
    int e = fd < 0 ? errno : attack_outcome(ioctl(fd, (unsigned long)a->n[0], NULL));
    close(fd);
    return e;
}

/* On a terminal of our own: what is refused there is refused on any. */
static int terminal(const struct attack *a) {
    int master, slave;
    char byte = 'x';
    if (openpty(&master, &slave, NULL, NULL, NULL) < 0)
        return errno;
    setsid();
    ioctl(slave, TIOCSCTTY, 0);
    int number = (int)a->n[1];
    return attack_outcome(
        syscall(SYS_ioctl, (long)slave, a->n[0], a->n[1] < 0 ? (void *)&byte : (void *)&number));
}

/* TIOCLINUX wants a virtual console; a terminal answers for the filter. */
static int console(const struct attack *a) {
    return attack_outcome(open(a->path, O_RDWR | O_NOCTTY | O_CLOEXEC));
}

static int steal_terminal(const struct attack *a) {
    (void)a;
    setsid();
    return attack_outcome(ioctl(STDIN_FILENO, TIOCSCTTY, 1));
}

static int write_lower(const struct attack *a) {
    (void)a;
    /* A page of a shared file of the image: private copies only. */
    int fd = open("/usr/bin/env", O_RDONLY | O_CLOEXEC);
    void *page = fd < 0 ? MAP_FAILED : mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return page == MAP_FAILED ? errno : 0;
}

#define NODE(name, where, type, major, minor)              \
    {                                                      \
        4, name, make_node, where, {type, major, minor}, { \
            EPERM, EROFS, EACCES                           \
        }                                                  \
    }
#define TTY(name, request, arg, ...)                         \
    {                                                        \
        19, name, terminal, NULL, {request, arg}, {EPERM}, { \
            __VA_ARGS__                                      \
        }                                                    \
    }

static const struct attack rows[] = {
    NODE("block 8:0 in /tmp", "/tmp", S_IFBLK, 8, 0),
    NODE("block 7:0 in /tmp", "/tmp", S_IFBLK, 7, 0),
    NODE("block 259:0 in /tmp", "/tmp", S_IFBLK, 259, 0),
    NODE("char 1:1 (mem) in /tmp", "/tmp", S_IFCHR, 1, 1),
    NODE("char 1:11 (kmsg) in /tmp", "/tmp", S_IFCHR, 1, 11),
    NODE("char 1:3 (null) in /tmp", "/tmp", S_IFCHR, 1, 3),
    NODE("char 5:1 (console) in /tmp", "/tmp", S_IFCHR, 5, 1),
    NODE("char 10:200 (tun) in /tmp", "/tmp", S_IFCHR, 10, 200),
    NODE("char 10:237 (loop-control) in /tmp", "/tmp", S_IFCHR, 10, 237),
    NODE("char 10:229 (fuse) in /tmp", "/tmp", S_IFCHR, 10, 229),
    NODE("char 10:232 (kvm) in /tmp", "/tmp", S_IFCHR, 10, 232),
    NODE("char 0:0 (whiteout) in /tmp", "/tmp", S_IFCHR, 0, 0),
    NODE("char 0:0 (whiteout) in /dev/shm", "/dev/shm", S_IFCHR, 0, 0),
    NODE("block 8:0 in /dev/shm", "/dev/shm", S_IFBLK, 8, 0),
    NODE("char 1:1 (mem) in /dev", "/dev", S_IFCHR, 1, 1),
    NODE("block 8:0 in /dev", "/dev", S_IFBLK, 8, 0),
    {4, "open /dev/fuse", console, "/dev/fuse", {0}, {ENOENT}},
    {4, "open /dev/kvm", console, "/dev/kvm", {0}, {ENOENT}},
    {4, "open /dev/net/tun", console, "/dev/net/tun", {0}, {ENOENT}},
    {4, "open /dev/vsock", console, "/dev/vsock", {0}, {ENOENT}},
    {4, "open /dev/loop-control", console, "/dev/loop-control", {0}, {ENOENT}},
    {4, "open /dev/vhost-vsock", console, "/dev/vhost-vsock", {0}, {ENOENT}},

    {13, "an inherited descriptor", stray_descriptor, NULL, {3, 4096}, {EBADF}},
    {13, "the host through an inherited descriptor", through_descriptor, NULL, {0}, {EBADF}},
    {13, "a standard stream that is a file of the host", stream_is_file, NULL, {0}, {ENODATA}},
    {13,
     "a working directory outside the root",
     cwd_is_outside,
     NULL,
     {0},
     {ENOENT},
     {0},
     "none: outside there is no outside"},

    {14, "chroot and walk up by descriptor", leave_chroot, NULL, {1}, {ENOENT, EPERM}},
    {14, "chroot and walk up from the old directory", leave_chroot, NULL, {0}, {ENOENT, EPERM}},
    {14, "write above the root", write_above_root, NULL, {0}, {EROFS, EPERM}},

    {18,
     "a setuid copy in /dev/shm",
     gain_by_file,
     "/dev/shm",
     {0},
     {EPERM},
     {0},
     "none: test_setid.py shows that it works in /tmp",
     'r'},
    {18,
     "a file with capabilities in /dev/shm",
     gain_by_file,
     "/dev/shm",
     {1},
     {EPERM},
     {0},
     "none: test_setid.py shows that it works in /tmp",
     'r'},
    {18,
     "su to root without a password",
     system_suid,
     "/usr/bin/su",
     {0},
     {EPERM, ENOENT},
     {0},
     "none: root outside needs no gain",
     'u'},
    {18,
     "xattr trusted.overlay.redirect",
     set_xattr,
     "trusted.overlay.redirect",
     {0},
     {EPERM, EOPNOTSUPP}},
    {18,
     "xattr trusted.overlay.opaque",
     set_xattr,
     "trusted.overlay.opaque",
     {0},
     {EPERM, EOPNOTSUPP}},
    {18, "xattr trusted.any", set_xattr, "trusted.carrel", {0}, {EPERM, EOPNOTSUPP}},
    /* A kernel with IMA looks at the value, after the right to set one. */
    {18, "xattr security.ima", set_xattr, "security.ima", {0}, {EPERM, EOPNOTSUPP}, {EINVAL}},
    {18,
     "FSSETXATTR of a directory",
     set_attributes,
     "/tmp",
     {FS_IOC_FSSETXATTR},
     {ENOTTY},
     {EFAULT}},
    {18,
     "FSSETXATTR of a file of the image",
     set_attributes,
     "/etc/passwd",
     {FS_IOC_FSSETXATTR},
     {ENOTTY},
     {EFAULT}},
    {18, "SETFLAGS of a directory", set_attributes, "/tmp", {FS_IOC_SETFLAGS}, {ENOTTY}, {EFAULT}},
    {18, "an immutable file", set_flags, NULL, {FS_IMMUTABLE_FL}, {EPERM, ENOTTY, EOPNOTSUPP}},

    TTY("TIOCSTI", TIOCSTI, -1, 0),
    TTY("TIOCSTI with bit 32", TIOCSTI | HIGH, -1, 0),
    TTY("TIOCSTI with bit 63", (long)(TIOCSTI | 1UL << 63), -1, 0),
    TTY("TIOCSTI with all high bits", (long)(TIOCSTI | 0xffffffffUL << 32), -1, 0),
    TTY("TIOCLINUX paste", TIOCLINUX, 3, ENOTTY),
    TTY("TIOCLINUX select", TIOCLINUX, 2, ENOTTY),
    TTY("TIOCLINUX with high bits", TIOCLINUX | HIGH, 3, ENOTTY),
    TTY("TIOCSETD n_gsm", TIOCSETD, 21, EINVAL),
    TTY("TIOCSETD slip", TIOCSETD, 1, EINVAL),
    TTY("TIOCSETD n_hdlc", TIOCSETD, 13, EINVAL),
    TTY("TIOCSETD with high bits", TIOCSETD | HIGH, 21, EINVAL),
    {19,
     "TIOCSCTTY of the caller's terminal",
     steal_terminal,
     NULL,
     {0},
     {ENOTTY, EPERM},
     {0},
     "none: tests have no terminal to steal"},
    {19, "open /dev/console", console, "/dev/console", {0}, {ENOENT}, {EIO}},
    {19, "open /dev/tty0", console, "/dev/tty0", {0}, {ENOENT}},
    {19, "open /dev/tty1", console, "/dev/tty1", {0}, {ENOENT}},
    {19, "open /dev/ttyS0", console, "/dev/ttyS0", {0}, {ENOENT}, {EIO}},
    {19, "open /dev/pts/0 of the host", console, "/dev/pts/0", {0}, {ENOENT}},
    {19, "TIOCCONS", terminal, NULL, {TIOCCONS, 0}, {EPERM}, {EBUSY}},

    {37,
     "write into a page of the image",
     write_lower,
     NULL,
     {0},
     {EACCES},
     {0},
     "none: a descriptor open for reading refuses it outside too"},
};

const struct attack_table file_attacks = ATTACK_TABLE(rows);
