#include "tools/coproc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/sha256.h"
#include "tools/clip.h"

enum { INPUT_MAX = 9 << 20, WORDS_MAX = 7, PAIRS_MAX = 16, PIECE = 32 << 10 };

struct coproc {
    struct service *service;
    struct loop *loop;
    struct caller who;
    struct exec *exec; /* NULL: not started yet */
    struct exec_follower follower;
    struct coproc_events events;
    struct buf input; /* bytes that the command has not taken yet */
    struct buf line;  /* the beginning of a line */
    char line_end;    /* '\n' or NUL */
    size_t json_flags;
    uint64_t at;                    /* offset of the next byte of output */
    const char *fault;              /* why the command was killed */
    struct loop_call later;         /* starts the command, or looks at it */
    bool listens, paused, starting; /* starting: service_exec() has not answered */
    bool killed, ended;             /* ended: the function ended() was called */
    bool inside, freed;             /* inside: free it later, because its functions run */
    /* The request is used until coproc_started() is called. */
    struct exec_request request;
    char machine[ID_SIZE], name[STORE_NAME_SIZE];
    char *words[WORDS_MAX + 1], *pairs[PAIRS_MAX + 1], *command, *cwd, *user;
};

static void coproc_release(struct coproc *c) {
    exec_unfollow(&c->follower);
    if (c->exec)
        exec_unref(c->exec);
    for (size_t i = 0; i < WORDS_MAX; i++)
        free(c->words[i]);
    for (size_t i = 0; i < PAIRS_MAX; i++)
        free(c->pairs[i]);
    free(c->command);
    free(c->cwd);
    free(c->user);
    buf_done(&c->input);
    buf_done(&c->line);
    loop_call_cancel(c->loop, &c->later);
    free(c);
}

static void coproc_killed(void *arg, const struct err *err) {
    (void)arg;
    (void)err; /* an error means that the command has already ended */
}

void coproc_kill(struct coproc *c) {
    c->killed = true;
    if (c->exec && !exec_is_over(c->exec))
        exec_kill(c->exec, &c->who, coproc_killed, NULL);
}

void coproc_break(struct coproc *c, const char *fault) {
    if (!c->fault)
        c->fault = fault;
    coproc_kill(c);
}

static void coproc_flush(struct coproc *c) {
    struct err err;
    if (!c->input.len || !c->exec || exec_is_over(c->exec))
        return;
    ssize_t n = exec_write(c->exec, &c->who, exec_stdin_offset(c->exec), c->input.data,
                           c->input.len, false, &err);
    if (n > 0) /* an error means that the command ends; the follower is told */
        buf_drop(&c->input, (size_t)n);
}

/* ---- output ---- */

static void coproc_take(struct coproc *c, const char *bytes, size_t n) {
    while (n && c->listens && !c->freed && !c->fault) {
        const char *end = memchr(bytes, c->line_end, n);
        size_t part = end ? (size_t)(end - bytes) : n;
        if (!buf_add(&c->line, bytes, part)) {
            coproc_break(c, "it sent a line that is too long");
            return;
        }
        bytes += part + (end != NULL);
        n -= part + (end != NULL);
        if (!end)
            return;
        if (c->line.len)
            c->events.line(c->events.arg, c->line.data, c->line.len);
        c->line.len = 0;
    }
}

/* Returns an upper bound for the number of values of a JSON text, and reads no further than max. */
static size_t json_values(const char *text, size_t n, size_t max) {
    size_t count = 1;
    bool in_string = false;
    for (size_t i = 0; i < n && count <= max; i++) {
        if (text[i] == '"')
            in_string = !in_string;
        else if (in_string && text[i] == '\\')
            i++;
        else if (!in_string && (text[i] == ',' || text[i] == '[' || text[i] == '{'))
            count++;
    }
    return count;
}

json_t *coproc_json(struct coproc *c, const char *line, size_t n, size_t values) {
    if (json_values(line, n, values) <= values)
        return json_loadb(line, n, c->json_flags, NULL);
    coproc_break(c, "it sent a line with too many values");
    return NULL;
}

static void coproc_read(struct coproc *c) {
    const struct outlog *log = exec_log(c->exec);
    char piece[PIECE];
    struct outlog_piece p;
    while (log && c->listens && !c->paused && !c->freed && !c->fault) {
        p = outlog_read(log, 0, c->at, piece, sizeof(piece));
        if (!p.n)
            break;
        if (p.left_out) {
            coproc_break(c, "it sent more output than is kept");
            break;
        }
        c->at = p.offset + p.n;
        coproc_take(c, piece, p.n);
    }
    if (!c->freed)
        exec_consumed(c->exec);
}

static void coproc_look(struct coproc *c) {
    struct exec_view view;
    if (c->inside)
        return;
    c->inside = true;
    coproc_flush(c);
    coproc_read(c);
    if (!c->freed && c->listens && !c->paused && !c->ended && exec_is_over(c->exec)) {
        c->ended = true;
        exec_view(c->exec, &view);
        c->events.ended(c->events.arg, &view, NULL);
    }
    c->inside = false;
    if (c->freed)
        coproc_release(c);
}

static void coproc_changed(void *arg) {
    coproc_look(arg);
}

void coproc_listen(struct coproc *c, bool on) {
    if (on == c->listens)
        return;
    c->listens = on;
    if (!c->exec)
        return;
    if (on) {
        exec_follow(c->exec, &c->follower);
        loop_defer(c->loop, &c->later); /* for output that is there already */
    } else {
        exec_unfollow(&c->follower);
    }
}

void coproc_pause(struct coproc *c, bool on) {
    c->paused = on;
    if (!on)
        loop_defer(c->loop, &c->later);
}

/* ---- start and end ---- */

static void coproc_started(void *arg, struct exec *x, const struct err *err) {
    struct coproc *c = arg;
    c->starting = false;
    c->exec = x;
    if (x && (c->freed || c->killed))
        coproc_kill(c);
    if (c->freed) {
        coproc_release(c);
    } else if (err) {
        c->ended = true;
        c->events.ended(c->events.arg, NULL, err);
    } else {
        if (c->listens)
            exec_follow(x, &c->follower);
        else
            exec_needs_no_reader(x);
        coproc_look(c);
    }
}

/* Runs from the loop, so that no event comes before coproc_new() has returned. */
static void coproc_begin(void *arg) {
    static const uint8_t no_hash[SHA256_BYTES];
    struct coproc *c = arg;
    if (c->exec) {
        coproc_look(c);
    } else if (!c->starting && !c->ended) {
        c->starting = true;
        service_exec(c->service, &c->who, c->machine, &c->request, no_hash, NULL, 0, coproc_started,
                     c);
    }
}

static struct coproc *coproc_make(const struct coproc_place *place, const struct coproc_options *o,
                                  const struct coproc_events *events) {
    struct coproc *c = xnew(struct coproc);
    *c = (struct coproc){.service = place->service,
                         .loop = place->loop,
                         .who = *place->who,
                         .events = *events,
                         .input = BUF(INPUT_MAX),
                         .line = BUF(o->line_max),
                         .json_flags = o->json_flags,
                         .line_end = o->zero_ends ? '\0' : '\n',
                         .listens = true};
    c->follower = (struct exec_follower){
        .changed = coproc_changed, .arg = c, .wants_output = true, .consumed = {&c->at}};
    c->later = (struct loop_call){.fn = coproc_begin, .arg = c};
    loop_defer(c->loop, &c->later);
    return c;
}

static size_t coproc_copy(char **ret, const char *const *list, size_t n) {
    for (size_t i = 0; i < n; i++)
        ret[i] = xstrdup(list[i]);
    return n;
}

struct coproc *coproc_new(const struct coproc_place *place, const struct coproc_options *o,
                          const struct coproc_events *events) {
    struct coproc *c = coproc_make(place, o, events);
    size_t n = 0, pairs = 0;
    snprintf(c->machine, sizeof(c->machine), "%s", o->machine);
    snprintf(c->name, sizeof(c->name), "%s", o->name);
    while (o->argv && o->argv[n] && n < WORDS_MAX)
        n++;
    coproc_copy(c->words, o->argv, n);
    pairs = coproc_copy(c->pairs, o->pairs, o->pair_count < PAIRS_MAX ? o->pair_count : PAIRS_MAX);
    c->command = o->argv ? NULL : xstrdup(o->command);
    c->cwd = o->cwd ? xstrdup(o->cwd) : NULL;
    c->user = o->user ? xstrdup(o->user) : NULL;
    c->request = (struct exec_request){.argv = {(const char **)c->words, n},
                                       .command = c->command,
                                       .env = {(const char **)c->pairs, pairs},
                                       .cwd = c->cwd,
                                       .user = c->user,
                                       .name = c->name,
                                       .stdin_open = true,
                                       .paced = true,
                                       .lazy = true};
    return c;
}

struct coproc *coproc_adopt(const struct coproc_place *place, struct exec *x,
                            const struct coproc_options *o, const struct coproc_events *events) {
    struct coproc *c = coproc_make(place, o, events);
    const struct outlog *log = exec_log(x);
    c->exec = x;
    c->at = log ? outlog_extent(log, 0).produced : 0;
    exec_follow(x, &c->follower);
    return c;
}

struct coproc_search {
    const char *prefix, *name;
    char id[ID_SIZE]; /* "": not found */
    size_t count;
};

static void coproc_row(void *arg, const void *of) {
    struct coproc_search *s = arg;
    const struct exec_view *view = of;
    if (!view->name || strncmp(view->name, s->prefix, strlen(s->prefix)) != 0)
        return;
    s->count++;
    if (strcmp(view->name, s->name) == 0)
        snprintf(s->id, sizeof(s->id), "%s", view->id);
}

int coproc_find(const struct coproc_place *place, const char *machine, const char *prefix,
                const char *name, struct coproc_found *ret, struct err *err) {
    const struct list_request r = {.states = "running", .limit = STORE_PAGE_MAX};
    struct coproc_search s = {.prefix = prefix, .name = name};
    char next[CURSOR_SIZE];
    if (service_exec_list(place->service, place->who, machine, &r, coproc_row, &s, next, err) < 0)
        return -1;
    *ret = (struct coproc_found){
        .exec = s.id[0] ? service_exec_find(place->service, place->who, machine, s.id, NULL) : NULL,
        .count = s.count};
    return 0;
}

bool coproc_send(struct coproc *c, const char *bytes, size_t n) {
    if (!buf_add(&c->input, bytes, n))
        return false;
    coproc_flush(c);
    return true;
}

void coproc_answered(struct coproc *c) {
    if (c->exec)
        exec_answered(c->exec);
}

void coproc_free(struct coproc *c) {
    c->freed = true;
    if (!c->inside && !c->starting)
        coproc_release(c);
}

bool coproc_is_over(const struct coproc *c) {
    return c->exec ? exec_is_over(c->exec) : c->ended;
}

void coproc_last_error(const struct coproc *c, char *ret, size_t size) {
    const struct outlog *log = c->exec ? exec_log(c->exec) : NULL;
    ret[0] = '\0';
    if (log)
        clip_last_line(log, 1, ret, size);
}

const char *coproc_fault(const struct coproc *c) {
    return c->fault;
}
