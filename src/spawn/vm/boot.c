#include "spawn/vm/boot.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/wire/vm_line.h"
#include "base/wire/vm_memory.h"
#include "base/wire/vm_programs.h"
#include "spawn/cgroup.h"
#include "spawn/make/making.h"
#include "spawn/make/vm_net.h"
#include "spawn/vm/launch.h"

/* Sockets of a vm in the directory of its box, which only the host can see. */
#define VM_PORT_SOCKET "port.sock"
#define VM_SERIAL_SOCKET "serial.sock"

enum { VM_CPUS_MAX = 8, VM_CPUS_USUAL = 2 };

static int vm_check_host(const struct spawner *s, struct err *err) {
    if (s->rootless) {
        err_set(err, ERR_UNSUPPORTED, "a vm needs a daemon that runs as root");
        return err_remedy(err, "use --kind box, or run the daemon as root");
    }
    if (faccessat(s->host, &VM_QEMU[1], X_OK, 0) == 0)
        return 0;
    err_set(err, ERR_UNSUPPORTED, "a vm needs " VM_QEMU ", which is not installed on this host");
    return err_remedy(err, "apt install " VM_QEMU_PACKAGE);
}

/* QEMU runs as a user of its own, without any rights. */
static int vm_check_file(int fd, const char *what, struct err *err) {
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_sys(err, "cannot open the %s of a vm", what);
    if (S_ISREG(st.st_mode) && st.st_mode & S_IROTH)
        return 0;
    err_set(err, ERR_DENIED, "the %s of a vm must be a file that every user may read", what);
    return err_remedy(err, "chmod o+r the %s", what);
}

static int vm_listen(struct spawner *s, const char *id, const char *name, int *ret,
                     struct err *err) {
    struct sockaddr_un a = box_socket(s, id, name);
    int fd DEFER_CLOSE = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, 4) < 0)
        return err_sys(err, "cannot listen for connections to vm '%s'", id);
    *ret = TAKE_FD(fd);
    return 0;
}

/* A process that is forked from the spawner, and reports over a pipe. */
static int vm_launch(struct spawner *s, const struct box *box, struct vm_launch *l,
                     struct err *err) {
    int report[2];
    char text[256];
    size_t n = 0;
    if (pipe2(report, O_CLOEXEC) < 0)
        return err_sys(err, "cannot start vm '%s'", box->id);
    pid_t pid = fork();
    if (pid == 0) {
        l->report = report[1];
        vm_launch_main(s, box, l);
    }
    int e = errno;
    close(report[1]);
    for (ssize_t got = 1; pid > 0 && got > 0 && n<sizeof(text) - 1; n += got> 0 ? (size_t)got : 0)
        do
            got = read(report[0], text + n, sizeof(text) - 1 - n);
        while (got < 0 && errno == EINTR);
    text[n] = '\0';
    close(report[0]);
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    if (pid < 0)
        return err_num(err, -e, "cannot start vm '%s'", box->id);
    return n ? err_set(err, ERR_INTERNAL, "cannot start vm '%s': %s", box->id, text) : 0;
}

/* QEMU gets a cgroup as a command does: it is frozen and counted as one. */
static int vm_launch_in_cgroup(struct spawner *s, struct box *box, struct vm_launch *l,
                               struct err *err) {
    struct cgroup_spare spare = {-1, -1, -1};
    int r =
        s->cgroups.mode == CGROUP_NONE ? 0 : cgroup_open_tasks(&s->cgroups, box->cgroup, l->cgroup);
    if (r == 0 && s->cgroups.mode != CGROUP_NONE)
        r = cgroup_add_spare(&s->cgroups, box->cgroup, box->spares++, &spare);
    l->cgroup[CGROUP_TASKS] = spare.procs;
    if (r == 0)
        r = vm_launch(s, box, l, err);
    else
        err_num(err, r, "cannot create the cgroup of vm '%s'", box->id);
    for (size_t i = 0; i < CGROUP_TASKS; i++)
        close_fd(&l->cgroup[i]);
    close_fd(&spare.procs);
    close_fd(&spare.freeze);
    close_fd(&spare.kill);
    return r < 0 ? -1 : 0;
}

static unsigned vm_cpus(uint64_t cpu_milli) {
    long host = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t want = cpu_milli ? (cpu_milli + 999) / 1000 : VM_CPUS_USUAL;
    if (want > VM_CPUS_MAX)
        want = VM_CPUS_MAX;
    return host > 0 && want > (uint64_t)host ? (unsigned)host : (unsigned)want;
}

/* Adds a line to the text of the answer. */
static void __attribute__((format(printf, 2, 3)))
vm_say(struct plan_message *m, const char *fmt, ...) {
    size_t n = strlen(m->text);
    va_list ap;
    va_start(ap, fmt);
    if (n > 0 && n < sizeof(m->text) - 1)
        m->text[n++] = '\n';
    vsnprintf(m->text + n, sizeof(m->text) - n, fmt, ap);
    va_end(ap);
}

/*
 * Finds or makes the network of a vm. The gate's sockets are in it, so a vm keeps it when it boots
 * again. Without a network the vm runs all the same, and the answer says why.
 */
static void vm_need_net(struct spawner *s, struct plan_message *m, struct box *box) {
    struct vm_net net;
    struct err why;
    if (!(m->plan.gate & BOOT_NET) || box->vm_tap >= 0)
        return;
    if (vm_net_open(&s->net, s->host, &net, &why) < 0) {
        vm_say(m, "the vm has no network: %s", why.text);
        return;
    }
    close_fd(&box->vm_netns);
    box->vm_netns = net.ns;
    box->vm_tap = net.tap;
}

static struct box *vm_box(struct spawner *s, const char *id, struct err *err) {
    struct box *box = box_find(s, id);
    if (box && !box->dead && !box->ending)
        return box;
    if (box)
        err_set(err, ERR_GONE, "machine '%s' is ending", id);
    else
        box_missing(s, id, err);
    return NULL;
}

/* Checks everything that needs no clean-up. */
static int vm_check(const struct spawner *s, const struct fd_message *in, struct err *err) {
    if (vm_check_host(s, err) < 0)
        return -1;
    if (in->nfds != 2 && in->nfds != 3)
        return err_set(err, ERR_INVALID, "a vm needs a kernel and an initrd");
    if (vm_check_file(in->fds[0], "kernel", err) < 0)
        return -1;
    return vm_check_file(in->fds[1], "initrd", err);
}

static struct vm_file_id vm_identify(const struct stat *st) {
    return (struct vm_file_id){.dev = st->st_dev,
                               .ino = st->st_ino,
                               .size = (uint64_t)st->st_size,
                               .changed_ns =
                                   (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec};
}

static uint32_t vm_devices(const struct vm_launch *l) {
    return (l->tap >= 0 ? VM_HAS_TAP : 0u) | (l->has_kvm ? VM_HAS_KVM : 0u);
}

static int vm_find_key(const struct spawner *s, const struct vm_launch *l,
                       struct vm_template_key *ret) {
    struct stat qemu, kernel, initrd;
    memset(ret, 0, sizeof(*ret)); /* keys are compared as bytes */
    if (fstatat(s->host, &VM_QEMU[1], &qemu, 0) < 0 || fstat(l->kernel, &kernel) < 0 ||
        fstat(l->initrd, &initrd) < 0 || strlen(l->line) >= sizeof(ret->line))
        return -1;
    ret->qemu = vm_identify(&qemu);
    ret->kernel = vm_identify(&kernel);
    ret->initrd = vm_identify(&initrd);
    ret->mem_bytes = l->mem_bytes;
    ret->cpus = l->cpus;
    ret->devices = vm_devices(l);
    /* The last word is the rate of the counter, which is measured anew for every boot. */
    const char *rate = strstr(l->line, " tsc_early_khz=");
    memcpy(ret->line, l->line, rate ? (size_t)(rate - l->line) : strlen(l->line));
    return 0;
}

/* ---- saved memory ---- */

/*
 * What QEMU needs to load the memory and the devices of another one. Not the kernel and the initrd:
 * both are in the memory. It is in the directory of the box, too, for a later spawner.
 */
struct vm_state_key {
    uint64_t qemu_bytes;
    int64_t qemu_changed_ns;
    uint64_t mem_bytes;
    uint32_t cpus, devices; /* as in struct vm_template_key */
    uint8_t machine[SHA256_BYTES];
};

/* Fills in what belongs to this host and this version. -errno. */
static int vm_state_begin(const struct spawner *s, struct vm_state_key *ret) {
    struct stat st;
    struct sha256 hash;
    if (fstatat(s->host, &VM_QEMU[1], &st, 0) < 0)
        return -errno;
    const struct vm_file_id qemu = vm_identify(&st);
    memset(ret, 0, sizeof(*ret));
    ret->qemu_bytes = qemu.size;
    ret->qemu_changed_ns = qemu.changed_ns;
    sha256_init(&hash);
    vm_launch_hash_devices(&hash);
    sha256_end(&hash, ret->machine);
    return 0;
}

static int vm_state_find(const struct spawner *s, const struct vm_launch *l,
                         struct vm_state_key *ret) {
    int r = vm_state_begin(s, ret);
    ret->mem_bytes = l->mem_bytes;
    ret->cpus = l->cpus;
    ret->devices = vm_devices(l);
    return r;
}

static void vm_state_hash(const struct vm_state_key *key, uint8_t ret[SHA256_BYTES]) {
    struct sha256 hash;
    sha256_init(&hash);
    sha256_add(&hash, key, sizeof(*key));
    sha256_end(&hash, ret);
}

static int vm_state_write(struct spawner *s, const char *id, const struct vm_launch *l) {
    struct vm_state_key key;
    char path[ID_SIZE + 16];
    snprintf(path, sizeof(path), "%s/vm.state", id);
    unlinkat(s->boxes, path, 0);
    int r = vm_state_find(s, l, &key);
    int fd DEFER_CLOSE =
        r < 0 ? r : openat(s->boxes, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return r < 0 ? r : fd < 0 ? -errno : write_all(fd, &key, sizeof(key));
}

int vm_boot_key(struct spawner *s, const struct box *box, uint8_t ret[SHA256_BYTES],
                uint64_t *ret_mem) {
    char path[ID_SIZE + 16];
    struct vm_state_key key, now;
    snprintf(path, sizeof(path), "%s/vm.state", box->id);
    int fd DEFER_CLOSE = openat(s->boxes, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || read(fd, &key, sizeof(key)) != sizeof(key))
        return -ENOENT;
    if (vm_state_begin(s, &now) < 0 || key.qemu_bytes != now.qemu_bytes ||
        key.qemu_changed_ns != now.qemu_changed_ns ||
        memcmp(key.machine, now.machine, sizeof(now.machine)) != 0)
        return -EXDEV;
    vm_state_hash(&key, ret);
    *ret_mem = key.mem_bytes;
    return 0;
}

/* A memfd with the table of a file with saved memory; -errno. */
static int vm_copy_table(int from, const struct vm_memory_head *head) {
    int fd DEFER_CLOSE = memfd_create("carrel-files", MFD_CLOEXEC);
    off_t at = (off_t)(VM_MEMORY_STREAM + head->stream_bytes);
    size_t left = head->table_bytes;
    while (fd >= 0 && left > 0) {
        ssize_t n = sendfile(fd, from, &at, left);
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        left -= (size_t)n;
    }
    return fd < 0 ? -errno : TAKE_FD(fd);
}

/* Opens what QEMU and the server of the files load. The daemon has checked the hash. -errno. */
static int vm_open_saved(const struct spawner *s, int file, struct vm_launch *l) {
    struct vm_memory_head head;
    struct vm_state_key key;
    uint8_t hash[SHA256_BYTES];
    struct stat st;
    char path[32];
    int r = vm_state_find(s, l, &key);
    if (r < 0)
        return r;
    vm_state_hash(&key, hash);
    if (fstat(file, &st) < 0 || pread(file, &head, sizeof(head), 0) != sizeof(head) ||
        !vm_memory_fits(&head, (uint64_t)st.st_size))
        return -EBADMSG;
    if (memcmp(head.key, hash, sizeof(hash)) != 0)
        return -EXDEV;
    snprintf(path, sizeof(path), "self/fd/%d", file);
    l->state = openat(s->proc, path, O_RDONLY | O_CLOEXEC);
    if (l->state < 0 || lseek(l->state, VM_MEMORY_STREAM, SEEK_SET) < 0)
        return -errno;
    l->table = vm_copy_table(file, &head);
    return l->table < 0 ? l->table : 0;
}

/* ---- launching ---- */

/* What the guest is told. */
struct vm_word {
    char bytes[sizeof(struct vm_wake) + sizeof(((struct plan_message *)0)->text)];
    size_t size;
};

static int vm_write_word(const char *words, bool has_time, struct vm_word *ret) {
    struct vm_wake wake = {0};
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (has_time) {
        wake.seconds = (uint64_t)now.tv_sec;
        wake.nanoseconds = (uint64_t)now.tv_nsec;
    }
    if (getrandom(wake.seed, sizeof(wake.seed), 0) != sizeof(wake.seed))
        return -EIO;
    memcpy(ret->bytes, &wake, sizeof(wake));
    ret->size = sizeof(wake) + (size_t)snprintf(ret->bytes + sizeof(wake),
                                                sizeof(ret->bytes) - sizeof(wake), "%s\n", words);
    return 0;
}

/* The files of a template, or new memory. *ret_own: memory to close. -errno. */
static int vm_open_memory(const struct spawner *s, const struct vm_template *t, struct vm_launch *l,
                          int *ret_own) {
    char path[32];
    if (t) {
        /* A description of its own, which begins at the first byte. */
        snprintf(path, sizeof(path), "self/fd/%d", t->state);
        l->ram = t->ram;
        l->is_clone = true;
        l->state = openat(s->proc, path, O_RDONLY | O_CLOEXEC);
        return l->state < 0 ? -errno : 0;
    }
    *ret_own = l->ram = memfd_create("vm", MFD_CLOEXEC);
    return l->ram < 0 || ftruncate(l->ram, (off_t)l->mem_bytes) < 0 ? -errno : 0;
}

/* How a vm is launched. */
struct vm_plan {
    struct vm_launch launch;
    struct vm_template_key key;
    bool has_key;
    bool resumes;      /* saved memory is loaded */
    const char *words; /* what the guest is told otherwise */
};

/* A vm whose saved memory cannot be used boots, and the answer says why; or it does not start. */
static int vm_try_saved(struct spawner *s, struct plan_message *m, int file, struct vm_plan *p,
                        struct err *err) {
    const bool has_kvm = p->launch.has_kvm;
    int r = vm_open_saved(s, file, &p->launch);
    if (r == -EXDEV && has_kvm) {
        p->launch.has_kvm = false;
        r = vm_open_saved(s, file, &p->launch);
    }
    p->resumes = r == 0;
    if (r == 0)
        return 0;
    p->launch.has_kvm = has_kvm;
    close_fd(&p->launch.state);
    const char *why =
        r == -EXDEV ? "QEMU, KVM, the memory or the processors are others now" : strerror(-r);
    if (m->changed)
        return err_set(err, ERR_UNSUPPORTED, "the saved memory of vm '%s' cannot be used: %s",
                       m->plan.id, why);
    vm_say(m, "the vm boots, because its saved memory cannot be used: %s", why);
    return 0;
}

/*
 * Launches a vm: with its saved memory, or as a clone of a template if there is one, else as one of
 * which a template is made.
 */
static int vm_launch_clone(struct spawner *s, struct box *box, struct vm_plan *p, struct err *err) {
    struct vm_launch *l = &p->launch;
    struct vm_word word;
    int own DEFER_CLOSE = -1;
    vm_template_collect(&s->templates);
    struct vm_template *t =
        p->has_key && !p->resumes ? vm_template_find(&s->templates, &p->key) : NULL;
    bool makes = p->has_key && !p->resumes && !t && s->templates.maker < 0;
    int r = vm_open_memory(s, t, l, &own);
    if (r == 0)
        r = vm_write_word(p->words, t != NULL, &word);
    if (r == 0 && (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, l->word) < 0 ||
                   socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, l->qmp) < 0))
        r = -errno;
    if (r == 0 && !makes && !p->resumes)
        r = write_all(l->word[0], word.bytes, word.size);
    if (r == 0 && t)
        r = write_all(l->qmp[0], VM_LAUNCH_CLONE, strlen(VM_LAUNCH_CLONE));
    if (r == 0 && p->resumes)
        r = write_all(l->qmp[0], VM_LAUNCH_RESUME, strlen(VM_LAUNCH_RESUME));
    if (r == 0)
        r = vm_state_write(s, box->id, l);
    if (r < 0)
        return err_num(err, r, "cannot start vm '%s'", box->id);
    if (vm_launch_in_cgroup(s, box, l, err) < 0)
        return -1;
    if (t)
        vm_template_prove(t, TAKE_FD(l->word[0]));
    if (!makes)
        return 0;
    struct vm_making making = {.ram = TAKE_FD(own),
                               .qmp = TAKE_FD(l->qmp[0]),
                               .word = TAKE_FD(l->word[0]),
                               .wake = memcpy(xmalloc(word.size), word.bytes, word.size),
                               .wake_size = word.size};
    r = vm_template_make(&s->templates, &p->key, &making);
    return r < 0 ? err_num(err, r, "cannot start vm '%s'", box->id) : 0;
}

/* Cuts off the words that are for the guest; the kernel is not told them. */
static const char *vm_cut_words(char *line) {
    char *at = strstr(line, " " VM_WORD_PREFIX);
    if (!at)
        return "";
    *at = '\0';
    return at + 1;
}

/* The host name among the words, which was written as one. */
static void vm_name(const char *words, char ret[VM_HOSTNAME_SIZE]) {
    struct vm_line line;
    vm_line_read(words, strlen(words), &line);
    snprintf(ret, VM_HOSTNAME_SIZE, "%s", line.hostname);
}

/* How the vm starts, then the warnings. */
static void vm_answer(struct plan_message *m, const char *how, bool has_kvm) {
    char warnings[512];
    snprintf(warnings, sizeof(warnings), "%s", m->text);
    m->type = PLAN_TEXT;
    m->text[0] = '\0';
    vm_say(m, "%s", how);
    if (has_kvm)
        vm_say(m, VM_ACCEL_KVM);
    vm_say(m, "%s", warnings);
}

int vm_boot(struct spawner *s, struct plan_message *m, const struct fd_message *in, int *ret,
            struct err *err) {
    struct box *box = vm_box(s, m->plan.id, err);
    if (!box || vm_check(s, in, err) < 0)
        return -1;
    char line[sizeof(m->text)], name[VM_HOSTNAME_SIZE];
    int port DEFER_CLOSE = -1, serial DEFER_CLOSE = -1, console[2];
    memcpy(line, m->text, sizeof(line));
    const char *words = vm_cut_words(line);
    vm_name(words, name);
    if (vm_listen(s, box->id, VM_PORT_SOCKET, &port, err) < 0 ||
        vm_listen(s, box->id, VM_SERIAL_SOCKET, &serial, err) < 0)
        return -1;
    if (pipe2(console, O_CLOEXEC | O_NONBLOCK) < 0)
        return err_sys(err, "cannot start vm '%s'", box->id);
    m->text[0] = '\0';
    vm_need_net(s, m, box);
    struct vm_plan p = {.words = words};
    struct vm_launch *l = &p.launch;
    *l = (struct vm_launch){.console = console[1],
                            .port = port,
                            .serial = serial,
                            .tap = box->vm_tap,
                            .has_kvm = m->plan.gate & BOOT_KVM && vm_launch_has_kvm(s),
                            .kernel = in->fds[0],
                            .initrd = in->fds[1],
                            .line = line,
                            .name = name,
                            .ram = -1,
                            .state = -1,
                            .table = -1,
                            .word = {-1, -1},
                            .qmp = {-1, -1},
                            .mem_bytes = m->plan.mem_bytes,
                            .cpus = vm_cpus(m->plan.cpu_milli),
                            .cgroup = {-1, -1, -1, -1}};
    p.has_key = vm_find_key(s, l, &p.key) == 0;
    int r = in->nfds == 3 ? vm_try_saved(s, m, in->fds[2], &p, err) : 0;
    if (r == 0)
        r = vm_launch_clone(s, box, &p, err);
    for (int i = 0; i < 2; i++) {
        close_fd(&l->word[i]);
        close_fd(&l->qmp[i]);
    }
    close_fd(&l->state);
    close_fd(&l->table);
    close(console[1]);
    if (r < 0) {
        close(console[0]);
        return -1;
    }
    *ret = console[0];
    vm_answer(m,
              p.resumes     ? VM_START_MEMORY
              : l->is_clone ? VM_START_CLONE
                            : VM_START_BOOT,
              l->has_kvm);
    return 0;
}

struct search {
    struct box *box;
    bool was_there; /* a process besides pid 1 */
};

static void vm_try_process(int pid, void *arg) {
    struct search *f = arg;
    struct vm_net net;
    int pidfd DEFER_CLOSE = f->box->vm_tap < 0 ? pidfd_open(pid, 0) : -1;
    if (pidfd < 0 || vm_net_find(pidfd, VM_LAUNCH_TAP, &net) < 0)
        return;
    f->box->vm_netns = net.ns;
    f->box->vm_tap = net.tap;
}

bool vm_is_booted(const struct spawner *s, const struct box *box) {
    char path[ID_SIZE + 16];
    snprintf(path, sizeof(path), "%s/" VM_PORT_SOCKET, box->id);
    return faccessat(s->boxes, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

int vm_netns(struct spawner *s, struct box *box) {
    struct search f = {.box = box};
    if (box->vm_tap < 0 && vm_is_booted(s, box))
        cgroup_each_pid(&s->cgroups, box->cgroup, vm_try_process, &f);
    return box->vm_netns >= 0 ? box->vm_netns : -ENOENT;
}

static void vm_kill(int pid, void *arg) {
    struct search *f = arg;
    if (pid == (int)f->box->pid)
        return;
    f->was_there = true;
    kill(pid, SIGKILL);
}

int vm_halt(struct spawner *s, struct plan_message *m, struct err *err) {
    char path[ID_SIZE + 16];
    struct search f = {.box = vm_box(s, m->plan.id, err)};
    if (!f.box)
        return -1;
    vm_netns(s, f.box); /* the tap is kept for the next boot */
    cgroup_each_pid(&s->cgroups, f.box->cgroup, vm_kill, &f);
    if (f.was_there)
        return err_set(err, ERR_BUSY, "the processes of vm '%s' are ending", f.box->id);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "%s/%s", f.box->id, i ? VM_PORT_SOCKET : VM_SERIAL_SOCKET);
        unlinkat(s->boxes, path, 0);
    }
    if (m->changed) {
        close_fd(&f.box->vm_netns);
        close_fd(&f.box->vm_tap);
    }
    return 0;
}

int vm_dial_serial(struct spawner *s, const struct box *box, struct err *err) {
    struct sockaddr_un a = box_socket(s, box->id, VM_SERIAL_SOCKET);
    int fd DEFER_CLOSE = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
        return TAKE_FD(fd);
    if (errno != ENOENT)
        return err_sys(err, "cannot connect to the serial console of vm '%s'", box->id);
    err_set(err, ERR_UNSUPPORTED, "machine '%s' has no serial console", box->id);
    return err_remedy(err, "only a vm has one, and one that an earlier version of Carrel booted "
                           "gets it at its next boot");
}
