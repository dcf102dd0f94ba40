#include "cell/jail.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/banned.h"
#include "base/cell_command.h"
#include "base/defer.h"
#include "base/native.h"
#include "base/siphash.h"
#include "cell/jail_root.h"
#include "cell/pause.h"

enum { LINK_FD = 3 };

/* --- frames --- */

enum frame_kind {
    FRAME_OUT = 1,
    FRAME_TEXT,
    FRAME_ERR,
    FRAME_STATE,
    FRAME_LOG,
    FRAME_CLOCK,
    FRAME_RANDOM,
    FRAME_MONOTONIC,
    FRAME_READ,
    FRAME_WAIT,
    FRAME_ASK,
    FRAME_STAY,
    FRAME_EXIT,
    FRAME_END
};

struct frame {
    uint32_t kind, len;
};

enum { ANSWER_MAX = 1 << 20, FRAME_MAX = ANSWER_MAX + sizeof(struct cell_ask_head) };

static int write_all(int fd, const void *bytes, size_t len) {
    const char *p = bytes;
    while (len > 0) {
        ssize_t n = write(fd, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

static int read_all(int fd, void *bytes, size_t len) {
    char *p = bytes;
    while (len > 0) {
        ssize_t n = read(fd, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

/* --- child --- */

/*
 * Sends a frame (message) to the parent. Exits if the parent is gone, because then nobody reads it.
 */
static void send_frame(struct link *l, enum frame_kind kind, const void *bytes, size_t len) {
    struct frame f = {.kind = kind, .len = (uint32_t)len};
    if (write_all(l->fd, &f, sizeof(f)) < 0 || write_all(l->fd, bytes, len) < 0)
        _exit(1);
}

static void send_pieces(struct link *l, enum frame_kind kind, const void *bytes, size_t len) {
    for (size_t at = 0; at < len; at += FRAME_MAX)
        send_frame(l, kind, (const char *)bytes + at, len - at < FRAME_MAX ? len - at : FRAME_MAX);
}

void link_out(struct link *l, const void *bytes, size_t len) {
    send_pieces(l, FRAME_OUT, bytes, len);
}

void link_text(struct link *l, const void *bytes, size_t len) {
    send_pieces(l, FRAME_TEXT, bytes, len);
}

void link_err(struct link *l, const void *bytes, size_t len) {
    send_pieces(l, FRAME_ERR, bytes, len);
}

void link_state(struct link *l, const void *bytes, size_t len) {
    send_pieces(l, FRAME_STATE, bytes, len);
}

void link_log(struct link *l, const void *bytes, size_t len) {
    send_pieces(l, FRAME_LOG, bytes, len);
}

static void jail_ask(struct link *l, enum frame_kind kind, uint32_t size, void *answer) {
    send_frame(l, kind, &size, sizeof(size));
    if (read_all(l->fd, answer, size) < 0)
        _exit(1);
}

uint64_t link_clock_ns(struct link *l) {
    uint64_t now;
    jail_ask(l, FRAME_CLOCK, sizeof(now), &now);
    return now;
}

void link_random(struct link *l, void *bytes, size_t len) {
    jail_ask(l, FRAME_RANDOM, (uint32_t)len, bytes);
}

uint64_t link_monotonic_ns(struct link *l) {
    uint64_t now;
    jail_ask(l, FRAME_MONOTONIC, sizeof(now), &now);
    return now;
}

/* The answer has a number in front: of bytes, or -errno. */
ssize_t link_read(struct link *l, void *bytes, size_t len) {
    uint32_t size = len < FRAME_MAX ? (uint32_t)len : FRAME_MAX;
    int32_t n;
    send_frame(l, FRAME_READ, &size, sizeof(size));
    if (read_all(l->fd, &n, sizeof(n)) < 0 || (n > 0 && (uint32_t)n > size) ||
        (n > 0 && read_all(l->fd, bytes, (size_t)n) < 0))
        _exit(1);
    return n;
}

struct wait_question {
    uint64_t timeout_ns;
    uint32_t for_input, until_pause;
};

static bool link_ask_wait(struct link *l, const struct wait_question *q) {
    uint32_t answer;
    send_frame(l, FRAME_WAIT, q, sizeof(*q));
    if (read_all(l->fd, &answer, sizeof(answer)) < 0)
        _exit(1);
    return answer;
}

bool link_wait(struct link *l, bool for_input, uint64_t timeout_ns) {
    return link_ask_wait(l,
                         &(struct wait_question){.timeout_ns = timeout_ns, .for_input = for_input});
}

bool link_wait_input(struct link *l) {
    return link_ask_wait(l, &(struct wait_question){.for_input = true, .until_pause = true});
}

void link_stay(struct link *l, uint32_t why) {
    uint32_t answer;
    send_frame(l, FRAME_STAY, &why, sizeof(why));
    if (read_all(l->fd, &answer, sizeof(answer)) < 0)
        _exit(1);
}

/* The frame has the head and the bytes that go to the daemon. */
int32_t link_ask(struct link *l, uint32_t kind, const void *bytes, size_t len, struct buf *ret) {
    const struct cell_ask_head ask = {.kind = kind, .len = (uint32_t)len};
    struct frame f = {.kind = FRAME_ASK, .len = (uint32_t)(sizeof(ask) + len)};
    struct cell_answer_head head;
    char chunk[16384];
    if (write_all(l->fd, &f, sizeof(f)) < 0 || write_all(l->fd, &ask, sizeof(ask)) < 0 ||
        write_all(l->fd, bytes, len) < 0 || read_all(l->fd, &head, sizeof(head)) < 0)
        _exit(1);
    for (size_t left = head.len; left;) {
        size_t n = left < sizeof(chunk) ? left : sizeof(chunk);
        if (read_all(l->fd, chunk, n) < 0 || !buf_add(ret, chunk, n))
            _exit(1);
        left -= n;
    }
    return head.code;
}

/* --- the seccomp filter --- */

#define ARG_LOW(n) (offsetof(struct seccomp_data, args) + 8 * (n))

enum arg_rule { ANY_ARGS, LINK_ONLY, NO_EXEC, SEALS_ONLY, SEALS_OR_FLAGS };

struct allowed {
    int number;
    enum arg_rule rule;
};

/*
 * All allowed system calls. The engine keeps memory pages in memory files (memfd). Other commands
 * of fcntl() could send signals.
 */
static const struct allowed allowed[] = {
    {SYS_read, LINK_ONLY},      {SYS_write, LINK_ONLY},  {SYS_mmap, NO_EXEC},
    {SYS_mprotect, NO_EXEC},    {SYS_munmap, ANY_ARGS},  {SYS_mremap, ANY_ARGS},
    {SYS_brk, ANY_ARGS},        {SYS_madvise, ANY_ARGS}, {SYS_memfd_create, ANY_ARGS},
    {SYS_ftruncate, ANY_ARGS},  {SYS_fcntl, SEALS_ONLY}, {SYS_close, ANY_ARGS},
    {SYS_exit_group, ANY_ARGS}, {SYS_exit, ANY_ARGS},    {SYS_rt_sigreturn, ANY_ARGS},
    {SYS_lseek, ANY_ARGS},
};

/*
 * For a child with directories. Its mount namespace decides which files exist and which of them can
 * be written; read() and write() stay with the link. F_SETFL sets O_APPEND.
 */
static const struct allowed allowed_files[] = {
    {SYS_fcntl, SEALS_OR_FLAGS}, {SYS_openat2, ANY_ARGS},    {SYS_pread64, ANY_ARGS},
    {SYS_pwrite64, ANY_ARGS},    {SYS_newfstatat, ANY_ARGS}, {SYS_getdents64, ANY_ARGS},
    {SYS_fallocate, ANY_ARGS},   {SYS_fsync, ANY_ARGS},      {SYS_fdatasync, ANY_ARGS},
    {SYS_mkdirat, ANY_ARGS},     {SYS_unlinkat, ANY_ARGS},   {SYS_renameat2, ANY_ARGS},
    {SYS_linkat, ANY_ARGS},      {SYS_symlinkat, ANY_ARGS},  {SYS_readlinkat, ANY_ARGS},
    {SYS_utimensat, ANY_ARGS},
};

/* For a child with sockets: it accepts connections, and cannot make sockets. */
static const struct allowed allowed_sockets[] = {
    {SYS_accept4, ANY_ARGS},  {SYS_recvfrom, ANY_ARGS}, {SYS_sendto, ANY_ARGS},
    {SYS_shutdown, ANY_ARGS}, {SYS_ppoll, ANY_ARGS},
};

#define ROWS(table) (sizeof(table) / sizeof(*(table)))
enum {
    RULE_LENGTH = 6,
    RULES_MAX = ROWS(allowed) + ROWS(allowed_files) + ROWS(allowed_sockets),
};

/*
 * Writes the filter instructions for one system call of `allowed`: go to the next one, or check the
 * argument.
 */
static void put_rule(struct sock_filter *f, int number, enum arg_rule rule) {
    const struct sock_filter accept = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    const struct sock_filter refuse = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    f[0] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number, 0,
                                        RULE_LENGTH - 1);
    f[5] = refuse;
    if (rule == ANY_ARGS) {
        f[1] = f[2] = f[3] = f[4] = accept;
        return;
    }
    /* Both checks go to f[4] or f[5]; the first one may also go on to the second. */
    static const struct {
        unsigned arg;
        struct sock_filter check, other;
    } checks[] = {
        [LINK_ONLY] = {0, BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, LINK_FD, 1, 2)},
        [NO_EXEC] = {2, BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 2, 1)},
        [SEALS_ONLY] = {1, BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, F_ADD_SEALS, 1, 2)},
        [SEALS_OR_FLAGS] = {1, BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, F_ADD_SEALS, 1, 0),
                            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, F_SETFL, 0, 1)},
    };
    f[1] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARG_LOW(checks[rule].arg));
    f[2] = checks[rule].check;
    f[3] = rule == SEALS_OR_FLAGS ? checks[rule].other : refuse;
    f[4] = accept;
}

/* Adds the rules of a table. The first rule of a system call is the one that counts. */
static struct sock_filter *put_rules(struct sock_filter *f, const struct allowed *rows, size_t n) {
    for (size_t i = 0; i < n; i++, f += RULE_LENGTH)
        put_rule(f, rows[i].number, rows[i].rule);
    return f;
}

static int install_filter(const struct jail *j) {
    struct sock_filter code[4 + RULES_MAX * RULE_LENGTH + 1] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NATIVE_ARCH, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    };
    struct sock_filter *end = code + 4;
    if (j->n_dirs)
        end = put_rules(end, allowed_files, ROWS(allowed_files));
    if (j->n_sockets)
        end = put_rules(end, allowed_sockets, ROWS(allowed_sockets));
    end = put_rules(end, allowed, ROWS(allowed));
    *end++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    struct sock_fprog program = {.len = (unsigned short)(end - code), .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -1;
    return INSTRUMENTED ? 0 : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

int jail_give_up_rights(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct none[2] = {{0}};
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_execve, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_execveat, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {.len = sizeof(code) / sizeof(*code), .filter = code};
    if (syscall(SYS_capset, &header, none) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -1;
    prctl(PR_SET_DUMPABLE, 0);
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

static int limit(int resource, uint64_t most) {
    const struct rlimit r = {.rlim_cur = most, .rlim_max = most + 1};
    return setrlimit(resource, &r);
}

/* Returns the size of the address space of this process in bytes. */
static uint64_t address_space(void) {
    char text[128] = "";
    int fd DEFER_CLOSE = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    return n > 0 ? strtoull(text, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

/*
 * Sets limits in the kernel, in case a limit of the engine fails. The kernel counts memory files
 * only as address space, so the address space is limited.
 */
static int enter_limits(const struct jail *j) {
    uint64_t used = j->memory_bytes ? address_space() : 0; /* /proc of a machine is its own file */
    if (j->memory_bytes && !INSTRUMENTED && (!used || limit(RLIMIT_AS, used + j->memory_bytes) < 0))
        return -1;
    return j->cpu_seconds ? limit(RLIMIT_CPU, j->cpu_seconds) : 0;
}

enum { KEPT_MAX = 1 + JAIL_DIRS_MAX + JAIL_SOCKETS_MAX, KEPT_ABOVE = 64 };

/*
 * Gives the link, then the directories, then the sockets the numbers from LINK_FD on, and closes
 * all others. They are moved out of the way first, because their old numbers may be among the new.
 */
static int keep_descriptors(const struct jail *j, int fd, struct link *ret) {
    int kept[KEPT_MAX], n = 0;
    kept[n++] = fcntl(fd, F_DUPFD, KEPT_ABOVE);
    for (size_t i = 0; i < j->n_dirs; i++) {
        char number[8];
        snprintf(number, sizeof(number), "/%zu", i);
        const char *path = j->is_in_machine ? j->dirs[i].path : number;
        int dir DEFER_CLOSE = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        ret->dirs[i] = LINK_FD + n;
        kept[n++] = dir < 0 ? -1 : fcntl(dir, F_DUPFD, KEPT_ABOVE);
    }
    for (size_t i = 0; i < j->n_sockets; i++) {
        ret->sockets[i] = LINK_FD + n;
        kept[n++] = fcntl(j->sockets[i], F_DUPFD, KEPT_ABOVE);
    }
    for (int i = 0; i < n; i++)
        if (kept[i] < 0 || dup2(kept[i], LINK_FD + i) < 0)
            return -1;
    if (INSTRUMENTED)
        return 0;
    for (int i = 0; i < LINK_FD; i++)
        close(i);
    return (int)syscall(SYS_close_range, LINK_FD + n, ~0u, 0);
}

/* Closes all descriptors but those granted, and allows only the system calls above. */
static int enter_jail(const struct jail *j, const struct jail_root *root, int fd,
                      struct link *ret) {
    if (enter_limits(j) < 0)
        return -1;
    if (j->n_dirs && !j->is_in_machine && jail_root_enter(root) < 0)
        return -1;
    if (keep_descriptors(j, fd, ret) < 0)
        return -1;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != j->parent)
        return -1; /* the parent ended before the line above */
    prctl(PR_SET_DUMPABLE, 0);
    siphash_own_key(); /* the engine needs this random key, and the jail has no random bytes */
    return install_filter(j);
}

bool jail_is_tight(void) {
    return !INSTRUMENTED;
}

enum { CANNOT_CONFINE = 111 };

static void run_child(const struct jail *j, const struct jail_root *root, int fd,
                      int (*body)(struct link *, const void *), const void *arg) {
    struct link l = {.fd = LINK_FD, .pause = j->pauser ? j->pauser->wanted : NULL};
    if (enter_jail(j, root, fd, &l) < 0)
        _exit(CANNOT_CONFINE);
    int code = body(&l, arg);
    send_frame(&l, FRAME_EXIT, &code, sizeof(code));
    _exit(0);
}

/* --- parent --- */

/* Data that the parent received from a child; the amount of text is limited. */
struct received {
    struct jail *jail;
    int fd;
    size_t text;
    int code;
    bool ended;
    bool too_much;
};

/* Replaces control characters, so that a program cannot control the user's terminal. */
static void clean(char *bytes, size_t len) {
    for (size_t i = 0; i < len; i++)
        if (((unsigned char)bytes[i] < 0x20 && bytes[i] != '\n' && bytes[i] != '\t') ||
            bytes[i] == 0x7f)
            bytes[i] = '?';
}

static int on_text(struct received *r, enum frame_kind kind, char *bytes, size_t len) {
    r->text += len;
    r->too_much = r->text > JAIL_MAX_TEXT && !r->jail->is_in_machine;
    if (r->too_much)
        return -1;
    if (kind != FRAME_OUT)
        clean(bytes, len);
    /* Ignore a failed write: a reader that is gone is not the child's fault. */
    int written = write_all(kind == FRAME_ERR ? r->jail->err_fd : r->jail->out_fd, bytes, len);
    (void)written;
    return 0;
}

/* Reads input that was taken out of its pipe for a pause, or the pipe. */
static ssize_t read_input(const struct received *r, char *bytes, size_t size) {
    struct pauser *p = r->jail->pauser;
    ssize_t n = 0;
    if (p && p->unread.len) {
        n = (ssize_t)(size < p->unread.len ? size : p->unread.len);
        memcpy(bytes, p->unread.data, (size_t)n);
        buf_drop(&p->unread, (size_t)n);
        return n;
    }
    do
        n = r->jail->has_input && !(p && p->input_ended) ? read(r->jail->in_fd, bytes, size) : 0;
    while (n < 0 && errno == EINTR);
    return n;
}

static int answer_read(struct received *r, uint32_t size) {
    char *bytes DEFER_FREE = size <= FRAME_MAX ? malloc((size_t)size + 1) : NULL;
    if (!bytes)
        return -1;
    ssize_t n = read_input(r, bytes, size);
    int32_t count = n < 0 ? -errno : (int32_t)n;
    if (write_all(r->fd, &count, sizeof(count)) < 0)
        return -1;
    return n > 0 ? write_all(r->fd, bytes, (size_t)n) : 0;
}

static int input_of(const struct received *r) {
    return r->jail->has_input ? r->jail->in_fd : -1;
}

/* Waits until there is input, or a pause is wanted, or the child is gone. */
static bool wait_input(struct received *r) {
    struct pauser *p = r->jail->pauser;
    struct pollfd fds[3] = {{.fd = r->fd, .events = 0},
                            {.fd = input_of(r), .events = POLLIN},
                            {.fd = p ? p->control : -1, .events = POLLIN}};
    for (;;) {
        if (!r->jail->has_input || (p && (p->unread.len || p->input_ended)))
            return true;
        if (p && p->wanted && atomic_load(p->wanted))
            return false;
        if (poll(fds, 3, -1) <= 0)
            continue;
        if (fds[0].revents || fds[1].revents)
            return true;
        pauser_hear(p, input_of(r));
        fds[2].fd = p->control;
    }
}

/* Ends early if the child is gone: its end of the link is polled too. */
static int answer_wait(struct received *r, const char *bytes, size_t len) {
    struct wait_question q;
    if (len != sizeof(q))
        return -1;
    memcpy(&q, bytes, sizeof(q));
    if (q.until_pause) {
        uint32_t has_input = wait_input(r);
        return write_all(r->fd, &has_input, sizeof(has_input));
    }
    const struct timespec time = {.tv_sec = (time_t)(q.timeout_ns / 1000000000),
                                  .tv_nsec = (long)(q.timeout_ns % 1000000000)};
    struct pollfd fds[2] = {{.fd = r->fd, .events = 0},
                            {.fd = r->jail->has_input ? r->jail->in_fd : -1, .events = POLLIN}};
    uint32_t answer = q.for_input && !r->jail->has_input;
    if (!answer)
        answer = ppoll(fds, q.for_input ? 2 : 1, &time, NULL) > 0 && fds[1].revents && q.for_input;
    return write_all(r->fd, &answer, sizeof(answer));
}

/* A daemon that is gone must not end this process with SIGPIPE. */
static bool send_all(int fd, const char *bytes, size_t len) {
    for (size_t at = 0; at < len;) {
        ssize_t n = send(fd, bytes + at, len - at, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR)
            return false;
        at += n > 0 ? (size_t)n : 0;
    }
    return true;
}

static int say_unreachable(struct received *r) {
    static const char why[] = "the daemon cannot be reached: it was restarted, or there is none";
    const struct cell_answer_head head = {CELL_CODE_FAILED, sizeof(why) - 1};
    return write_all(r->fd, &head, sizeof(head)) < 0 ? -1 : write_all(r->fd, why, sizeof(why) - 1);
}

/* Passes a question to the daemon, and its answer to the child. */
static int answer_ask(struct received *r, const char *bytes, size_t len) {
    struct cell_ask_head ask;
    struct cell_answer_head head;
    int fd = r->jail->asks_fd;
    if (len < sizeof(ask))
        return -1;
    memcpy(&ask, bytes, sizeof(ask));
    if (ask.len != len - sizeof(ask))
        return -1;
    if (fd <= 0 || !send_all(fd, bytes, len) || read_all(fd, &head, sizeof(head)) < 0 ||
        head.len > ANSWER_MAX) {
        r->jail->asks_fd = 0; /* after a failure the two sides no longer agree */
        return say_unreachable(r);
    }
    char *answer DEFER_FREE = malloc((size_t)head.len + 1);
    if (!answer || read_all(fd, answer, head.len) < 0) {
        r->jail->asks_fd = 0;
        return say_unreachable(r);
    }
    return write_all(r->fd, &head, sizeof(head)) < 0 ? -1 : write_all(r->fd, answer, head.len);
}

static int on_question(struct received *r, enum frame_kind kind, const char *bytes, size_t len) {
    uint8_t answer[JAIL_MAX_RANDOM];
    uint32_t size;
    if (len != sizeof(size))
        return -1;
    memcpy(&size, bytes, sizeof(size));
    if (kind == FRAME_READ)
        return answer_read(r, size);
    if (kind == FRAME_CLOCK || kind == FRAME_MONOTONIC) {
        struct timespec now;
        clock_gettime(kind == FRAME_CLOCK ? CLOCK_REALTIME : CLOCK_MONOTONIC, &now);
        uint64_t ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
        return size == sizeof(ns) ? write_all(r->fd, &ns, sizeof(ns)) : -1;
    }
    if (size > sizeof(answer))
        return -1;
    for (size_t at = 0; at < size; at += 256)
        if (getrandom(answer + at, size - at < 256 ? size - at : 256, 0) < 0)
            return -1;
    return write_all(r->fd, answer, size);
}

static int on_stay(struct received *r, const char *bytes, size_t len) {
    uint32_t why;
    if (len != sizeof(why) || !r->jail->pauser)
        return -1;
    memcpy(&why, bytes, sizeof(why));
    pauser_stay(r->jail->pauser, why, input_of(r));
    return write_all(r->fd, &why, sizeof(why));
}

/* Handles what the guest says, until the child has sent something. */
static void await_frame(struct received *r) {
    struct pauser *p = r->jail->pauser;
    while (p && p->control >= 0) {
        struct pollfd fds[2] = {{.fd = r->fd, .events = POLLIN},
                                {.fd = p->control, .events = POLLIN}};
        if (poll(fds, 2, -1) <= 0)
            continue;
        if (fds[1].revents)
            pauser_hear(p, input_of(r));
        if (fds[0].revents)
            return;
    }
}

static int on_frame(struct received *r, const struct frame *f, char *bytes) {
    switch (f->kind) {
    case FRAME_OUT:
    case FRAME_TEXT:
    case FRAME_ERR:
        return on_text(r, f->kind, bytes, f->len);
    case FRAME_STATE:
        if (r->jail->take_state)
            return r->jail->take_state(r->jail->take_ctx, bytes, f->len);
        return buf_add(&r->jail->state, bytes, f->len) ? 0 : -1;
    case FRAME_STAY:
        return on_stay(r, bytes, f->len);
    case FRAME_LOG:
        return buf_add(&r->jail->log, bytes, f->len) ? 0 : -1;
    case FRAME_WAIT:
        return answer_wait(r, bytes, f->len);
    case FRAME_ASK:
        return answer_ask(r, bytes, f->len);
    case FRAME_CLOCK:
    case FRAME_MONOTONIC:
    case FRAME_READ:
    case FRAME_RANDOM:
        return on_question(r, f->kind, bytes, f->len);
    case FRAME_EXIT:
        if (f->len != sizeof(r->code))
            return -1;
        memcpy(&r->code, bytes, sizeof(r->code));
        r->ended = r->code >= 0 && r->code < 256;
        return r->ended ? 0 : -1;
    default:
        return -1;
    }
}

/* Handles frames (messages) until the child has sent its exit code, or has broken the protocol. */
static void receive(struct received *r) {
    char *bytes DEFER_FREE = calloc(1, FRAME_MAX);
    struct frame f;
    while (bytes && !r->ended) {
        await_frame(r);
        if (read_all(r->fd, &f, sizeof(f)) < 0)
            return;
        if (f.kind >= FRAME_END || f.len > FRAME_MAX || read_all(r->fd, bytes, f.len) < 0)
            return;
        if (on_frame(r, &f, bytes) < 0)
            return;
    }
}

static int died(const struct received *r, pid_t pid, int status, struct err *err) {
    if (r->too_much)
        return err_set(err, ERR_LIMIT, "the program wrote more than %d MiB of output",
                       JAIL_MAX_TEXT >> 20);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU)
        return err_set(err, ERR_LIMIT, "the worker process used more than %llu s of processor time",
                       (unsigned long long)r->jail->cpu_seconds);
    if (WIFSIGNALED(status))
        return err_set(err, ERR_INTERNAL,
                       "the worker process (pid %d) was killed by signal %d (%s)", (int)pid,
                       WTERMSIG(status), strsignal(WTERMSIG(status)));
    if (WEXITSTATUS(status) == CANNOT_CONFINE)
        return err_set(err, ERR_UNSUPPORTED,
                       "this host cannot confine a worker process with limits and seccomp");
    return err_set(err, ERR_INTERNAL, "the worker process (pid %d) exited without an answer",
                   (int)pid);
}

int jail_run(struct jail *j, int (*body)(struct link *, const void *), const void *arg,
             struct err *err) {
    int ends[2];
    struct jail_root root DEFER(jail_root_close) = JAIL_ROOT_NONE;
    if (j->n_dirs && !j->is_in_machine && jail_root_open(j, &root, err) < 0)
        return -1;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return err_sys(err, "cannot create a socket pair for the worker process");
    int ours DEFER_CLOSE = ends[0], theirs DEFER_CLOSE = ends[1];
    j->parent = getpid();
    pid_t pid = fork();
    if (pid < 0)
        return err_sys(err, "cannot start the worker process");
    if (pid == 0)
        run_child(j, &root, theirs, body, arg);
    close(TAKE_FD(theirs));
    struct received r = {.jail = j, .fd = ours};
    receive(&r);
    /* A child that broke the protocol may still be running, so kill it. */
    if (!r.ended)
        kill(pid, SIGKILL);
    int status;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return r.ended ? r.code : died(&r, pid, status, err);
}
