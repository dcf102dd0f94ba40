/* The end of QEMU. A vm whose kernel restarted boots again, with the same root. */
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/wire/vm_line.h"
#include "machine/box/inner.h"

enum {
    WORD_MS = 10000,  /* for the process that keeps the serial console to say how the vm ended */
    RESTARTS_MAX = 5, /* of the vm by itself, within RESTARTS_MS */
    RESTARTS_MS = 600000,
};

struct vm_end {
    unsigned restarts; /* since restarts_ms */
    uint64_t restarts_ms;
    int word;                 /* connection to its serial console; -1: none */
    struct loop_watch *watch; /* of `word` */
};

void vm_end_free(struct vm_end *v) {
    if (!v)
        return;
    loop_watch_free(v->watch);
    close_fd(&v->word);
    free(v);
}

static const struct {
    const char *word, *why;
    bool restarts;
} vm_ends[] = {
    {VM_SAID_RESTART, "it was restarted from inside", true},
    {VM_SAID_PANIC, "its kernel panicked", true},
    {VM_SAID_OFF, "it was powered off from inside", false},
};

/* A vm that restarts again and again stays down. */
static bool vm_may_restart(struct vm_end *v, uint64_t now_ms) {
    if (now_ms - v->restarts_ms > RESTARTS_MS) {
        v->restarts_ms = now_ms;
        v->restarts = 0;
    }
    return ++v->restarts <= RESTARTS_MAX;
}

static void vm_restart(struct box *b, const char *why) {
    if (b->made)
        b->m.rebooted = why;
    else if (b->m.on_reboot)
        b->m.on_reboot(b->m.on_arg, &b->m, why);
    vm_boot_same(b);
}

static void vm_end_heard(void *arg) {
    struct box *b = arg;
    struct vm_end *v = b->end;
    char word[VM_SAID_SIZE] = "";
    const char *why = "QEMU has ended";
    struct err err;
    bool restarts = false, known = false;
    ssize_t n = read(v->word, word, sizeof(word) - 1);
    loop_watch_free(TAKE(v->watch));
    loop_timer_free(TAKE(b->timer));
    close_fd(&v->word);
    for (size_t i = 0; n > 0 && i < sizeof(vm_ends) / sizeof(*vm_ends); i++)
        if (strcmp(word, vm_ends[i].word) == 0) {
            why = vm_ends[i].why;
            restarts = vm_ends[i].restarts;
            known = true;
        }
    /* One that was powered off while no daemon ran boots, too: else its newest files were lost. */
    if ((restarts && vm_may_restart(v, loop_now_ms(b->m.host->loop))) || (known && b->made)) {
        vm_restart(b, why);
        return;
    }
    if (restarts)
        err_set(&err, ERR_GONE, "it restarted more than %d times within %d minutes", RESTARTS_MAX,
                RESTARTS_MS / 60000);
    else
        err_set(&err, b->made ? ERR_NOT_FOUND : ERR_GONE, "%s", why);
    if (known)
        vm_stay_off(b); /* the guest is not connected again */
    if (!known || !b->m.on_off || !b->m.on_off(b->m.on_arg, &b->m, err.text))
        box_end(b, &err);
}

static void vm_end_readable(void *arg, unsigned events) {
    (void)events;
    vm_end_heard(arg);
}

void vm_look_end(struct box *b) {
    struct err err;
    if (!b->end) {
        b->end = xnew(struct vm_end);
        *b->end = (struct vm_end){.word = -1};
    }
    struct vm_end *v = b->end;
    if (v->watch)
        return;
    v->word = box_connect(b->m.host, b->m.id, "serial.sock");
    if (v->word < 0 || loop_watch_new(b->m.host->loop, v->word, LOOP_READ, vm_end_readable, b,
                                      &v->watch, &err) < 0)
        vm_end_heard(b);
    else
        box_after(b, WORD_MS, vm_end_heard);
}
