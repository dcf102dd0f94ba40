#include "guest/pump.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/reboot.h>

#include "guest/sys.h"

/* PR_SET_IO_FLUSHER: memory for the pump must not wait for files that only the pump can write. */
enum { PUMP_BYTES = 1 << 20, PUMP_STACK = 16 << 10, IO_FLUSHER = 57 };

struct pump {
    int fuse, port;
    uint8_t *out, *in; /* requests, answers */
};

static struct pump pump;
static uint8_t pump_stacks[2][PUMP_STACK] __attribute__((aligned(16)));

/* A system call that leaves errno alone, which belongs to another thread. Returns -errno. */
static long pump_call(long number, long a, const void *b, size_t c) {
#if defined(__x86_64__)
    long ret;
    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "a"(number), "D"(a), "S"(b), "d"(c)
                     : "rcx", "r11", "memory");
    return ret;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register const void *x1 __asm__("x1") = b;
    register size_t x2 __asm__("x2") = c;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
    return x0;
#else
#error "unknown system calls"
#endif
}

/* Without its files a vm is of no use. */
static void pump_end(void) {
    reboot(RB_POWER_OFF);
}

/* Requests to the host. The kernel gives one request a read. */
static int pump_ask(void *arg) {
    const struct pump *p = arg;
    prctl(IO_FLUSHER, 1, 0, 0, 0);
    for (;;) {
        long n = pump_call(SYS_read, p->fuse, p->out, PUMP_BYTES);
        if (n == -EINTR || n == -EAGAIN || n == -ENOENT)
            continue;
        if (n <= 0)
            break;
        for (long sent = 0, w; sent<n; sent += w> 0 ? w : 0) {
            w = pump_call(SYS_write, p->port, p->out + sent, (size_t)(n - sent));
            if (w < 0 && w != -EINTR && w != -EAGAIN)
                pump_end();
        }
    }
    pump_end();
    return 0;
}

/* Gives the kernel the whole answers among `have` bytes, each with one write. The rest stays. */
static size_t pump_give(const struct pump *p, size_t have) {
    size_t at = 0;
    uint32_t size;
    while (have - at >= sizeof(size)) {
        memcpy(&size, p->in + at, sizeof(size));
        if (size < 16 || size > PUMP_BYTES)
            pump_end();
        if (size > have - at)
            break;
        /* An error belongs to an answer that nobody waits for any more. */
        pump_call(SYS_write, p->fuse, p->in + at, size);
        at += size;
    }
    if (at > 0)
        memmove(p->in, p->in + at, have - at);
    return have - at;
}

static int pump_answer(void *arg) {
    const struct pump *p = arg;
    static const struct timespec moment = {0, 1000000};
    prctl(IO_FLUSHER, 1, 0, 0, 0);
    for (size_t have = 0;;) {
        long n = pump_call(SYS_read, p->port, p->in + have, PUMP_BYTES - have);
        if (n < 0 && n != -EINTR && n != -EAGAIN)
            pump_end();
        if (n == 0) /* QEMU has not said yet that the other end is there */
            pump_call(SYS_nanosleep, (long)&moment, NULL, 0);
        have = pump_give(p, have + (n > 0 ? (size_t)n : 0));
    }
    return 0;
}

static bool pump_run(int i, int (*work)(void *)) {
    int flags = CLONE_VM | CLONE_FS | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
    return clone(work, pump_stacks[i] + PUMP_STACK, flags, &pump) >= 0;
}

/* The first byte of its name tells an init system not to end it with the other processes. */
static void __attribute__((noreturn)) pump_be_process(void) {
    int score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (score < 0 || write(score, "-1000", 5) < 0)
        pump_end();
    close_fd(&score);
    program_invocation_name[0] = '@';
    if (!pump_run(0, pump_ask))
        pump_end();
    pump_answer(&pump);
    _exit(1);
}

bool pump_start(int fuse, int port, bool is_process) {
    sigset_t all, old;
    void *memory = mmap(NULL, 2 * PUMP_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    pump = (struct pump){fuse, port, memory, (uint8_t *)memory + PUMP_BYTES};
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &old);
    pid_t pid = is_process ? fork() : 0;
    if (is_process && pid == 0)
        pump_be_process();
    bool runs = is_process ? pid > 0 : pump_run(0, pump_ask) && pump_run(1, pump_answer);
    sigprocmask(SIG_SETMASK, &old, NULL);
    close_fd(&fuse); /* the threads have descriptors of their own */
    close_fd(&port);
    if (is_process)
        munmap(memory, 2 * PUMP_BYTES);
    return runs;
}
