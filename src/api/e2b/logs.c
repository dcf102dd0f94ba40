/* The log of a sandbox: when its commands started and ended. Their output is not part of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/e2b/inner.h"
#include "base/alloc.h"
#include "base/defer.h"
#include "base/parse.h"
#include "base/utf8.h"
#include "service/exec/exec.h"

enum { COMMANDS_MAX = 1000, PAGE_MAX = 1000, WORDS_MAX = 500 };

struct log_entry {
    uint64_t ms;
    size_t order; /* of entries of the same time */
    bool is_error;
    char *message, *command;
};

/* What a client asks for, and what is found. */
struct sandbox_log {
    uint64_t since_ms, limit;
    bool has_since, errors_only, backward;
    char *search;
    struct log_entry entries[2 * COMMANDS_MAX];
    size_t count;
};

static void log_free(struct sandbox_log *l) {
    for (size_t i = 0; i < l->count; i++) {
        free(l->entries[i].message);
        free(l->entries[i].command);
    }
    free(l->search);
    free(l);
}

/* ---- entries ---- */

/* Commands come newest first: an earlier one is before a later one, and its start before its end.
 */
static void entry_add(struct sandbox_log *l, const struct exec_view *v, bool is_end, bool is_error,
                      char *message) {
    size_t at = l->count++;
    l->entries[at] = (struct log_entry){.ms = is_end ? v->ended_ms : v->started_ms,
                                        .order = 2 * (2 * COMMANDS_MAX - at) + (is_end ? 3 : 0),
                                        .is_error = is_error,
                                        .message = message,
                                        .command = xstrdup(v->id)};
}

static void command_came(void *arg, const void *view) {
    struct sandbox_log *l = arg;
    const struct exec_view *v = view;
    if (l->count + 2 > 2 * COMMANDS_MAX)
        return;
    size_t n = strlen(v->argv);
    char *words DEFER_FREE = xstrndup(v->argv, n > WORDS_MAX ? utf8_end(v->argv, WORDS_MAX) : n);
    entry_add(l, v, false, false, xformat("command started: %s", words));
    if (!v->ended_ms)
        return;
    char *how DEFER_FREE = v->end == EXEC_END_EXIT
                               ? xformat("with status %lld", (long long)v->status)
                               : xformat("(%s)", v->reason ? v->reason : v->state);
    entry_add(l, v, true, v->status != 0, xformat("command ended %s: %s", how, words));
}

static int entry_compare(const void *a, const void *b) {
    const struct log_entry *x = a, *y = b;
    if (x->ms != y->ms)
        return x->ms < y->ms ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

static bool entry_asked(const struct sandbox_log *l, const struct log_entry *e) {
    bool in_time = !l->has_since || (l->backward ? e->ms <= l->since_ms : e->ms >= l->since_ms);
    return in_time && (e->is_error || !l->errors_only) &&
           (!l->search || strstr(e->message, l->search));
}

/* ---- the request ---- */

static int log_number(const struct e2b_call *c, const char *name, uint64_t max, uint64_t *ret,
                      bool *ret_given, struct err *err) {
    char *text DEFER_FREE = NULL;
    int given = e2b_query(c, name, &text, err);
    *ret_given = given > 0;
    if (given > 0 && parse_u64(text, 0, max, ret, err) < 0)
        return err_wrap(err, "query parameter '%s'", name);
    return given < 0 ? -1 : 0;
}

static int log_read(const struct e2b_call *c, const char *since, struct sandbox_log *l,
                    struct err *err) {
    char *level DEFER_FREE = NULL, *direction DEFER_FREE = NULL;
    bool given;
    l->limit = PAGE_MAX;
    if (log_number(c, since, INT64_MAX, &l->since_ms, &l->has_since, err) < 0 ||
        log_number(c, "limit", PAGE_MAX, &l->limit, &given, err) < 0 ||
        e2b_query(c, "level", &level, err) < 0 || e2b_query(c, "direction", &direction, err) < 0 ||
        e2b_query(c, "search", &l->search, err) < 0)
        return -1;
    l->errors_only = level && strcmp(level, "error") == 0;
    l->backward = direction && strcmp(direction, "backward") == 0;
    const struct list_request all = {.limit = COMMANDS_MAX};
    char next[CURSOR_SIZE];
    if (service_exec_list(c->service, &c->who, c->sandbox.id, &all, command_came, l, next, err) < 0)
        return -1;
    qsort(l->entries, l->count, sizeof(*l->entries), entry_compare);
    return 0;
}

/* ---- answers ---- */

static void put_line(struct jot *j, const struct log_entry *e) {
    jot_object(j, NULL);
    e2b_put_time(j, "timestamp", e->ms);
    jot_string(j, "line", e->message);
    jot_end(j, '}');
}

static void put_entry(struct jot *j, const struct log_entry *e) {
    jot_object(j, NULL);
    e2b_put_time(j, "timestamp", e->ms);
    jot_string(j, "level", e->is_error ? "error" : "info");
    jot_string(j, "message", e->message);
    jot_object(j, "fields");
    jot_string(j, "command", e->command);
    jot_end(j, '}');
    jot_end(j, '}');
}

static void put_log(struct jot *j, const char *name, const struct sandbox_log *l,
                    void (*put)(struct jot *j, const struct log_entry *e)) {
    uint64_t left = l->limit;
    jot_array(j, name);
    for (size_t i = 0; i < l->count && left; i++) {
        const struct log_entry *e = &l->entries[l->backward ? l->count - 1 - i : i];
        if (!entry_asked(l, e))
            continue;
        put(j, e);
        left--;
    }
    jot_end(j, ']');
}

/* The first version of the call has lines, and entries beside them; the second only entries. */
static void answer_log(struct e2b_call *c, bool is_first) {
    struct buf text DEFER(buf_done) = BUF(E2B_ANSWER_MAX);
    struct sandbox_log *l = xnew(struct sandbox_log);
    struct jot j = JOT(&text);
    struct err err;
    if (log_read(c, is_first ? "start" : "cursor", l, &err) < 0) {
        log_free(l);
        e2b_error(c, &err);
        return;
    }
    jot_object(&j, NULL);
    put_log(&j, "logs", l, is_first ? put_line : put_entry);
    if (is_first)
        put_log(&j, "logEntries", l, put_entry);
    jot_end(&j, '}');
    log_free(l);
    e2b_answer(c, 200, &text, NULL);
}

void e2b_logs_v1(struct e2b_call *c) {
    answer_log(c, true);
}

void e2b_logs(struct e2b_call *c) {
    answer_log(c, false);
}
