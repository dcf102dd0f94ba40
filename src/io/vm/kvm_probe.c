#include "io/vm/kvm_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/defer.h"

enum { NOBODY = 65534, REPORT_FD = 3 };
enum { LOOPS = 10000000, LOOP_MAX_US = 300000, TRIAL_MS = 400, REAP_TRIES = 100 };

void kvm_judge(const struct kvm_trial *t, struct kvm_probe *ret) {
    unsigned ms = (unsigned)(t->loop_us / 1000);
    ret->is_usable = !t->failed && t->has_ended && t->loop_us <= LOOP_MAX_US;
    if (ret->is_usable)
        snprintf(ret->reason, sizeof(ret->reason), "%d million loops in %u ms", LOOPS / 1000000,
                 ms);
    else if (t->failed)
        snprintf(ret->reason, sizeof(ret->reason), "%s: %s", t->failed,
                 t->error ? strerror(t->error) : "it does not work");
    else
        snprintf(ret->reason, sizeof(ret->reason),
                 "KVM does not run at the speed of the processor: %d million loops take over %d ms",
                 LOOPS / 1000000, LOOP_MAX_US / 1000);
}

enum { TRIAL_MEMORY = 64 << 10 };
#define TSS_ADDRESS 0xfffbd000ul /* unused addresses that old processors of Intel need */

#if defined(__x86_64__)

/* Physical memory of the trial: three levels of page tables, code, a word to write and a stack. */
enum {
    TRIAL_PML4 = 0x1000,
    TRIAL_PDPT = 0x2000,
    TRIAL_PD = 0x3000,
    TRIAL_CODE = 0x4000,
    TRIAL_STACK = 0x6000,
};
enum { PAGE_PRESENT = 1, PAGE_WRITE = 2, PAGE_LARGE = 128, FLAGS_ALWAYS = 2 };
enum { CR0_PROTECTED_PAGED = 0x80050033, CR4_PAE = 0x20, EFER_LONG = 0x500, CR3 = TRIAL_PML4 };
static const uint8_t loop_code[] = {
    0xb9,
    LOOPS & 255,
    LOOPS >> 8 & 255,
    LOOPS >> 16 & 255,
    LOOPS >> 24, /* mov ecx, LOOPS */
    0xff,
    0xc9, /* dec ecx */
    0x89,
    0x0c,
    0x25,
    0x00,
    0x50,
    0x00,
    0x00, /* mov [0x5000], ecx */
    0x75,
    0xf5, /* jnz to dec */
    0xf4, /* hlt */
};

static void write_entry(uint8_t *memory, unsigned table, uint64_t entry) {
    memcpy(memory + table, &entry, sizeof(entry));
}

static void write_memory(uint8_t *memory) {
    write_entry(memory, TRIAL_PML4, TRIAL_PDPT | PAGE_PRESENT | PAGE_WRITE);
    write_entry(memory, TRIAL_PDPT, TRIAL_PD | PAGE_PRESENT | PAGE_WRITE);
    write_entry(memory, TRIAL_PD, PAGE_PRESENT | PAGE_WRITE | PAGE_LARGE);
    memcpy(memory + TRIAL_CODE, loop_code, sizeof(loop_code));
}

/* 64-bit mode with the first 2 MiB mapped to themselves. */
static bool set_registers(int vm, int cpu) {
    (void)vm;
    struct kvm_sregs s;
    if (ioctl(cpu, KVM_GET_SREGS, &s) < 0)
        return false;
    struct kvm_segment data = {.limit = ~0u, .type = 3, .present = 1, .db = 1, .s = 1, .g = 1};
    struct kvm_segment code = {.limit = ~0u, .type = 11, .present = 1, .l = 1, .s = 1, .g = 1};
    code.selector = 8;
    data.selector = 16;
    s.cs = code;
    s.ds = s.es = s.fs = s.gs = s.ss = data;
    s.cr0 = CR0_PROTECTED_PAGED;
    s.cr3 = CR3;
    s.cr4 = CR4_PAE;
    s.efer = EFER_LONG;
    struct kvm_regs r = {.rip = TRIAL_CODE, .rsp = TRIAL_STACK, .rflags = FLAGS_ALWAYS};
    return ioctl(cpu, KVM_SET_SREGS, &s) == 0 && ioctl(cpu, KVM_SET_REGS, &r) == 0;
}

static bool is_after_loop(const struct kvm_run *run) {
    return run->exit_reason == KVM_EXIT_HLT;
}

#elif defined(__aarch64__)

/* A processor starts at address 0, with its page tables off. */
enum { TRIAL_CODE = 0, TRIAL_OUTSIDE = 1 << 20 };

static const uint32_t loop_code[] = {
    0x52800000 | (LOOPS & 0xffff) << 5,    /* mov w0, the low half of LOOPS */
    0x72a00000 | (LOOPS >> 16) << 5,       /* movk w0, the high half, lsl 16 */
    0x71000400,                            /* subs w0, w0, 1 */
    0x54ffffe1,                            /* b.ne to subs */
    0xd2a00001 | TRIAL_OUTSIDE >> 16 << 5, /* mov x1, TRIAL_OUTSIDE */
    0xb9000020,                            /* str w0, [x1] */
};

static void write_memory(uint8_t *memory) {
    memcpy(memory + TRIAL_CODE, loop_code, sizeof(loop_code));
}

static bool set_registers(int vm, int cpu) {
    struct kvm_vcpu_init init;
    return ioctl(vm, KVM_ARM_PREFERRED_TARGET, &init) == 0 &&
           ioctl(cpu, KVM_ARM_VCPU_INIT, &init) == 0;
}

/* The last instruction writes where no memory is. */
static bool is_after_loop(const struct kvm_run *run) {
    return run->exit_reason == KVM_EXIT_MMIO && run->mmio.phys_addr == TRIAL_OUTSIDE;
}

#else
#error "no loop for KVM on this architecture"
#endif

static struct kvm_trial trial_failed(const char *what) {
    return (struct kvm_trial){.failed = what, .error = errno};
}

static struct kvm_trial trial_run(int cpu, const struct kvm_run *run) {
    uint64_t start = monotonic_us();
    while (ioctl(cpu, KVM_RUN, 0) < 0)
        if (errno != EINTR)
            return trial_failed("run code with KVM");
    if (!is_after_loop(run)) {
        errno = 0;
        return trial_failed("run code with KVM");
    }
    return (struct kvm_trial){.has_ended = true, .loop_us = monotonic_us() - start};
}

/*
 * Only opening the device may need the rights of root. System calls, because libc would signal the
 * threads of the caller. A change of the user takes back the wish to end with it.
 */
static int trial_confine(void) {
    if (geteuid() == 0 && (syscall(SYS_setgroups, 0, NULL) < 0 ||
                           syscall(SYS_setresgid, NOBODY, NOBODY, NOBODY) < 0 ||
                           syscall(SYS_setresuid, NOBODY, NOBODY, NOBODY) < 0))
        return -1;
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 ? -1
                                                                                              : 0;
}

/* The process ends after this, so it keeps all that it opens. */
static struct kvm_trial trial_make(const char *device) {
    int kvm = open(device, O_RDWR | O_CLOEXEC);
    if (kvm < 0)
        return trial_failed("open the device of KVM");
    if (trial_confine() < 0)
        return trial_failed("give up the rights of root");
    int vm = ioctl(kvm, KVM_GET_API_VERSION, 0) < 0 ? -1 : ioctl(kvm, KVM_CREATE_VM, 0);
    if (vm < 0)
        return trial_failed("make a vm with KVM");
    ioctl(vm, KVM_SET_TSS_ADDR, TSS_ADDRESS); /* fails where it is not needed */
    uint8_t *memory =
        mmap(NULL, TRIAL_MEMORY, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return trial_failed("get memory");
    write_memory(memory);
    struct kvm_userspace_memory_region region = {.memory_size = TRIAL_MEMORY,
                                                 .userspace_addr = (uintptr_t)memory};
    if (ioctl(vm, KVM_SET_USER_MEMORY_REGION, &region) < 0)
        return trial_failed("give memory to KVM");
    int cpu = ioctl(vm, KVM_CREATE_VCPU, 0), size = ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
    if (cpu < 0 || size < 0)
        return trial_failed("make a processor with KVM");
    const struct kvm_run *run = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, cpu, 0);
    if (run == MAP_FAILED || !set_registers(vm, cpu))
        return trial_failed("set the registers of KVM");
    return trial_run(cpu, run);
}

/* The process keeps none of the descriptors of its caller. */
static void __attribute__((noreturn)) trial_main(const char *device, int report) {
    if (dup2(report, REPORT_FD) < 0)
        _exit(1);
    close_range(REPORT_FD + 1, ~0u, 0);
    struct kvm_trial trial = trial_make(device);
    _exit(write(REPORT_FD, &trial, sizeof(trial)) < 0);
}

/* Ends a process that may be stuck in the kernel: then it stays, because a wait would hang too. */
static void trial_end(pid_t child) {
    kill(child, SIGKILL);
    struct timespec wait = {0, 1000000};
    for (int i = 0; i < REAP_TRIES && waitpid(child, NULL, WNOHANG) == 0; i++)
        nanosleep(&wait, NULL);
}

void kvm_probe(const char *device, struct kvm_probe *ret) {
    struct kvm_trial trial = {.failed = "start a process to try KVM"};
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0) {
        trial.error = errno;
        kvm_judge(&trial, ret);
        return;
    }
    pid_t child = _Fork();
    if (child == 0)
        trial_main(device, ends[1]);
    trial.error = errno;
    close_fd(&ends[1]);
    if (child > 0) {
        struct pollfd wait = {ends[0], POLLIN, 0};
        trial = (struct kvm_trial){0};
        if (poll(&wait, 1, TRIAL_MS) > 0 && read(ends[0], &trial, sizeof(trial)) <= 0)
            trial.failed = "try KVM"; /* the process crashed */
        trial_end(child);
    }
    close_fd(&ends[0]);
    kvm_judge(&trial, ret);
}
