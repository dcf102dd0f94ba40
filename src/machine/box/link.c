/* The connection to the guest of a box: opened, confirmed, and opened again after a loss. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "machine/box/inner.h"

enum {
    CONNECT_STEP_MS = 20,
    CONNECT_SLOW_MS = 500,
    CONNECT_TRIES = 60,
    CONFIRM_MS = 30000,
    SLOW_MS = 2000,
};

int box_connect(struct machine_host *h, const char *id, const char *name) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (h->boxes < 0) {
        char path[PLACE_SIZE + 8];
        snprintf(path, sizeof(path), "%s/boxes", h->place.run);
        h->boxes = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    int fd DEFER_CLOSE = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (h->boxes < 0 || fd < 0)
        return -errno;
    /* Connect through the descriptor: the path may exceed the limit of a socket address. */
    snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/%s/%s", h->boxes, id, name);
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
        return TAKE_FD(fd);
    int e = errno;
    if (e == ENOENT)
        close_fd(&h->boxes); /* another spawner may have created the directory again */
    return -e;
}

void box_after(struct box *b, uint64_t ms, loop_fn *fn) {
    loop_timer_free(b->timer);
    b->timer = loop_timer_new(b->m.host->loop, fn, b);
    loop_timer_start(b->timer, ms, 0);
}

/* Requests to the old guest in this turn of the loop get their reply before it is freed. */
void box_retire_old(void *arg) {
    struct box *b = arg;
    guest_free(TAKE(b->old));
}

void box_use_fresh(struct box *b) {
    loop_timer_free(TAKE(b->timer));
    guest_free(b->old);
    b->old = b->m.guest;
    b->m.guest = TAKE(b->fresh);
    loop_defer(b->m.host->loop, &b->retire);
    if (b->made)
        box_made(b);
    else if (b->m.on_back)
        b->m.on_back(b->m.on_arg, &b->m);
}

static void on_first_word(void *arg, const struct frame *frame, const struct err *err) {
    struct box *b = arg;
    (void)err; /* box_on_gone() is called next */
    if (!frame)
        return;
    b->tries = 0;
    if (b->fresh) /* otherwise on_slow() has used it already */
        box_use_fresh(b);
}

/* A guest may be busy. The adopted machine is returned anyway, so that it can be frozen or ended.
 */
static void on_slow(void *arg) {
    struct box *b = arg;
    if (b->made && b->fresh) /* otherwise box_on_gone() checks whether the machine has ended */
        box_use_fresh(b);
}

/* An adopt fails after a while; the connection to our own machine is retried as long as it lives.
 */
static void try_later(struct box *b) {
    struct err err;
    if (b->made && b->tries >= CONNECT_TRIES) {
        err_set(&err, ERR_BUSY, "the guest of machine '%s' does not accept connections", b->m.id);
        box_give_up(b, &err);
        return;
    }
    uint64_t ms = ++b->tries < 50 ? CONNECT_STEP_MS : CONNECT_SLOW_MS;
    box_after(b, ms, box_link_again);
}

/* Connects for `adopt`, and after the connection to a live machine was lost. */
void box_link_again(void *arg) {
    struct box *b = arg;
    struct err err;
    int fd = box_connect(b->m.host, b->m.id, b->vm ? "port.sock" : "guest.sock");
    if (fd == -ECONNREFUSED && b->vm) {
        vm_look_end(b);
        return;
    }
    if (fd == -ENOENT || fd == -ECONNREFUSED) {
        err_set(&err, b->made ? ERR_NOT_FOUND : ERR_GONE, "machine '%s' has ended", b->m.id);
        box_end(b, &err);
        return;
    }
    b->fresh = fd < 0  ? NULL
               : b->vm ? guest_open_port(b->m.host->loop, fd, box_on_gone, b, &err)
                       : guest_open(b->m.host->loop, fd, box_on_gone, b, &err);
    if (!b->fresh) {
        try_later(b);
        return;
    }
    guest_on_call(b->fresh, box_on_call);
    box_after(b, SLOW_MS, on_slow);
    guest_request(b->fresh, (struct frame_head){.type = MSG_PING}, NULL, NULL, 0, on_first_word, b);
}

/* On a connection that is not used yet, the caller has to call again. */
void box_on_call(void *arg, struct guest *g, uint32_t id, const struct msg_bytes *words) {
    struct box *b = arg;
    if (g == b->m.guest && b->m.on_call)
        b->m.on_call(b->m.on_arg, &b->m, id, words);
    else if (words->n)
        guest_call_answer(g, id, MSG_CALL_AGAIN, NULL, 0);
}

static void on_alive(void *arg, const struct plan_message *m, struct fd_message *fds,
                     const struct err *err) {
    (void)fds;
    struct call *c = arg;
    struct box *b = c->box;
    struct err gone;
    call_free(c);
    if (!b)
        return;
    if (err || (m->row_count == 1 && m->rows[0].stats.exists)) {
        try_later(b);
        return;
    }
    err_set(&gone, b->made ? ERR_NOT_FOUND : ERR_GONE, "machine '%s' has ended", b->m.id);
    box_end(b, &gone);
}

/*
 * A closed connection does not prove that the machine has ended, because a guest accepts only a
 * limited number of connections. A machine whose guest broke the protocol is ended; a new box whose
 * guest died is created again. For a machine that is ending there is nothing to find out.
 */
void box_on_gone(void *arg) {
    struct box *b = arg;
    if (vm_outer_is_gone(b) || vm_box_is_gone(b))
        return;
    struct guest *g = b->fresh ? b->fresh : b->m.guest;
    struct err why = *guest_why_gone(g);
    bool is_fresh = b->fresh != NULL;
    guest_free(TAKE(b->fresh));
    if (b->m.is_ending)
        return;
    if (vm_is_booting(b->vm)) {
        if (is_fresh) /* else the vm was ended, to boot again */
            vm_on_gone(b, &why);
        return;
    }
    if (b->confirming && why.code == ERR_GONE) {
        err_set(&why, ERR_GONE, "machine '%s' died while it was created", b->m.id);
        err_remedy(&why, "create the machine again");
    }
    if (b->confirming && why.code == ERR_GONE) {
        box_create_again(b, &why);
    } else if (why.code == ERR_INTERNAL || b->confirming) {
        box_end(b, &why);
    } else if (why.code == ERR_UNSUPPORTED && b->made) {
        box_give_up(b, &why);
    } else {
        struct plan_message *m = box_message(b->m.host, PLAN_STATS, "");
        memcpy(m->rows[m->row_count++].id, b->m.id, ID_SIZE);
        spawner_ask(b->m.host->spawner, m, NULL, 0, on_alive, call_new(&b->m, NULL));
    }
}

/* ---- confirmation of a new box ---- */

static void on_confirmed(void *arg, const struct frame *frame, const struct err *err) {
    struct box *b = arg;
    (void)err; /* box_on_gone() is called next */
    if (!frame)
        return;
    b->confirming = false;
    loop_timer_free(TAKE(b->timer));
    box_creation_free(TAKE(b->creation));
    if (b->vm)
        vm_start(b);
    else
        box_made(b);
}

static void on_silence(void *arg) {
    struct box *b = arg;
    struct err err;
    err_set(&err, ERR_TIMEOUT, "the guest of machine '%s' does not respond", b->m.id);
    box_end(b, &err);
}

/* Delays `made` until the first reply of the guest. */
void box_confirm(struct box *b) {
    guest_request(b->m.guest, (struct frame_head){.type = MSG_PING}, NULL, NULL, 0, on_confirmed,
                  b);
    b->confirming = true;
    box_after(b, CONFIRM_MS, on_silence);
}
