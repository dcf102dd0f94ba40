#include "machine/guest.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "io/guest_link.h"
#include "machine/guest_inner.h"

static void on_event(void *arg, unsigned events);
static void on_later(void *arg);

/* ---- opening and freeing ---- */

/* Takes ownership of the link. */
static struct guest *open_link(struct loop *loop, struct guest_link *link, void (*on_gone)(void *),
                               void *arg, struct err *err) {
    struct guest *g = xnew(struct guest);
    g->loop = loop;
    g->on_gone = on_gone;
    g->arg = arg;
    g->armed = LOOP_READ;
    g->refusals_end = &g->refusals;
    g->later = (struct loop_call){.fn = on_later, .arg = g};
    g->link = link;
    if (loop_watch_new(loop, guest_link_fd(link), LOOP_READ, on_event, g, &g->watch, err) == 0)
        return g;
    guest_free(g);
    return NULL;
}

struct guest *guest_open(struct loop *loop, int sock, void (*on_gone)(void *arg), void *arg,
                         struct err *err) {
    return open_link(loop, guest_link_adopt(sock), on_gone, arg, err);
}

struct guest *guest_open_port(struct loop *loop, int sock, void (*on_gone)(void *arg), void *arg,
                              struct err *err) {
    struct guest *g = open_link(loop, guest_link_adopt_port(sock), on_gone, arg, err);
    if (g)
        guest_rearm(g); /* sends the mark that begins the connection, and HELLO */
    return g;
}

static void drop_refusals(struct guest *g) {
    while (g->refusals) {
        struct refusal *r = g->refusals;
        g->refusals = r->next;
        free(r);
    }
    g->refusals_end = &g->refusals;
}

/* From here on no callback is called and no memory of callers is touched. */
static void let_go_of_all(struct guest *g) {
    for (size_t i = 0; i < BUCKETS; i++)
        while (g->commands[i])
            guest_command_remove(g, g->commands[i]);
    while (g->watches)
        guest_watch_remove(g, g->watches);
    for (uint32_t i = 0; i < g->pending_cap; i++)
        g->pending[i].tag = 0;
    drop_refusals(g);
}

void guest_free(struct guest *g) {
    if (!g)
        return;
    let_go_of_all(g);
    g->is_freed = true;
    if (g->depth)
        return;
    loop_call_cancel(g->loop, &g->later);
    loop_timer_free(g->ack);
    loop_watch_free(g->watch);
    guest_link_free(g->link);
    free(g->pending);
    free(g);
}

bool guest_is_asked(const struct guest *g) {
    return g->pending_count || g->refusals;
}

uint64_t guest_incarnation(const struct guest *g) {
    return guest_link_incarnation(g->link);
}

uint32_t guest_features(const struct guest *g) {
    return guest_link_features(g->link);
}

bool guest_has_names(const struct guest *g) {
    return !guest_incarnation(g) || guest_features(g) & MSG_FEATURE_NAMES;
}

bool guest_is_cell(const struct guest *g) {
    return guest_incarnation(g) && guest_features(g) & MSG_FEATURE_CELL;
}

bool guest_takes_capabilities(const struct guest *g) {
    return guest_is_cell(g) && guest_features(g) & MSG_FEATURE_ALLOW;
}

bool guest_passes_asks(const struct guest *g) {
    return guest_is_cell(g) && guest_features(g) & MSG_FEATURE_ASKS;
}

bool guest_takes_modules(const struct guest *g) {
    return guest_passes_asks(g) && guest_features(g) & MSG_FEATURE_MODULE;
}

bool guest_passes_dump(const struct guest *g) {
    return guest_is_cell(g) && guest_features(g) & MSG_FEATURE_DUMP;
}

bool guest_stores_commands(const struct guest *g) {
    return guest_is_cell(g) && guest_features(g) & MSG_FEATURE_PAUSE;
}

bool guest_has_meta(const struct guest *g) {
    return !guest_incarnation(g) || guest_features(g) & MSG_FEATURE_META;
}

bool guest_keeps_logs(const struct guest *g) {
    return guest_features(g) & MSG_FEATURE_LOG_READ;
}

bool guest_has_copies(const struct guest *g) {
    return !guest_incarnation(g) || guest_features(g) & MSG_FEATURE_COPY;
}

void guest_on_call(struct guest *g, guest_call_fn *fn) {
    g->on_call = fn;
}

void guest_call_answer(struct guest *g, uint32_t id, uint8_t status, const char *text, size_t n) {
    const struct msg_call_answer m = {
        status,
        {(const uint8_t *)text, (uint32_t)(n < MSG_CALL_ANSWER_MAX ? n : MSG_CALL_ANSWER_MAX)}};
    guest_tell(g, (struct frame_head){.type = MSG_CALL_ANSWER, .id = id}, &m, NULL);
}

const struct err *guest_why_gone(const struct guest *g) {
    return g->is_gone ? &g->why : NULL;
}

uint32_t guest_take_fds(struct guest *g, const struct frame *frame, int *ret, uint32_t max) {
    return guest_link_take_fds(g->link, frame, ret, max);
}

size_t guest_backlog(const struct guest *g) {
    return guest_link_backlog(g->link);
}

/* A callback may free the guest; between enter and leave it stays allocated. */
static void guest_enter(struct guest *g) {
    g->depth++;
}

static void guest_leave(struct guest *g) {
    if (--g->depth == 0 && g->is_freed)
        guest_free(g);
}

static bool guest_is_over(const struct guest *g) {
    return g->is_gone || g->is_freed;
}

/* ---- sending ---- */

void guest_rearm(struct guest *g) {
    unsigned want = LOOP_READ | (guest_link_backlog(g->link) && !g->ack_waits ? LOOP_WRITE : 0u);
    if (want == g->armed || g->is_gone)
        return;
    g->armed = want;
    loop_watch_set(g->watch, want);
}

/*
 * on_later() fails everything that waits for this guest. The connection ends now: a vm takes one at
 * a time, and the next one is opened before this guest is freed.
 */
void guest_lose(struct guest *g, const struct err *why) {
    if (g->is_gone)
        return;
    g->is_gone = true;
    g->why = *why;
    loop_watch_free(TAKE(g->watch));
    guest_link_hang_up(g->link);
    loop_defer(g->loop, &g->later);
}

/*
 * Sending failed. If the guest could not start, it said why before it closed the connection: that
 * is the cause.
 */
static void guest_lose_after_send(struct guest *g, const struct err *why) {
    struct frame f;
    struct err said;
    bool failed = !guest_incarnation(g) && guest_link_next(g->link, &f, &said) < 0;
    guest_lose(g, failed && said.code != ERR_GONE ? &said : why);
}

int guest_dispatch(struct guest *g, const struct frame_head *head, const void *msg, const int *fds,
                   uint32_t nfds, struct err *err) {
    struct err why = {0};
    if (g->is_gone) {
        *err = g->why;
        err->code = ERR_GONE;
        return -1;
    }
    g->ack_waits = false;
    int r = guest_link_send(g->link, head, msg, fds, nfds, &why);
    if (r < 0 && why.code != ERR_LIMIT && why.code != ERR_INVALID && why.code != ERR_UNSUPPORTED)
        guest_lose_after_send(g, &why);
    if (r < 0)
        *err = why;
    guest_rearm(g);
    return r;
}

int guest_tell(struct guest *g, struct frame_head head, const void *msg, struct err *err) {
    struct err why;
    head.tag = 0;
    if (guest_dispatch(g, &head, msg, NULL, 0, &why) == 0)
        return 0;
    if (err)
        *err = why;
    return -1;
}

struct refusal *guest_refuse(struct guest *g, const struct err *err) {
    struct refusal *r = xnew(struct refusal);
    r->err = *err;
    *g->refusals_end = r;
    g->refusals_end = &r->next;
    loop_defer(g->loop, &g->later);
    return r;
}

/* ---- requests ---- */

static void grow_pending(struct guest *g) {
    uint32_t cap = g->pending_cap ? 2 * g->pending_cap : PENDING_FIRST;
    struct pending *more = xrealloc(g->pending, cap, sizeof(*more));
    memset(more + g->pending_cap, 0, (cap - g->pending_cap) * sizeof(*more));
    g->pending = more;
    g->place = g->pending_cap;
    g->pending_cap = cap;
}

/* Allocates a slot for a request, with a new tag (number). NULL: too many requests are pending. */
static struct pending *pending_new(struct guest *g) {
    if (g->pending_count == g->pending_cap && g->pending_cap == PENDING_MAX)
        return NULL;
    if (g->pending_count == g->pending_cap)
        grow_pending(g);
    while (g->pending[g->place].tag)
        g->place = (g->place + 1) % g->pending_cap;
    g->turn = (g->turn + 1) & (UINT32_MAX >> (PLACE_BITS + 1));
    g->pending_count++;
    g->pending[g->place] = (struct pending){.tag = (g->turn + 1) << PLACE_BITS | g->place};
    return &g->pending[g->place];
}

static struct pending *pending_find(struct guest *g, uint32_t tag) {
    uint32_t place = tag & ((1u << PLACE_BITS) - 1);
    return place < g->pending_cap && g->pending[place].tag == tag ? &g->pending[place] : NULL;
}

static struct pending pending_take(struct guest *g, struct pending *p) {
    struct pending taken = *p;
    p->tag = 0;
    g->pending_count--;
    return taken;
}

/* The most bytes that the reply to a request may have. */
static uint32_t most_bytes(uint16_t type, const void *msg) {
    if (type == MSG_LOG_READ)
        return ((const struct msg_log_read *)msg)->bytes;
    return type == MSG_READ ? ((const struct msg_read *)msg)->bytes : 0;
}

void guest_request(struct guest *g, struct frame_head head, const void *msg, const int *fds,
                   uint32_t nfds, guest_reply_fn *done, void *arg) {
    struct err err;
    struct pending *p = pending_new(g);
    if (p) {
        head.tag = p->tag;
        p->type = head.type;
        p->most = most_bytes(head.type, msg);
        p->done = done;
        p->arg = arg;
        if (guest_dispatch(g, &head, msg, fds, nfds, &err) == 0)
            return;
        pending_take(g, p);
    } else {
        err_set(&err, ERR_LIMIT, "too many requests to the guest are pending");
    }
    struct refusal *r = guest_refuse(g, &err);
    r->done = done;
    r->arg = arg;
}

/* ---- received frames: each handler returns -1 for an invalid frame ---- */

typedef int frame_fn(struct guest *g, const struct frame *f);

/* EXEC and ATTACH have one reply. It may come after the command was forgotten here. */
static int command_answered(struct guest_command *c, uint32_t tag) {
    if (c && c->awaits != tag)
        return -1;
    if (c)
        c->awaits = 0;
    return 0;
}

/* Handles MSG_OK and MSG_ERROR as the reply to EXEC or ATTACH. */
static int command_answer(struct guest *g, const struct frame *f) {
    struct guest_command *c = guest_command_find(g, f->head.id);
    struct err err;
    if (command_answered(c, f->head.tag) < 0)
        return -1;
    if (!c || f->head.type == MSG_OK)
        return 0;
    guest_link_error(f, &err);
    guest_command_remove(g, c);
    if (c->refused)
        c->refused(c->arg, &err);
    return 0;
}

static int log_answer(struct guest *g, const struct frame *f) {
    struct guest_command *c = guest_command_find(g, f->head.id);
    struct msg_log m;
    bool failed = f->head.type == MSG_ERROR;
    if ((!failed && msg_get_log_grew(f, &m) < 0) || (c && !c->log_waits))
        return -1;
    if (c)
        c->log_waits--;
    if (c && c->grew)
        c->grew(c->arg, failed ? NULL : &m);
    return 0;
}

static int watch_answer(struct guest *g, const struct frame *f) {
    struct guest_watch *w = guest_watch_find(g, f->head.id);
    struct err err;
    if (w && !w->awaits)
        return -1;
    if (w)
        w->awaits = false;
    if (w && f->head.type == MSG_OK && w->ready)
        w->ready(w->arg);
    if (!w || f->head.type == MSG_OK)
        return 0;
    guest_link_error(f, &err);
    guest_watch_remove(g, w);
    if (w->ended)
        w->ended(w->arg, &err);
    return 0;
}

/* As is_too_much(), for the output of a command. */
static bool log_is_too_much(const struct pending *p, const struct frame *f) {
    struct msg_log_data m;
    return f->head.type == MSG_LOG_DATA && (msg_get_log_data(f, &m) < 0 || m.data.n > p->most);
}

/* A reply longer than requested would overflow the receiver. */
static bool is_too_much(const struct pending *p, const struct frame *f) {
    struct msg_read_data m;
    return f->head.type == MSG_READ_DATA && (msg_get_read_data(f, &m) < 0 || m.data.n > p->most);
}

static int reply(struct guest *g, const struct frame *f) {
    struct pending *p = pending_find(g, f->head.tag);
    struct err err;
    if (!p || is_too_much(p, f) || log_is_too_much(p, f))
        return -1;
    struct pending taken = pending_take(g, p);
    bool failed = f->head.type == MSG_ERROR;
    if (failed)
        guest_link_error(f, &err);
    if (taken.done)
        taken.done(taken.arg, failed ? NULL : f, failed ? &err : NULL);
    return 0;
}

static int guest_answer(struct guest *g, const struct frame *f) {
    switch (f->head.tag) {
    case TAG_EXEC:
    case TAG_ATTACH:
        return command_answer(g, f);
    case TAG_WATCH:
        return watch_answer(g, f);
    case TAG_LOG:
        return log_answer(g, f);
    default:
        return reply(g, f);
    }
}

static int take_started(struct guest *g, const struct frame *f) {
    struct msg_started m;
    struct guest_command *c = guest_command_find(g, f->head.id);
    if (msg_get_started(f, &m) < 0 || command_answered(c, f->head.tag) < 0)
        return -1;
    if (c && c->started)
        c->started(c->arg, &m);
    return 0;
}

static int take_failed(struct guest *g, const struct frame *f) {
    struct msg_exec_failed m;
    struct guest_command *c = guest_command_find(g, f->head.id);
    if (msg_get_failed(f, &m) < 0 || command_answered(c, f->head.tag) < 0)
        return -1;
    if (!c)
        return 0;
    guest_command_remove(g, c);
    if (c->failed)
        c->failed(c->arg, &m);
    return 0;
}

static int take_data(struct guest *g, const struct frame *f) {
    struct msg_data m;
    struct guest_command *c = guest_command_find(g, f->head.id);
    bool is_output = f->head.type == MSG_STDOUT;
    if ((is_output ? msg_get_output : msg_get_errors)(f, &m) < 0)
        return -1;
    if (c && c->data)
        c->data(c->arg, is_output ? 1 : 2, m.offset, m.data.p, m.data.n, f->head.flags & FRAME_EOF);
    return 0;
}

static int take_credit(struct guest *g, const struct frame *f) {
    struct msg_credit m;
    struct guest_command *c = guest_command_find(g, f->head.id);
    if (msg_get_credit(f, &m) < 0 || m.stream != 0)
        return -1;
    if (c && c->credit)
        c->credit(c->arg, m.consumed);
    return 0;
}

static int take_exit(struct guest *g, const struct frame *f) {
    struct msg_exit m;
    struct guest_command *c = guest_command_find(g, f->head.id);
    if (msg_get_exit(f, &m) < 0)
        return -1;
    if (!c || c->has_exited)
        return 0;
    c->has_exited = true;
    if (c->awaits == TAG_EXEC)
        c->awaits = 0; /* a quiet command gets no reply but its exit */
    if (c->exited)
        c->exited(c->arg, &m);
    return 0;
}

static int take_fuel(struct guest *g, const struct frame *f) {
    struct msg_fuel m;
    struct guest_command *c = guest_command_find(g, f->head.id);
    if (msg_get_fuel(f, &m) < 0)
        return -1;
    if (c && !c->has_exited && c->fuel)
        c->fuel(c->arg, m.used);
    return 0;
}

static int take_call(struct guest *g, const struct frame *f) {
    struct msg_call m;
    if (msg_get_call(f, &m) < 0 || m.words.n > MSG_CALL_MAX || !m.left != (m.words.n > 0))
        return -1;
    if (g->on_call)
        g->on_call(g->arg, g, f->head.id, &m.words);
    else if (m.words.n)
        guest_call_answer(g, f->head.id, MSG_CALL_AGAIN, NULL, 0);
    return 0;
}

/* Id 0 means that events of unknown watches were lost: notify every watch. */
static int take_event(struct guest *g, const struct frame *f) {
    struct msg_event m;
    uint32_t ids[WATCHES_MAX];
    size_t count = 0;
    if (msg_get_event(f, &m) < 0)
        return -1;
    for (struct guest_watch *w = g->watches; w; w = w->next)
        if (f->head.id == 0 || f->head.id == w->id)
            ids[count++] = w->id;
    for (size_t i = 0; i < count && !guest_is_over(g); i++) {
        struct guest_watch *w = guest_watch_find(g, ids[i]);
        if (w && w->event)
            w->event(w->arg, &m);
    }
    return 0;
}

/* Type of the pending request with that tag; 0: none. */
static uint16_t kind_asked(struct guest *g, uint32_t tag) {
    switch (tag) {
    case TAG_EXEC:
        return MSG_EXEC;
    case TAG_ATTACH:
        return MSG_ATTACH;
    case TAG_WATCH:
        return MSG_WATCH;
    case TAG_LOG:
        return MSG_LOG_WAIT;
    default: {
        const struct pending *p = pending_find(g, tag);
        return p ? p->type : 0;
    }
    }
}

/* A reply must have a tag, and its type must fit the request with that tag. */
static bool fits_request(struct guest *g, const struct frame *f) {
    if (f->head.tag == 0)
        return f->head.type != MSG_EXEC_STARTED && f->head.type != MSG_EXEC_FAILED;
    uint16_t asked = kind_asked(g, f->head.tag);
    return asked && msg_answers(asked, f->head.type);
}

static frame_fn *handler_of(struct guest *g, const struct frame *f) {
    static frame_fn *const about_commands[] = {
        [MSG_EXEC_STARTED] = take_started,
        [MSG_EXEC_FAILED] = take_failed,
        [MSG_STDOUT] = take_data,
        [MSG_STDERR] = take_data,
        [MSG_CREDIT] = take_credit,
        [MSG_EXIT] = take_exit,
        [MSG_EVENT] = take_event,
        [MSG_FUEL] = take_fuel,
        [MSG_CALL] = take_call,
    };
    size_t count = sizeof(about_commands) / sizeof(*about_commands);
    if (!fits_request(g, f))
        return NULL;
    if (f->head.type < count && about_commands[f->head.type])
        return about_commands[f->head.type];
    return f->head.tag ? guest_answer : NULL;
}

static void take_frames(struct guest *g) {
    struct frame f;
    struct err err = {0};
    int r = 0;
    while (!guest_is_over(g) && (r = guest_link_received(g->link, &f, &err)) == 1) {
        frame_fn *handle = guest_incarnation(g) ? handler_of(g, &f) : NULL;
        if (handle && handle(g, &f) == 0)
            continue;
        err_set(&err, ERR_INTERNAL, "the guest of the machine sent an invalid message %s",
                msg_type_name(f.head.type));
        r = -1;
        break;
    }
    if (r < 0 && !guest_is_over(g))
        guest_lose(g, &err);
}

static void on_event(void *arg, unsigned events) {
    struct guest *g = arg;
    struct err err = {0};
    guest_enter(g);
    int r = 0;
    if (events & LOOP_ERROR)
        g->armed =
            0; /* the loop stopped this watch; still read what the guest sent before it closed */
    if (events & LOOP_WRITE && guest_link_flush(g->link, &err) < 0)
        guest_lose_after_send(g, &err);
    else if (events & ~(unsigned)LOOP_WRITE)
        r = guest_link_receive(g->link, &err);
    if (r < 0)
        guest_lose(g, &err);
    else if (r > 0)
        take_frames(g);
    if (!guest_is_over(g))
        guest_rearm(g);
    guest_leave(g);
}

/* ---- end of the connection, and requests refused at once ---- */

static void tell_refusals(struct guest *g) {
    while (g->refusals && !g->is_freed) {
        struct refusal *r DEFER_FREE = g->refusals;
        g->refusals = r->next;
        if (!g->refusals)
            g->refusals_end = &g->refusals;
        if (r->done)
            r->done(r->arg, NULL, &r->err);
        if (r->command && r->command->refused)
            r->command->refused(r->command->arg, &r->err);
        if (r->log_of && r->log_of->grew)
            r->log_of->grew(r->log_of->arg, NULL);
        if (r->watch && r->watch->ended)
            r->watch->ended(r->watch->arg, &r->err);
    }
}

/* A lost read request had no effect; a lost change may have happened. */
static bool only_looks(uint16_t type) {
    static const uint16_t types[] = {MSG_PING, MSG_TABLE, MSG_BUSY,     MSG_STAT,
                                     MSG_LIST, MSG_READ,  MSG_LOG_READ, MSG_META};
    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
        if (types[i] == type)
            return true;
    return false;
}

static void end_pending(struct guest *g) {
    for (uint32_t i = 0; i < g->pending_cap && !g->is_freed; i++) {
        if (!g->pending[i].tag)
            continue;
        struct pending p = pending_take(g, &g->pending[i]);
        struct err err = g->why;
        err.code = only_looks(p.type) ? ERR_GONE : ERR_UNKNOWN;
        if (p.done)
            p.done(p.arg, NULL, &err);
    }
}

static void end_commands(struct guest *g) {
    for (size_t i = 0; i < BUCKETS && !g->is_freed; i++)
        while (g->commands[i] && !g->is_freed) {
            struct guest_command *c = g->commands[i];
            struct err err = g->why;
            err.code = ERR_UNKNOWN;
            guest_command_remove(g, c);
            if (c->lost)
                c->lost(c->arg, &err);
        }
}

static void end_watches(struct guest *g) {
    while (g->watches && !g->is_freed) {
        struct guest_watch *w = g->watches;
        struct err err = g->why;
        err.code = ERR_GONE;
        guest_watch_remove(g, w);
        if (w->ended)
            w->ended(w->arg, &err);
    }
}

static void on_later(void *arg) {
    struct guest *g = arg;
    guest_enter(g);
    tell_refusals(g);
    if (g->is_gone && !g->is_told && !g->is_freed) {
        g->is_told = true;
        end_pending(g);
        end_commands(g);
        end_watches(g);
        if (g->on_gone && !g->is_freed)
            g->on_gone(g->arg);
    }
    guest_leave(g);
}

void guest_cut(struct guest *g, const struct err *why) {
    g->on_gone = NULL;
    guest_lose(g, why);
    on_later(g);
}
