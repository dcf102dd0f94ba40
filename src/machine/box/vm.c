/*
 * Vms: a box in which QEMU runs. The guest of the machine is inside the vm, behind a serial port;
 * the box's own guest is pid 1 of the box and only switches its root.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/limits.h"
#include "base/wire/vm_line.h"
#include "base/wire/vm_memory.h"
#include "base/wire/vm_programs.h"
#include "io/vm/kvm_known.h"
#include "machine/box/inner.h"
#include "machine/vm/boot.h"

enum {
    BOOT_MS = 180000, /* QEMU without KVM on a busy host */
    KVM_BOOT_MS = 10000,
    HALT_MS = 30000,
    HALT_STEP_MS = 10,
    HALT_SLOW_MS = 500,
    CONSOLE_MAX = 300, /* bytes of QEMU's messages that an error has */
};

struct vm {
    struct guest *outer; /* guest of the box; NULL: not connected */
    int console;         /* standard error of QEMU; -1: unknown */
    bool is_booting;     /* QEMU is not there yet, or its guest has not replied */
    struct call *root;   /* a switch of the root, which boots again */
    struct call *lend;   /* granted directories are taken, before it boots again */
    char *stay;          /* paths of those that stay */
    struct call *move;   /* a box that becomes this vm; after a failure it stays a box */
    bool is_restarting;  /* it has ended, and boots again */
    bool is_leaving;     /* the vm of a move that failed, or was not recorded, is being ended */
    bool is_preparing;   /* a job that prepares the boot is under way */
    struct err failure;  /* why the move failed */
    char *warnings;      /* of a move */
    uint32_t layer;
    unsigned how;
    bool changed;
    bool is_refused; /* the root was not switched: the vm boots with the old one */
    struct err refusal;
    uint64_t halt_until_ms;
    uint64_t mem_bytes, cpu_milli;
    char *memory;       /* file with saved memory for the next boot; NULL: none */
    bool is_copy;       /* that memory belongs to another machine */
    bool was_paused;    /* it goes on in that memory, or does not start */
    bool is_damaged;    /* the last boot was to use saved memory, and could not */
    bool boots_instead; /* without the memory in which it did not go on */
    bool asked_for_kvm; /* at the last boot */
    char *kvm_failed;   /* why it boots without KVM, until it is up; NULL: it may use it */
    char hostname[PLAN_NAME_SIZE], kernel[KERNEL_PATH_SIZE];
    char stack[LAYERS_TEXT_SIZE];
};

static void vm_halt_first(void *arg);
static void vm_is_up(struct box *b);
static void vm_on_resumed(void *arg, const struct frame *frame, const struct err *err);
static void vm_leave(struct box *b, const struct err *why);

void vm_recall(struct machine *m, const char *memory) {
    struct vm *v = ((struct box *)m)->vm;
    if (!v)
        return;
    free(v->memory);
    v->memory = memory ? xstrdup(memory) : NULL;
    v->is_copy = v->was_paused = false;
}

void vm_new(struct box *b, const struct machine_vm *spec, bool is_copy) {
    if (!b->vm) {
        b->vm = xnew(struct vm);
        *b->vm = (struct vm){.console = -1};
    }
    b->vm->mem_bytes = spec->mem_bytes ? spec->mem_bytes : LIMIT_VM_MEM;
    b->vm->cpu_milli = spec->cpu_milli;
    vm_recall(&b->m, spec->memory);
    b->vm->is_copy = is_copy;
    b->vm->was_paused = spec->was_paused;
    snprintf(b->vm->hostname, sizeof(b->vm->hostname), "%s", spec->hostname);
    snprintf(b->vm->kernel, sizeof(b->vm->kernel), "%s", spec->kernel);
}

void vm_fill_plan(const struct vm *v, struct plan *p) {
    p->mem_bytes = v->mem_bytes + LIMIT_VM_EXTRA;
    p->gate = 0; /* the gate's sockets are opened in the network of the vm, once that exists */
}

void vm_free(struct vm *v) {
    if (!v)
        return;
    guest_free(v->outer);
    close_fd(&v->console);
    if (v->root)
        call_free(v->root);
    if (v->lend)
        call_free(v->lend);
    if (v->move)
        call_free(v->move);
    free(v->stay);
    free(v->warnings);
    free(v->memory);
    free(v->kvm_failed);
    free(v);
}

bool vm_is_booting(const struct vm *v) {
    return v && v->is_booting;
}

/* What QEMU wrote before it ended, on one line. */
static void vm_read_console(struct vm *v, char ret[CONSOLE_MAX]) {
    ssize_t n = v->console < 0 ? 0 : read(v->console, ret, CONSOLE_MAX - 1);
    ret[n > 0 ? n : 0] = '\0';
    for (char *at = ret; *at; at++)
        if ((unsigned char)*at < ' ' || (unsigned char)*at > '~')
            *at = ' ';
    for (size_t len = strlen(ret); len && ret[len - 1] == ' '; len--)
        ret[len - 1] = '\0';
}

/* Ends the machine: a vm that did not boot has no use. A machine that moves is a box again. */
static void vm_fail(struct box *b, const struct err *err) {
    struct err why = *err;
    if (b->vm->move) {
        vm_leave(b, &why);
        return;
    }
    struct call *root = TAKE(b->vm->root), *lend = TAKE(b->vm->lend);
    b->vm->is_booting = false;
    if (root)
        root_end(root, false, &why);
    if (lend)
        box_lent(lend, NULL, NULL, &why);
    box_end(b, &why);
}

/* No program of the vm lived on, so none uses a directory that was taken. */
static void vm_lent(struct call *c, const struct err *err) {
    const struct plan_message none = {.type = PLAN_TEXT};
    box_lent(c, &none, NULL, err);
}

static void vm_moved(struct call *c, const struct err *err) {
    machine_move_fn *done = c->box ? c->move : NULL;
    void *arg = c->arg;
    char *warnings DEFER_FREE = c->box && c->box->vm ? TAKE(c->box->vm->warnings) : NULL;
    call_free(c);
    if (done)
        done(arg, err ? NULL : warnings, err);
}

/* ---- booting ---- */

struct vm_job {
    struct call *call;
    struct vm_boot_options options;
    char state_dir[PLACE_SIZE], guest[PLACE_SIZE + 16], kernel[KERNEL_PATH_SIZE];
    struct vm_boot boot;
    char *memory; /* NULL: none */
    struct kvm_probe kvm;
    int fds[3]; /* kernel, initrd, memory */
    bool was_paused, may_use_kvm, failed, is_damaged;
    struct err err;
};

static void vm_job_run(void *arg) {
    struct vm_job *j = arg;
    j->failed = vm_boot_prepare(&j->options, &j->boot, &j->err) < 0;
    if (j->failed)
        return;
    if (j->may_use_kvm)
        kvm_decide(j->state_dir, &j->kvm);
    j->fds[0] = open(j->boot.kernel.path, O_RDONLY | O_CLOEXEC);
    j->fds[1] = open(j->boot.initrd, O_RDONLY | O_CLOEXEC);
    /* QEMU runs as a user of its own, and the daemon's umask hides new files from it. */
    if (j->fds[0] < 0 || j->fds[1] < 0 || fchmod(j->fds[1], 0644) < 0) {
        j->failed = true;
        err_sys(&j->err, "cannot open the kernel '%s' of a vm", j->boot.kernel.path);
    }
    struct vm_memory_head head;
    struct err damaged;
    j->is_damaged =
        !j->failed && j->memory && vm_memory_open(j->memory, &j->fds[2], &head, &damaged) < 0;
    if (j->is_damaged && j->was_paused) {
        j->failed = true;
        j->err = damaged;
    } else if (j->is_damaged) {
        log_line(LOG_WARN, "machine", "boot a vm without its memory: %s", damaged.text);
    }
}

/* text: how the vm started, or what runs its code; NULL: unknown. */
static bool vm_has(const char *text, const char *value) {
    return text && strcmp(text, value) == 0;
}

/*
 * A vm that did not go on in its saved memory boots with the files of the step. One that did not
 * boot with KVM boots without it, and later vms, too.
 */
static bool vm_boot_instead(struct box *b, const struct err *why) {
    struct vm *v = b->vm;
    bool has_memory = vm_has(b->m.start, VM_START_MEMORY);
    bool has_kvm = vm_has(b->m.accel, VM_ACCEL_KVM);
    if ((!has_memory && !has_kvm) || v->is_leaving || v->was_paused)
        return false;
    log_line(LOG_WARN, "machine", "boot a vm without its memory or without KVM: %s", why->text);
    if (has_memory)
        v->boots_instead = true;
    else
        v->kvm_failed = xstrdup(why->text);
    b->m.start = b->m.accel = NULL;
    guest_free(TAKE(b->fresh));
    loop_timer_free(TAKE(b->timer));
    v->halt_until_ms = loop_now_ms(b->m.host->loop) + HALT_MS;
    vm_halt_first(b);
    return true;
}

static void vm_boot_failed(struct box *b, const struct err *why) {
    if (!vm_boot_instead(b, why))
        vm_fail(b, why);
}

void vm_on_gone(struct box *b, const struct err *why) {
    char said[CONSOLE_MAX];
    struct err err;
    vm_read_console(b->vm, said);
    err_set(&err, ERR_GONE, "vm '%s' ended while it started%s%s", b->m.id, said[0] ? ": " : "",
            said);
    if (why->code != ERR_GONE)
        err = *why;
    vm_boot_failed(b, &err);
}

static int vm_patience_ms(const struct box *b) {
    return vm_has(b->m.accel, VM_ACCEL_KVM) ? KVM_BOOT_MS : BOOT_MS;
}

static void vm_on_silence(void *arg) {
    struct box *b = arg;
    struct err err;
    err_set(&err, ERR_TIMEOUT, "the guest of vm '%s' did not respond within %d s", b->m.id,
            vm_patience_ms(b) / 1000);
    vm_boot_failed(b, &err);
}

static void vm_on_first_word(void *arg, const struct frame *frame, const struct err *err) {
    struct box *b = arg;
    (void)err; /* box_on_gone() is called next */
    if (!frame)
        return;
    if (vm_has(b->m.start, VM_START_MEMORY))
        vm_tell_resumed(b, b->vm->hostname,
                        b->vm->was_paused ? VM_RESUMED_PAUSED
                        : b->vm->is_copy  ? VM_RESUMED_COPY
                                          : VM_RESUMED_BACK,
                        vm_on_resumed);
    else
        vm_is_up(b);
}

/* What is remembered about KVM. */
struct vm_finding {
    char state_dir[PLACE_SIZE], *why;
};

static void vm_finding_write(void *arg) {
    const struct vm_finding *f = arg;
    kvm_remember_failure(f->state_dir, f->why);
}

static void vm_finding_free(void *arg) {
    struct vm_finding *f = arg;
    free(f->why);
    free(f);
}

/* A vm that does not start without KVM either says nothing about KVM. */
static void vm_remember_kvm(struct box *b) {
    if (!b->vm->kvm_failed)
        return;
    struct vm_finding *f = xnew(struct vm_finding);
    *f = (struct vm_finding){.why = TAKE(b->vm->kvm_failed)};
    snprintf(f->state_dir, sizeof(f->state_dir), "%s", b->m.host->place.home);
    loop_work(b->m.host->loop, vm_finding_write, vm_finding_free, f);
}

/* The guest has replied. */
static void vm_is_up(struct box *b) {
    struct call *root = TAKE(b->vm->root), *lend = TAKE(b->vm->lend), *move = TAKE(b->vm->move);
    b->vm->is_booting = b->vm->was_paused = false;
    vm_remember_kvm(b);
    if (move)
        b->vm->outer = TAKE(b->m.guest);
    box_use_fresh(b);
    if (root)
        root_end(root, b->vm->changed, b->vm->is_refused ? &b->vm->refusal : NULL);
    if (lend)
        vm_lent(lend, b->vm->is_refused ? &b->vm->refusal : NULL);
    if (move)
        vm_moved(move, NULL);
}

static void vm_on_resumed(void *arg, const struct frame *frame, const struct err *err) {
    struct box *b = arg;
    if (frame)
        vm_is_up(b);
    else if (!guest_why_gone(b->fresh)) /* else box_on_gone() is called next */
        vm_fail(b, err);
}

/* The text after its first line, if that is `line`; else NULL. */
static const char *vm_after_line(const char *text, const char *line) {
    size_t n = strlen(line);
    if (strncmp(text, line, n) != 0 || (text[n] && text[n] != '\n'))
        return NULL;
    return text[n] ? text + n + 1 : text + n;
}

/* Takes the lines that say how the vm starts off the text, and returns the rest. */
static const char *vm_take_start(struct box *b, const char *text) {
    static const char *const ways[] = {VM_START_BOOT, VM_START_CLONE, VM_START_MEMORY};
    const char *rest = NULL;
    b->m.start = NULL;
    b->m.accel = VM_ACCEL_TCG;
    for (size_t i = 0; !rest && i < sizeof(ways) / sizeof(*ways); i++)
        if ((rest = vm_after_line(text, ways[i])))
            b->m.start = ways[i];
    const char *after = rest ? vm_after_line(rest, VM_ACCEL_KVM) : NULL;
    if (after)
        b->m.accel = VM_ACCEL_KVM;
    return after ? after : rest ? rest : text;
}

static void vm_warn(struct box *b, const char *text) {
    char *both = NULL;
    if (!*text)
        return;
    if (asprintf(&both, "%s%s%s", b->warnings ? b->warnings : "",
                 b->warnings && b->warnings[0] ? "\n" : "", text) < 0)
        abort();
    free(b->warnings);
    b->warnings = both;
}

static void vm_on_booted(void *arg, const struct plan_message *m, struct fd_message *fds,
                         const struct err *failed) {
    struct call *c = arg;
    struct box *b = c->box;
    struct err err;
    call_free(c);
    if (!b || !b->vm || b->vm->is_leaving)
        return;
    if (!failed && fds->nfds != 1) {
        box_no_fds(&err, "cannot take the messages of QEMU");
        failed = &err;
    }
    if (failed) {
        vm_fail(b, failed);
        return;
    }
    close_fd(&b->vm->console);
    b->vm->console = TAKE_FD(fds->fds[0]);
    const char *text = vm_take_start(b, m->text);
    /* A vm whose memory was saved without KVM resumes without KVM. That is not a failure of KVM. */
    if (b->vm->asked_for_kvm && !vm_has(b->m.accel, VM_ACCEL_KVM) &&
        !vm_has(b->m.start, VM_START_MEMORY))
        b->vm->kvm_failed = xstrdup("carrel-spawn has no /dev/kvm, or may not make device nodes");
    if (*text && b->vm->move)
        b->vm->warnings = xstrdup(text);
    else if (b->made)
        vm_warn(b, text);
    if (b->vm->is_damaged && b->made)
        vm_warn(b, "the vm boots, because it cannot go on in its saved memory");
    int fd = box_connect(b->m.host, b->m.id, "port.sock");
    if (fd < 0)
        err_num(&err, fd, "cannot connect to the guest of vm '%s'", b->m.id);
    else
        b->fresh = guest_open_port(b->m.host->loop, fd, box_on_gone, b, &err);
    if (!b->fresh) {
        vm_boot_failed(b, &err);
        return;
    }
    guest_on_call(b->fresh, box_on_call);
    box_after(b, vm_patience_ms(b), vm_on_silence);
    guest_request(b->fresh, (struct frame_head){.type = MSG_PING}, NULL, NULL, 0, vm_on_first_word,
                  b);
}

static void vm_job_done(void *arg) {
    struct vm_job *j DEFER_FREE = arg;
    struct call *c = j->call;
    struct box *b = c->box;
    struct vm *v = b ? b->vm : NULL;
    struct vm_line line = {.has_net = true};
    if (v) {
        v->is_preparing = false;
        v->is_damaged = j->is_damaged || v->boots_instead;
        v->boots_instead = false;
    }
    if (v && v->is_leaving)
        b = NULL;
    if (b && !j->failed) {
        struct machine_host *h = b->m.host;
        struct plan_message *m = box_message(h, PLAN_BOOT, b->m.id);
        size_t n = (size_t)snprintf(m->text, sizeof(m->text), "%s", j->boot.line);
        snprintf(line.hostname, sizeof(line.hostname), "%s", v->hostname);
        if (!vm_line_write(&line, m->text + n, sizeof(m->text) - n)) {
            j->failed = true;
            err_set(&j->err, ERR_INVALID, "'%s' cannot be the host name of a vm", v->hostname);
        } else {
            m->plan.mem_bytes = v->mem_bytes;
            m->plan.cpu_milli = v->cpu_milli;
            m->plan.gate = BOOT_NET | (j->kvm.is_usable ? BOOT_KVM : 0u);
            v->asked_for_kvm = j->kvm.is_usable;
            m->changed = v->was_paused;
            spawner_ask(h->spawner, m, j->fds, j->fds[2] < 0 ? 2 : 3, vm_on_booted, c);
        }
    }
    for (int i = 0; i < 3; i++)
        close_fd(&j->fds[i]);
    free(j->memory);
    if (!b || j->failed)
        call_free(c);
    if (b && j->failed)
        vm_fail(b, &j->err);
}

static void vm_boot_begin(struct box *b) {
    const struct place *place = &b->m.host->place;
    struct vm_job *j = xnew(struct vm_job);
    *j = (struct vm_job){.call = call_new(&b->m, NULL), .fds = {-1, -1, -1}};
    j->memory = TAKE(b->vm->memory);
    j->may_use_kvm = !b->vm->kvm_failed;
    j->was_paused = b->vm->was_paused;
    b->vm->is_booting = b->vm->is_preparing = true;
    snprintf(j->state_dir, sizeof(j->state_dir), "%s", place->home);
    snprintf(j->guest, sizeof(j->guest), "%s/carrel-guest", place->libexec);
    snprintf(j->kernel, sizeof(j->kernel), "%s", b->vm->kernel);
    j->options =
        (struct vm_boot_options){.state_dir = j->state_dir, .guest = j->guest, .kernel = j->kernel};
    loop_work(b->m.host->loop, vm_job_run, vm_job_done, j);
}

/* The box exists and its own guest has replied. */
void vm_start(struct box *b) {
    b->vm->outer = TAKE(b->m.guest);
    vm_boot_begin(b);
}

bool vm_outer_is_gone(struct box *b) {
    if (!b->vm || !b->vm->outer || !guest_why_gone(b->vm->outer))
        return false;
    guest_free(TAKE(b->vm->outer)); /* if the box has ended, so has QEMU */
    return true;
}

/* ---- another root: the vm ends, the box switches its root, and the vm boots again ---- */

static void vm_on_switched(void *arg, const struct frame *frame, const struct err *err) {
    struct box *b = arg;
    (void)frame;
    if (err)
        vm_fail(b, err);
    else
        vm_boot_begin(b);
}

/* The outer guest answers MSG_SWITCH_ROOT, or its loss fails it: both only while the box lives. */
static void vm_on_root(void *arg, const struct plan_message *m, struct fd_message *fds,
                       const struct err *failed) {
    struct call *c = arg;
    struct box *b = c->box;
    struct err err;
    call_free(c);
    if (!b)
        return;
    if (!failed && fds->nfds != 1) {
        box_no_fds(&err, "cannot take the new root of a vm");
        vm_fail(b, &err);
        return;
    }
    if (failed) {
        b->vm->is_refused = true;
        b->vm->refusal = *failed;
        vm_recall(&b->m, NULL); /* it belongs to the files of the new root */
        vm_boot_begin(b);
        return;
    }
    b->vm->changed = m->changed;
    guest_request(b->vm->outer, (struct frame_head){.type = MSG_SWITCH_ROOT, .flags = 1}, NULL,
                  fds->fds, 1, vm_on_switched, b);
}

static int vm_open_outer(struct box *b, struct err *err) {
    if (b->vm->outer || b->vm->move) /* until it has moved, the guest of the box is m.guest */
        return 0;
    int fd = box_connect(b->m.host, b->m.id, "guest.sock");
    if (fd < 0)
        return err_num(err, fd, "cannot connect to the box of vm '%s'", b->m.id);
    b->vm->outer = guest_open(b->m.host->loop, fd, box_on_gone, b, err);
    return b->vm->outer ? 0 : -1;
}

/* With a refusal the directories stay, and the vm boots all the same. */
static void vm_on_unmounted(void *arg, const struct plan_message *m, struct fd_message *fds,
                            const struct err *failed) {
    struct call *c = arg;
    struct box *b = c->box;
    (void)m, (void)fds;
    call_free(c);
    if (!b)
        return;
    b->vm->is_refused = failed != NULL;
    if (failed)
        b->vm->refusal = *failed;
    vm_boot_begin(b);
}

static void vm_ask_lend(struct box *b) {
    struct machine_host *h = b->m.host;
    struct plan_message *m = box_message(h, PLAN_LEND, b->m.id);
    snprintf(m->text, sizeof(m->text), "%s", b->vm->stay);
    spawner_ask(h->spawner, m, NULL, 0, vm_on_unmounted, call_new(&b->m, NULL));
}

static void vm_on_halted(void *arg, const struct plan_message *m, struct fd_message *fds,
                         const struct err *failed) {
    struct call *c = arg;
    struct box *b = c->box;
    struct err err;
    (void)m, (void)fds;
    call_free(c);
    if (!b)
        return;
    if (failed && failed->code == ERR_BUSY && loop_now_ms(b->m.host->loop) < b->vm->halt_until_ms) {
        box_after(b, HALT_STEP_MS, vm_halt_first);
        return;
    }
    if (failed || vm_open_outer(b, &err) < 0) {
        vm_fail(b, failed ? failed : &err);
        return;
    }
    if (b->vm->boots_instead || b->vm->kvm_failed || b->vm->is_restarting) {
        b->vm->is_restarting = false;
        vm_boot_begin(b);
        return;
    }
    if (b->vm->lend) {
        vm_ask_lend(b);
        return;
    }
    struct machine_host *h = b->m.host;
    struct plan_message *ask = box_message(h, PLAN_ROOT, b->m.id);
    ask->layer = b->vm->layer;
    ask->changed = b->vm->how & ~(unsigned)ROOT_IF_CHANGED;
    snprintf(ask->plan.stack, sizeof(ask->plan.stack), "%s", b->vm->stack);
    spawner_ask(h->spawner, ask, NULL, 0, vm_on_root, call_new(&b->m, NULL));
}

static void vm_halt_first(void *arg) {
    struct box *b = arg;
    struct machine_host *h = b->m.host;
    spawner_ask(h->spawner, box_message(h, PLAN_HALT, b->m.id), NULL, 0, vm_on_halted,
                call_new(&b->m, NULL));
}

static void vm_boot_again(struct box *b) {
    struct vm *v = b->vm;
    v->is_refused = false;
    v->is_booting = true; /* the loss of the connection to the guest is intended */
    v->halt_until_ms = loop_now_ms(b->m.host->loop) + HALT_MS;
    vm_halt_first(b);
}

void vm_root(struct call *c, const char *stack, uint32_t layer, unsigned how) {
    struct vm *v = c->box->vm;
    v->root = c;
    v->layer = layer;
    v->how = how;
    snprintf(v->stack, sizeof(v->stack), "%s", stack);
    vm_boot_again(c->box);
}

/*
 * The server of the files has the directories mounted too, and open what the guest's kernel knows
 * of them. So the vm ends, and boots again without them.
 */
void vm_lend(struct call *c, const char *paths) {
    struct vm *v = c->box->vm;
    v->lend = c;
    free(v->stay);
    v->stay = xstrdup(paths);
    vm_boot_again(c->box);
}

void vm_boot_same(struct box *b) {
    b->vm->is_restarting = true;
    vm_boot_again(b);
}

void vm_stay_off(struct box *b) {
    b->vm->is_booting = true;
}

/* ---- a box becomes a vm ---- */

void vm_move(struct call *c, const struct machine_vm *spec) {
    struct box *b = c->box;
    vm_new(b, spec, false);
    b->vm->move = c;
    vm_boot_begin(b);
}

/* True once the box has lost its own guest during a move. */
bool vm_box_is_gone(struct box *b) {
    if (!b->vm || !b->vm->move || !guest_why_gone(b->m.guest))
        return false;
    vm_leave(b, guest_why_gone(b->m.guest));
    return true;
}

/* The machine is a box, whose own guest was never replaced, or is to be connected. */
static void vm_left(struct box *b) {
    struct vm *v = TAKE(b->vm);
    struct call *c = TAKE(v->move);
    struct err why = v->failure;
    vm_free(v);
    if (!c)
        box_link_again(b);
    else if (guest_why_gone(b->m.guest))
        box_on_gone(b);
    if (c)
        vm_moved(c, &why);
}

static void vm_ask_leave(void *arg);

/* The vm may not stay, so there is no end to asking. */
static void vm_on_left(void *arg, const struct plan_message *m, struct fd_message *fds,
                       const struct err *failed) {
    struct call *c = arg;
    struct box *b = c->box;
    (void)m, (void)fds;
    call_free(c);
    if (!b)
        return;
    bool gone = failed && (failed->code == ERR_GONE || failed->code == ERR_NOT_FOUND);
    bool late = loop_now_ms(b->m.host->loop) >= b->vm->halt_until_ms;
    if ((failed && !gone) || b->vm->is_preparing)
        box_after(b, late ? HALT_SLOW_MS : HALT_STEP_MS, vm_ask_leave);
    else
        vm_left(b);
}

static void vm_ask_leave(void *arg) {
    struct box *b = arg;
    struct machine_host *h = b->m.host;
    struct plan_message *m = box_message(h, PLAN_HALT, b->m.id);
    m->changed = 1;
    spawner_ask(h->spawner, m, NULL, 0, vm_on_left, call_new(&b->m, NULL));
}

static void vm_leave(struct box *b, const struct err *why) {
    struct vm *v = b->vm;
    if (v->is_leaving)
        return;
    v->is_leaving = v->is_booting = true;
    v->failure = *why;
    v->halt_until_ms = loop_now_ms(b->m.host->loop) + HALT_MS;
    guest_free(TAKE(b->fresh));
    vm_ask_leave(b);
}

bool vm_leave_adopted(struct box *b) {
    struct err none = {.code = ERR_GONE};
    int fd DEFER_CLOSE = b->vm ? -ENOENT : box_connect(b->m.host, b->m.id, "port.sock");
    if (fd == -ENOENT)
        return false;
    const struct machine_vm spec = {.hostname = "", .kernel = ""};
    vm_new(b, &spec, false);
    vm_leave(b, &none);
    return true;
}
