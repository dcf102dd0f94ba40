/*
 * A cell worker whose engine was taken over: it makes one system call that an attacker would make.
 *
 * taken SPAWNER ATTACK MODE:DIR...: in the jail of a worker with these directories; SPAWNER
 *   "none": in the jail of a worker without files.
 * taken outside ATTACK MODE:DIR...: without a jail, where the attack must work.
 * carrel-cell-allowed FUEL RATE PAGES CAPABILITIES MACHINE ATTACK WHERE: as the worker of a cell
 * machine. WHERE: "jailed" in its jail; "parent" beside it, without rights; "free" with the rights
 * that the guest gave it. The exit status is 0 if the attack worked, 1 if the system call failed, 3
 * if it ended the worker.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/cell_command.h"
#include "base/defer.h"
#include "cell/jail.h"

struct target {
    const char *attack;
    int dirs[JAIL_DIRS_MAX]; /* without a jail */
};

/* As the filter allows it: with no limits of WASI on where a path leads. */
static int taken_open(int dir, const char *path, int flags) {
    struct open_how how = {.flags = (uint64_t)(unsigned)flags, .mode = flags & O_CREAT ? 0666 : 0};
    return (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));
}

static int taken_reads(int dir, const char *path) {
    char bytes[64];
    int fd = taken_open(dir, path, O_RDONLY);
    return fd >= 0 && pread(fd, bytes, sizeof(bytes), 0) > 0;
}

static int read_absolute(int dir) {
    (void)dir;
    return taken_reads(AT_FDCWD, "/etc/passwd");
}

static int read_upwards(int dir) {
    return taken_reads(dir, "../../../../../../../../etc/passwd");
}

static int read_through_link(int dir) {
    unlinkat(dir, "out", 0);
    return symlinkat("/etc/passwd", dir, "out") == 0 && taken_reads(dir, "out");
}

static int read_through_proc(int dir) {
    (void)dir;
    return taken_reads(AT_FDCWD, "/proc/self/status");
}

static int read_sibling(int dir) {
    return taken_reads(dir, "../sibling/secret");
}

/* Is there anything else in the root directory? Its own directories are called 0, 1 and so on. */
static int list_root(int dir) {
    char entries[4096];
    (void)dir;
    int fd = taken_open(AT_FDCWD, "/", O_RDONLY | O_DIRECTORY);
    long n = fd < 0 ? 0 : syscall(SYS_getdents64, fd, entries, sizeof(entries));
    for (long at = 0; at < n; at += *(uint16_t *)(entries + at + 16)) {
        const char *name = entries + at + 19;
        if (name[0] != '.' && (name[0] < '0' || name[0] > '9'))
            return 1;
    }
    return 0;
}

static int write_root(int dir) {
    (void)dir;
    return mkdirat(AT_FDCWD, "/made", 0777) == 0 || errno == EEXIST;
}

static int write_file(int dir) {
    int fd = taken_open(dir, "made", O_RDWR | O_CREAT);
    return fd >= 0 && pwrite(fd, "x", 1, 0) == 1;
}

static int open_device(int dir) {
    char bytes[4];
    int fd = taken_open(dir, "zero", O_RDONLY);
    return fd >= 0 && pread(fd, bytes, sizeof(bytes), 0) == 4;
}

static int make_socket(int dir) {
    (void)dir;
    return socket(AF_UNIX, SOCK_STREAM, 0) >= 0;
}

static int send_signal(int dir) {
    (void)dir;
    return kill(getppid(), 0) == 0;
}

static int make_process(int dir) {
    (void)dir;
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0)
        _exit(0);
    return pid > 0;
}

static int run_program(int dir) {
    char *const args[] = {(char *)"true", NULL};
    (void)dir;
    execve("/bin/true", args, args + 1);
    return 0;
}

static int run_native(int dir) {
    char *const args[] = {(char *)"native", (char *)"tool", (char *)"sha256", (char *)"/native",
                          NULL};
    (void)dir;
    execve("/native", args, args + 4);
    return 0;
}

static int open_plainly(int dir) {
    return syscall(SYS_openat, dir, ".", O_RDONLY, 0) >= 0;
}

static int change_mode(int dir) {
    return syscall(SYS_fchmodat, dir, "made", 04755) == 0 || errno == ENOENT;
}

static int make_device(int dir) {
    unlinkat(dir, "node", 0);
    return mknodat(dir, "node", S_IFCHR | 0666, 0x103) == 0;
}

static int use_handle(int dir) {
    struct {
        struct file_handle head;
        char bytes[MAX_HANDLE_SZ];
    } h = {.head = {.handle_bytes = MAX_HANDLE_SZ}};
    int mount;
    return name_to_handle_at(dir, ".", &h.head, &mount, 0) == 0 || errno == EOPNOTSUPP;
}

static int leave_root(int dir) {
    return syscall(SYS_fchdir, dir) == 0;
}

static int make_mount(int dir) {
    (void)dir;
    return syscall(SYS_unshare, 0) == 0;
}

static int write_elsewhere(int dir) {
    (void)dir;
    return write(STDERR_FILENO, "", 0) == 0;
}

/* Sends a request to the daemon, `claimed` bytes long; true if the daemon did not deny it. */
static int forge_ask(uint32_t kind, uint32_t claimed, const char *json) {
    const struct cell_ask_head head = {.kind = kind, .len = claimed};
    struct cell_answer_head answer;
    size_t n = strlen(json);
    return send(CELL_ASKS_FD, &head, sizeof(head), MSG_NOSIGNAL) == sizeof(head) &&
           send(CELL_ASKS_FD, json, n, MSG_NOSIGNAL) == (ssize_t)n &&
           recv(CELL_ASKS_FD, &answer, sizeof(answer), MSG_WAITALL) == sizeof(answer) &&
           answer.code != CELL_CODE_DENIED;
}

#define FORGED "{\"url\":\"http://nowhere.test/\"}"

static int ask_http(int dir) {
    (void)dir;
    return forge_ask(CELL_ASK_HTTP, sizeof(FORGED) - 1, FORGED);
}

/* The program of the machine could not import this function. */
static int ask_model(int dir) {
    (void)dir;
    return forge_ask(CELL_ASK_MODEL, 2, "{}");
}

static int ask_unknown(int dir) {
    (void)dir;
    return forge_ask(UINT32_MAX, sizeof(FORGED) - 1, FORGED);
}

static int ask_without_end(int dir) {
    (void)dir;
    return forge_ask(CELL_ASK_HTTP, UINT32_MAX, FORGED);
}

/* The second one comes while the first is answered: each has its answer, in order. */
static int ask_twice(int dir) {
    (void)dir;
    const struct cell_ask_head head = {.kind = CELL_ASK_HTTP, .len = sizeof(FORGED) - 1};
    struct cell_answer_head answer;
    char bytes[8192];
    for (int i = 0; i < 2; i++)
        if (send(CELL_ASKS_FD, &head, sizeof(head), MSG_NOSIGNAL) < 0 ||
            send(CELL_ASKS_FD, FORGED, sizeof(FORGED) - 1, MSG_NOSIGNAL) < 0)
            return 0;
    for (int i = 0; i < 2; i++)
        if (recv(CELL_ASKS_FD, &answer, sizeof(answer), MSG_WAITALL) != sizeof(answer) ||
            answer.code < 0 || answer.len > sizeof(bytes) ||
            recv(CELL_ASKS_FD, bytes, answer.len, MSG_WAITALL) != (ssize_t)answer.len)
            return 0;
    return 1;
}

static const struct {
    const char *name;
    int (*run)(int dir);
} attacks[] = {
    {"ask-http", ask_http},
    {"ask-model", ask_model},
    {"ask-unknown", ask_unknown},
    {"ask-without-end", ask_without_end},
    {"ask-twice", ask_twice},
    {"read-absolute", read_absolute},
    {"read-upwards", read_upwards},
    {"read-through-link", read_through_link},
    {"read-through-proc", read_through_proc},
    {"read-sibling", read_sibling},
    {"list-root", list_root},
    {"write-root", write_root},
    {"write-file", write_file},
    {"open-device", open_device},
    {"make-socket", make_socket},
    {"send-signal", send_signal},
    {"make-process", make_process},
    {"run-program", run_program},
    {"run-native", run_native},
    {"open-plainly", open_plainly},
    {"change-mode", change_mode},
    {"make-device", make_device},
    {"use-handle", use_handle},
    {"leave-root", leave_root},
    {"make-mount", make_mount},
    {"write-elsewhere", write_elsewhere},
};

static int attack(struct link *l, const void *arg) {
    const struct target *t = arg;
    for (size_t i = 0; i < sizeof(attacks) / sizeof(*attacks); i++)
        if (strcmp(attacks[i].name, t->attack) == 0)
            return attacks[i].run(l ? l->dirs[0] : t->dirs[0]) ? 0 : 1;
    return 2;
}

/* Says that it used more fuel than there is. */
static void claim_fuel(void) {
    uint64_t *meter = mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, CELL_METER_FD, 0);
    if (meter != MAP_FAILED)
        *meter = UINT64_MAX;
}

static int taken_code(int code, const struct err *err) {
    if (code >= 0)
        return code;
    fprintf(stderr, "%s\n", err->text);
    return strstr(err->text, "signal 31") ? 3 : 4;
}

static int taken_command(int argc, char **argv) {
    struct jail j = {.out_fd = 1,
                     .err_fd = 2,
                     .dirs = {{"/", false}},
                     .n_dirs = 1,
                     .is_in_machine = true,
                     .state = BUF(10),
                     .log = BUF(10)};
    struct target t = {.attack = argc > 7 ? argv[6] : "", .dirs = {open("/", O_RDONLY)}};
    struct err err = {0};
    claim_fuel();
    if (argc < 8 || (strcmp(argv[7], "free") != 0 && jail_give_up_rights() < 0))
        return 4;
    if (strcmp(argv[7], "jailed") != 0)
        return attack(NULL, &t);
    return taken_code(jail_run(&j, attack, &t, &err), &err);
}

int main(int argc, char **argv) {
    if (argc > 0 && strcmp(argv[0], CELL_ALLOWED_NAME) == 0)
        return taken_command(argc, argv);
    struct jail j = {.out_fd = 1, .err_fd = 2, .state = BUF(10), .log = BUF(10)};
    struct target t = {.attack = argc > 2 ? argv[2] : ""};
    struct err err = {0};
    bool outside = argc > 1 && strcmp(argv[1], "outside") == 0;
    for (int i = 3; i < argc && i - 3 < JAIL_DIRS_MAX && strlen(argv[i]) > 3; i++) {
        j.dirs[j.n_dirs++] = (struct jail_dir){argv[i] + 3, argv[i][1] == 'o'};
        t.dirs[i - 3] = open(argv[i] + 3, O_RDONLY | O_DIRECTORY);
    }
    if (outside)
        return attack(NULL, &t);
    if (strcmp(argv[1], "none") == 0)
        j.n_dirs = 0;
    else
        j.spawner = argv[1];
    return taken_code(jail_run(&j, attack, &t, &err), &err);
}
