#include "operator/export.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/defer.h"
#include "base/jot.h"
#include "operator/event.h"

struct exporting {
    struct jot json;
    struct run_event *events;
    size_t count;
    uint64_t steps;
    struct model_usage usage;
    uint64_t micro;
};

static void put_time(struct jot *j, int64_t ms) {
    char day[32], text[48];
    time_t seconds = (time_t)(ms / 1000);
    struct tm tm;
    if (!gmtime_r(&seconds, &tm) || !strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &tm))
        return;
    snprintf(text, sizeof(text), "%s.%03dZ", day, (int)(ms % 1000));
    jot_string(j, "timestamp", text);
}

static void put_money(struct jot *j, const char *name, uint64_t micro) {
    char text[40];
    snprintf(text, sizeof(text), "%llu.%06llu", (unsigned long long)(micro / 1000000),
             (unsigned long long)(micro % 1000000));
    jot_raw(j, name, text);
}

static uint64_t prompt_tokens(const struct model_usage *u) {
    return u->in + u->cache_read + u->cache_write + u->cache_write_long;
}

static void step_begin(struct exporting *x, const struct run_event *e, const char *source) {
    jot_object(&x->json, NULL);
    jot_u64(&x->json, "step_id", ++x->steps);
    put_time(&x->json, e->time_ms);
    jot_string(&x->json, "source", source);
}

static void put_words(struct exporting *x, const struct run_event *e, const char *source,
                      const char *text) {
    step_begin(x, e, source);
    jot_string(&x->json, "message", text);
    jot_end(&x->json, '}');
}

/* ---- turns ---- */

static void put_message(struct exporting *x, const struct run_event *e) {
    struct buf text DEFER(buf_done) = BUF(MODEL_ANSWER_MAX + 1);
    for (size_t i = 0; i < e->count; i++)
        if (e->parts[i].kind == MODEL_TEXT && !buf_add(&text, e->parts[i].text, e->parts[i].n))
            break;
    jot_bytes(&x->json, "message", text.data ? text.data : "", text.len);
}

/* ATIF (the export format) requires an object, so arguments of a tool call that are not a valid
 * JSON object are exported as text. */
static void put_arguments(struct jot *j, const struct model_part *p) {
    struct arena a DEFER(arena_done) = {0};
    if (!p->bad && !model_arguments_fault(&a, p->text, p->n)) {
        jot_raw(j, "arguments", p->text);
        return;
    }
    jot_object(j, "arguments");
    jot_bytes(j, "raw", p->text, p->n);
    jot_end(j, '}');
}

static void put_calls(struct exporting *x, const struct run_event *e) {
    struct jot *j = &x->json;
    bool any = false;
    for (size_t i = 0; i < e->count; i++) {
        const struct model_part *p = &e->parts[i];
        if (p->kind != MODEL_CALL)
            continue;
        if (!any)
            jot_array(j, "tool_calls");
        any = true;
        jot_object(j, NULL);
        jot_string(j, "tool_call_id", p->id ? p->id : "");
        jot_string(j, "function_name", p->name ? p->name : "");
        put_arguments(j, p);
        jot_end(j, '}');
    }
    if (any)
        jot_end(j, ']');
}

static const char *call_id(const struct run_event *answer, uint64_t index) {
    for (size_t i = 0; i < answer->count; i++)
        if (answer->parts[i].kind == MODEL_CALL && index-- == 0)
            return answer->parts[i].id ? answer->parts[i].id : "";
    return "";
}

/* Writes the results of the tool calls in the answer at index `at`. */
static void put_results(struct exporting *x, size_t at) {
    struct jot *j = &x->json;
    bool any = false;
    for (size_t i = at + 1; i < x->count && x->events[i].kind != RUN_ANSWER; i++) {
        const struct run_event *e = &x->events[i];
        if (e->kind != RUN_RESULT)
            continue;
        if (!any) {
            jot_object(j, "observation");
            jot_array(j, "results");
        }
        any = true;
        jot_object(j, NULL);
        jot_string(j, "source_call_id", call_id(&x->events[at], e->index));
        jot_string(j, "content", e->text);
        jot_end(j, '}');
    }
    if (any) {
        jot_end(j, ']');
        jot_end(j, '}');
    }
}

static void put_metrics(struct jot *j, const struct run_event *e) {
    jot_object(j, "metrics");
    jot_u64(j, "prompt_tokens", prompt_tokens(&e->usage));
    jot_u64(j, "completion_tokens", e->usage.out);
    jot_u64(j, "cached_tokens", e->usage.cache_read);
    put_money(j, "cost_usd", e->micro);
    jot_end(j, '}');
}

static void put_turn(struct exporting *x, size_t at) {
    const struct run_event *e = &x->events[at];
    step_begin(x, e, "agent");
    put_message(x, e);
    put_calls(x, e);
    put_results(x, at);
    put_metrics(&x->json, e);
    jot_end(&x->json, '}');
}

/* ---- the trajectory ---- */

static void put_event(struct exporting *x, size_t at) {
    const struct run_event *e = &x->events[at];
    if (e->kind == RUN_START)
        put_words(x, e, "user", e->task);
    else if (e->kind == RUN_ANSWER)
        put_turn(x, at);
    else if (e->kind == RUN_NOTE)
        put_words(x, e, "system", e->text);
    x->usage.in += prompt_tokens(&e->usage);
    x->usage.out += e->usage.out;
    x->usage.cache_read += e->usage.cache_read;
    x->micro += e->micro;
}

static void put_agent(struct jot *j, const struct run_event *start) {
    jot_object(j, "agent");
    jot_string(j, "name", "carrel");
    jot_string(j, "version", CARREL_VERSION);
    jot_string(j, "model_name", start->model);
    jot_end(j, '}');
}

static void put_final(struct exporting *x) {
    struct jot *j = &x->json;
    const struct run_event *last = &x->events[x->count - 1];
    jot_object(j, "final_metrics");
    jot_u64(j, "total_prompt_tokens", x->usage.in);
    jot_u64(j, "total_completion_tokens", x->usage.out);
    jot_u64(j, "total_cached_tokens", x->usage.cache_read);
    put_money(j, "total_cost_usd", x->micro);
    jot_u64(j, "total_steps", x->steps);
    jot_end(j, '}');
    jot_object(j, "extra");
    jot_string(j, "machine", x->events[0].machine);
    if (last->kind == RUN_END) {
        jot_string(j, "status", last->status);
        jot_raw(j, "report", last->report);
    }
    jot_end(j, '}');
}

static int read_events(struct exporting *x, const char *bytes, size_t n, struct arena *a,
                       struct err *err) {
    for (const char *end; n && (end = memchr(bytes, '\n', n));) {
        size_t len = (size_t)(end - bytes);
        x->events = arena_grow(a, x->events, x->count, sizeof(*x->events));
        if (run_event_read(bytes, len, a, &x->events[x->count], err) < 0)
            return err_wrap(err, "transcript line %zu", x->count + 1);
        x->count++;
        bytes += len + 1;
        n -= len + 1;
    }
    return x->count && x->events[0].kind == RUN_START
               ? 0
               : err_set(err, ERR_INVALID, "the first transcript line is not of the kind 'start'");
}

int run_export(const char *bytes, size_t n, struct buf *to, struct err *err) {
    struct arena a DEFER(arena_done) = {0};
    struct exporting x = {.json = JOT(to)};
    struct jot *j = &x.json;
    if (read_events(&x, bytes, n, &a, err) < 0)
        return -1;
    jot_object(j, NULL);
    jot_string(j, "schema_version", "ATIF-v1.4");
    jot_string(j, "session_id", x.events[0].run);
    put_agent(j, &x.events[0]);
    jot_array(j, "steps");
    for (size_t i = 0; i < x.count; i++)
        put_event(&x, i);
    jot_end(j, ']');
    put_final(&x);
    jot_end(j, '}');
    return j->failed ? err_set(err, ERR_LIMIT, "the exported run is too long") : 0;
}
