/* Commands that are followed in a guest, and paths that are watched there. */

#include "io/guest_link.h"
#include "machine/guest.h"
#include "machine/guest_inner.h"

/* ---- commands ---- */

static struct guest_command **bucket(struct guest *g, uint32_t id) {
    return &g->commands[(id * 2654435761u) >> 26]; /* BUCKETS = 2^6 */
}

struct guest_command *guest_command_find(struct guest *g, uint32_t id) {
    struct guest_command *c = *bucket(g, id);
    while (c && c->id != id)
        c = c->next;
    return c;
}

bool guest_follows(struct guest *g, uint32_t id) {
    return guest_command_find(g, id);
}

void guest_command_remove(struct guest *g, struct guest_command *c) {
    for (struct guest_command **at = bucket(g, c->id); *at; at = &(*at)->next)
        if (*at == c) {
            *at = c->next;
            g->command_count--;
            break;
        }
    c->next = NULL;
    c->in = NULL;
}

static int command_add(struct guest *g, struct guest_command *c, struct err *err) {
    if (c->id == 0 || guest_command_find(g, c->id))
        return err_set(err, ERR_EXISTS, "command number %u of the machine is already in use",
                       c->id);
    if (g->command_count == COMMANDS_MAX)
        return err_set(err, ERR_LIMIT, "too many commands run in the machine");
    struct guest_command **at = bucket(g, c->id);
    c->next = *at;
    c->in = g;
    c->has_exited = false;
    c->awaits = 0;
    c->log_waits = 0;
    *at = c;
    g->command_count++;
    return 0;
}

static void start_following(struct guest *g, struct guest_command *c, struct frame_head head,
                            const void *msg, const int *fds, uint32_t nfds) {
    struct err err;
    int r = command_add(g, c, &err);
    if (r == 0) {
        c->awaits = head.tag;
        r = guest_dispatch(g, &head, msg, fds, nfds, &err);
        if (r < 0)
            guest_command_remove(g, c);
    }
    if (r < 0)
        guest_refuse(g, &err)->command = c;
}

void guest_exec(struct guest *g, struct guest_command *c, const struct msg_exec *exec,
                const int *fds, uint32_t nfds) {
    struct frame_head head = {.type = MSG_EXEC, .id = c->id, .tag = TAG_EXEC};
    start_following(g, c, head, exec, fds, nfds);
}

void guest_attach(struct guest *g, struct guest_command *c, const struct msg_attach *attach) {
    struct frame_head head = {.type = MSG_ATTACH, .id = c->id, .tag = TAG_ATTACH};
    start_following(g, c, head, attach, NULL, 0);
}

void guest_log_wait(struct guest *g, struct guest_command *c, const struct msg_log *seen) {
    struct frame_head head = {.type = MSG_LOG_WAIT, .id = c->id, .tag = TAG_LOG};
    struct err err;
    if (c->in != g)
        return;
    if (guest_dispatch(g, &head, seen, NULL, 0, &err) == 0)
        c->log_waits++;
    else if (!g->is_gone)
        guest_refuse(g, &err)->log_of = c;
}

static void on_ack(void *arg) {
    struct guest *g = arg;
    struct err err;
    g->ack_waits = false;
    if (!g->is_gone && guest_link_flush(g->link, &err) < 0)
        guest_lose(g, &err);
    guest_rearm(g);
}

/* If the acknowledgement is lost, the next reader of the guest's command table repeats it. */
static void acknowledge(struct guest *g, uint32_t id) {
    bool idle = guest_link_backlog(g->link) == 0;
    struct frame_head head = {.type = MSG_EXIT_ACK, .id = id};
    if (g->is_gone || guest_link_queue(g->link, &head, NULL, NULL) < 0 || !idle)
        return;
    g->ack_waits = true;
    if (!g->ack)
        g->ack = loop_timer_new(g->loop, on_ack, g);
    loop_timer_start(g->ack, ACK_MS, 0);
}

static void drop_refusals_of(struct guest *g, const void *what) {
    for (struct refusal *r = g->refusals; r; r = r->next)
        if (r->command == what || r->watch == what || r->log_of == what) {
            r->command = r->log_of = NULL;
            r->watch = NULL;
        }
}

void guest_forget(struct guest *g, struct guest_command *c, bool ack) {
    drop_refusals_of(g, c);
    if (c->in != g)
        return;
    guest_command_remove(g, c);
    if (ack)
        acknowledge(g, c->id);
}

/* ---- watches ---- */

struct guest_watch *guest_watch_find(struct guest *g, uint32_t id) {
    struct guest_watch *w = g->watches;
    while (w && w->id != id)
        w = w->next;
    return w;
}

bool guest_watch_remove(struct guest *g, struct guest_watch *w) {
    for (struct guest_watch **at = &g->watches; *at; at = &(*at)->next)
        if (*at == w) {
            *at = w->next;
            w->next = NULL;
            g->watch_count--;
            return true;
        }
    return false;
}

void guest_watch(struct guest *g, struct guest_watch *w, const struct msg_path *path) {
    struct frame_head head = {.type = MSG_WATCH, .id = w->id, .tag = TAG_WATCH};
    struct err err;
    int r = 0;
    if (w->id == 0 || guest_watch_find(g, w->id))
        r = err_set(&err, ERR_EXISTS, "watch number %u of the machine is already in use", w->id);
    else if (g->watch_count == WATCHES_MAX)
        r = err_set(&err, ERR_LIMIT, "too many watched paths: at most %d", WATCHES_MAX);
    if (r == 0)
        r = guest_dispatch(g, &head, path, NULL, 0, &err);
    if (r < 0) {
        guest_refuse(g, &err)->watch = w;
        return;
    }
    w->awaits = true;
    w->next = g->watches;
    g->watches = w;
    g->watch_count++;
}

void guest_unwatch(struct guest *g, struct guest_watch *w) {
    drop_refusals_of(g, w);
    if (guest_watch_remove(g, w) && !g->is_gone)
        guest_tell(g, (struct frame_head){.type = MSG_UNWATCH, .id = w->id}, NULL, NULL);
}
