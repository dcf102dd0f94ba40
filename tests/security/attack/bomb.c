#include "bomb.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pty.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { BLOCK = 1 << 20 };

static char block[BLOCK];

/* One more of the resource: 0, or -1 with errno. */

static int one_process(void) {
    pid_t pid = fork();
    if (pid == 0)
        for (;;)
            pause();
    return pid < 0 ? -1 : 0;
}

static int one_zombie(void) {
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    return pid < 0 ? -1 : 0;
}

/* A daemon that nobody is the parent of, and that leaves its session too. */
static int one_daemon(void) {
    pid_t pid = fork();
    if (pid == 0) {
        setsid();
        pid = fork();
        if (pid == 0)
            for (;;)
                pause();
        _exit(pid < 0 ? errno : 0);
    }
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) < 0)
        return -1;
    errno = WEXITSTATUS(status);
    return errno ? -1 : 0;
}

static int one_memory(void) {
    char *p = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return -1;
    memset(p, 1, BLOCK);
    return 0;
}

static int write_block(int fd) {
    size_t done = 0;
    for (ssize_t n; done < BLOCK && (n = write(fd, block, BLOCK - done)) > 0;)
        done += (size_t)n;
    return done == BLOCK ? 0 : -1;
}

static int one_file_block(void) {
    static int fd = -1;
    if (fd < 0)
        fd = open("/tmp/bomb", O_CREAT | O_WRONLY | O_APPEND, 0600);
    return fd < 0 ? -1 : write_block(fd);
}

static int one_shm_block(void) {
    static int fd = -1;
    if (fd < 0)
        fd = open("/dev/shm/bomb", O_CREAT | O_WRONLY | O_APPEND, 0600);
    return fd < 0 ? -1 : write_block(fd);
}

static int one_memfd_block(void) {
    static int fd = -1;
    if (fd < 0)
        fd = memfd_create("bomb", 0);
    return fd < 0 ? -1 : write_block(fd);
}

static int one_inode(void) {
    static long n;
    char path[64];
    mkdir("/tmp/bombs", 0700);
    snprintf(path, sizeof(path), "/tmp/bombs/%ld", n++);
    return mknod(path, S_IFREG | 0600, 0);
}

static int one_depth(void) {
    static bool began;
    if (!began && (chdir("/tmp") < 0))
        return -1;
    began = true;
    return mkdir("d", 0700) < 0 || chdir("d") < 0 ? -1 : 0;
}

static int one_xattr(void) {
    static long n;
    char path[64];
    snprintf(path, sizeof(path), "/tmp/xattr%ld", n++);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    return fd < 0 || fsetxattr(fd, "user.bomb", block, 60000, 0) < 0 || close(fd) < 0 ? -1 : 0;
}

/* Full pipes: their pages are kernel memory. */
static int one_pipe(void) {
    int ends[2];
    if (pipe2(ends, O_NONBLOCK) < 0)
        return -1;
    while (write(ends[1], block, 65536) > 0)
        ;
    return 0;
}

static int one_socket(void) {
    int ends[2], size = 4 << 20;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) < 0)
        return -1;
    setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    while (send(ends[0], block, 65536, MSG_NOSIGNAL) > 0)
        ;
    return 0;
}

/* Through the loopback: what is on its way is kernel memory, counted apart on cgroup v1. */
static int one_tcp(void) {
    static int listener = -1;
    static struct sockaddr_in where = {.sin_family = AF_INET};
    socklen_t size = sizeof(where);
    if (listener < 0) {
        listener = socket(AF_INET, SOCK_STREAM, 0);
        where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (bind(listener, (struct sockaddr *)&where, size) < 0 || listen(listener, 8) < 0 ||
            getsockname(listener, (struct sockaddr *)&where, &size) < 0)
            return -1;
    }
    int from = socket(AF_INET, SOCK_STREAM, 0);
    if (from < 0 || connect(from, (struct sockaddr *)&where, size) < 0 ||
        accept(listener, NULL, NULL) < 0)
        return -1;
    while (send(from, block, 65536, MSG_NOSIGNAL | MSG_DONTWAIT) > 0)
        ;
    return 0;
}

static int one_inotify(void) {
    return inotify_init1(0) < 0 ? -1 : 0;
}

static int one_terminal(void) {
    int master, slave;
    return openpty(&master, &slave, NULL, NULL, NULL) < 0 || close(slave) < 0 ? -1 : 0;
}

static int one_aio(void) {
    unsigned long context = 0;
    return syscall(SYS_io_setup, 1024, &context) < 0 ? -1 : 0;
}

static int one_descriptor(void) {
    return dup(0) < 0 ? -1 : 0;
}

static int one_file(void) {
    return open("/dev/null", O_RDONLY) < 0 ? -1 : 0;
}

static int one_shared_segment(void) {
    int id = shmget(IPC_PRIVATE, BLOCK, IPC_CREAT | 0600);
    void *p = id < 0 ? (void *)-1 : shmat(id, NULL, 0);
    if (p == (void *)-1)
        return -1;
    memset(p, 1, BLOCK);
    return 0;
}

static int one_message_queue(void) {
    int id = msgget(IPC_PRIVATE, IPC_CREAT | 0600);
    struct {
        long type;
        char text[4096];
    } m = {.type = 1};
    while (id >= 0 && msgsnd(id, &m, sizeof(m.text), IPC_NOWAIT) == 0)
        ;
    return id < 0 ? -1 : 0;
}

/* Queued signals are counted for a user on the whole host, unless its namespace has an owner of its
 * own. */
static int one_signal(void) {
    static bool began;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    if (!began)
        sigprocmask(SIG_BLOCK, &set, NULL);
    began = true;
    return sigqueue(getpid(), SIGRTMIN, (union sigval){0});
}

/* A page of page table for each 2 MiB touched once. */
static int one_page_table(void) {
    char *p = mmap(NULL, 512ul << 21, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return -1;
    madvise(p, 512ul << 21, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < 512; i++)
        (void)*(volatile char *)(p + (i << 21));
    return 0;
}

static int one_output_block(void) {
    return write_block(STDOUT_FILENO);
}

static const struct {
    const char *name;
    int (*one)(void);
} bombs[] = {
    {"fork", one_process},
    {"zombie", one_zombie},
    {"daemon", one_daemon},
    {"memory", one_memory},
    {"disk", one_file_block},
    {"shm", one_shm_block},
    {"memfd", one_memfd_block},
    {"inode", one_inode},
    {"depth", one_depth},
    {"xattr", one_xattr},
    {"pipe", one_pipe},
    {"socket", one_socket},
    {"tcp", one_tcp},
    {"inotify", one_inotify},
    {"terminal", one_terminal},
    {"aio", one_aio},
    {"descriptor", one_descriptor},
    {"file", one_file},
    {"segment", one_shared_segment},
    {"queue", one_message_queue},
    {"signal", one_signal},
    {"pagetable", one_page_table},
    {"output", one_output_block},
};

/* What a file with power gave this process: 42 when it is more than `user` has. */
static int power(void) {
    char text[4096] = "";
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
        return 1;
    const char *caps = strstr(text, "CapEff:");
    return geteuid() == 0 || (caps && strtoull(caps + 7, NULL, 16)) ? 42 : 0;
}

/* Processes that fork as fast as they die: a list that is killed is never the whole list. */
static int churn(long seconds) {
    for (int i = 0; i < 8; i++)
        if (fork() == 0)
            for (;;)
                if (fork() > 0)
                    _exit(0);
    sleep((unsigned)seconds);
    return 0;
}

static int spin(long seconds) {
    for (int i = 0; i < 8; i++)
        if (fork() == 0)
            for (;;)
                ;
    sleep((unsigned)seconds);
    signal(SIGTERM, SIG_IGN);
    kill(0, SIGTERM);
    return 0;
}

static void name_of(pid_t pid, char name[32]) {
    char path[32];
    snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, name, 31);
    name[n > 0 ? n : 0] = '\0';
    close(fd);
}

/*
 * Stops whatever process appears, before it can do anything. Pids are given out in order: those
 * that come next are tried without a pause. Says "hit" for each that still had the guest's name.
 */
static void __attribute__((noreturn)) stop_all(void) {
    enum { AHEAD = 8, HANDS = 4 };
    pid_t first = getpid() + HANDS, last = 0;
    char guest[32], name[32];
    name_of(1, guest);
    puts("stop");
    fflush(stdout);
    for (int i = 1; i < HANDS && fork() > 0; i++)
        ;
    for (pid_t next = first;;)
        for (pid_t pid = next; pid < next + AHEAD; pid++) {
            bool stopped = kill(pid, SIGSTOP) == 0;
            if ((stopped || errno == EPERM) && pid > next + AHEAD / 2)
                next = pid - AHEAD / 2;
            if (!stopped || pid <= last)
                continue;
            last = pid;
            name_of(pid, name);
            if (strcmp(name, guest) == 0)
                (void)!write(STDOUT_FILENO, "hit\n", 4);
        }
}

/* What became of reading its memory; NULL: it has none any more. */
static const char *try_to_read(pid_t pid) {
    static long word;
    struct iovec here = {&word, sizeof(word)}, there = {&word, sizeof(word)};
    if (process_vm_readv(pid, &here, 1, &there, 1, 0) >= 0 || errno == EFAULT)
        return "caught\n";
    return errno == EPERM ? "refused\n" : NULL;
}

/* The pid that the next process gets, unless another is faster. */
static pid_t next_pid(void) {
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    waitpid(pid, NULL, 0);
    return pid + 1;
}

/*
 * Reads the memory of every process that appears while it has the name of the process `of`: what it
 * was forked from, before its exec. Stopping it first, where allowed, gives more time. Only tries
 * during which the name surely did not change are told of: "refused" or "caught".
 */
static void __attribute__((noreturn)) hunt(pid_t of) {
    enum { AHEAD = 4, ROUNDS = 256 };
    char wanted[32], before[32], after[32];
    name_of(of, wanted);
    puts("hunt");
    fflush(stdout);
    for (unsigned round = 0, next = 0;; round++) {
        if (round % ROUNDS == 0)
            next = (unsigned)next_pid();
        for (pid_t pid = (pid_t)next; pid < (pid_t)next + AHEAD; pid++) {
            if (kill(pid, SIGSTOP) < 0 && errno != EPERM)
                continue;
            name_of(pid, before);
            const char *outcome = try_to_read(pid);
            name_of(pid, after);
            if (outcome && strcmp(before, wanted) == 0 && strcmp(after, wanted) == 0)
                (void)!write(STDOUT_FILENO, outcome, strlen(outcome));
            kill(pid, SIGCONT);
        }
    }
}

/* The control of hunt(): children that can be traced and never come to their exec. */
static void __attribute__((noreturn)) breed(void) {
    prctl(PR_SET_NAME, "breeder");
    printf("%d\n", (int)getpid());
    fflush(stdout);
    for (;;) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(usleep(20000));
        waitpid(pid, NULL, 0);
    }
}

/* Once it is refused it stays, so that what it holds is held; "go" on stdin ends it. */
int bomb(const char *name, long most) {
    if (strcmp(name, "power") == 0)
        return power();
    if (strcmp(name, "churn") == 0)
        return churn(most);
    if (strcmp(name, "stop") == 0)
        stop_all();
    if (strcmp(name, "hunt") == 0)
        hunt(most ? (pid_t)most : 1);
    if (strcmp(name, "breed") == 0)
        breed();
    if (strcmp(name, "spin") == 0)
        return spin(most);
    for (size_t i = 0; i < sizeof(bombs) / sizeof(*bombs); i++) {
        if (strcmp(bombs[i].name, name) != 0)
            continue;
        long n = 0;
        int refused = 0;
        for (; (!most || n < most) && !refused; n += !refused)
            refused = bombs[i].one() < 0 ? errno : 0;
        fprintf(strcmp(name, "output") == 0 ? stderr : stdout, "%s %ld %d\n", name, n, refused);
        fflush(stdout);
        char byte;
        while (read(STDIN_FILENO, &byte, 1) > 0)
            ;
        return 0;
    }
    fprintf(stderr, "no bomb '%s'\n", name);
    return 2;
}
