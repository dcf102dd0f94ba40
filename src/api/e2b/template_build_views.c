/* Builds of templates, as clients poll for them. */
#include <stdlib.h>
#include <string.h>

#include "api/e2b/template_inner.h"
#include "base/defer.h"
#include "base/parse.h"

enum { PAGE_MAX = 100 };

static const char *const state_names[] = {
    [TEMPLATE_WAITING] = "waiting",
    [TEMPLATE_BUILDING] = "building",
    [TEMPLATE_READY] = "ready",
    [TEMPLATE_ERROR] = "error",
};

static void put_entry(struct jot *j, const struct template_entry *e) {
    jot_object(j, NULL);
    e2b_put_time(j, "timestamp", e->ms);
    jot_string(j, "level", e->is_error ? "error" : "info");
    jot_string(j, "message", e->text);
    jot_string(j, "step", e->step);
    jot_end(j, '}');
}

/* Which entries a client asks for. */
struct page {
    uint64_t offset, since_ms, limit;
    bool errors_only, backward;
};

static int page_number(const struct e2b_call *c, const char *name, uint64_t max, uint64_t *ret,
                       struct err *err) {
    char *text DEFER_FREE = NULL;
    int given = e2b_query(c, name, &text, err);
    if (given <= 0)
        return given;
    if (parse_u64(text, 0, max, ret, NULL) < 0)
        return err_set(err, ERR_INVALID, "query parameter '%s': '%.20s' is not a number up to %llu",
                       name, text, (unsigned long long)max);
    return 0;
}

static int page_read(const struct e2b_call *c, struct page *ret, struct err *err) {
    char *level DEFER_FREE = NULL, *direction DEFER_FREE = NULL;
    *ret = (struct page){.limit = PAGE_MAX};
    if (page_number(c, "logsOffset", INT32_MAX, &ret->offset, err) < 0 ||
        page_number(c, "cursor", INT64_MAX, &ret->since_ms, err) < 0 ||
        page_number(c, "limit", PAGE_MAX, &ret->limit, err) < 0 ||
        e2b_query(c, "level", &level, err) < 0 || e2b_query(c, "direction", &direction, err) < 0)
        return -1;
    ret->errors_only = level && strcmp(level, "error") == 0;
    ret->backward = direction && strcmp(direction, "backward") == 0;
    return 0;
}

static bool page_has(const struct page *p, const struct template_entry *e) {
    bool in_time = !p->since_ms || (p->backward ? e->ms <= p->since_ms : e->ms >= p->since_ms);
    return in_time && (e->is_error || !p->errors_only);
}

static void put_entries(struct jot *j, const char *name, const struct template_log *l,
                        struct page page) {
    jot_array(j, name);
    for (size_t i = 0; i < l->count && page.limit; i++) {
        const struct template_entry *e = &l->entries[page.backward ? l->count - 1 - i : i];
        if (!page_has(&page, e))
            continue;
        if (page.offset) {
            page.offset--;
            continue;
        }
        put_entry(j, e);
        page.limit--;
    }
    jot_end(j, ']');
}

static void put_reason(struct jot *j, const struct template_build *b) {
    const struct page errors = {.limit = PAGE_MAX, .errors_only = true};
    jot_object(j, "reason");
    jot_string(j, "message", b->reason);
    jot_string(j, "step", b->reason_step);
    put_entries(j, "logEntries", &b->log, errors);
    jot_end(j, '}');
}

void e2b_build_status(struct e2b_call *c) {
    struct buf text DEFER(buf_done) = BUF(E2B_ANSWER_MAX);
    struct jot j = JOT(&text);
    struct page page;
    struct err err;
    const struct template_build *b = template_build_of(c, &err);
    if (!b || page_read(c, &page, &err) < 0) {
        e2b_error(c, &err);
        return;
    }
    jot_object(&j, NULL);
    jot_string(&j, "templateID", b->name);
    jot_string(&j, "buildID", b->id);
    jot_string(&j, "status", state_names[b->state]);
    put_entries(&j, "logEntries", &b->log, page);
    jot_array(&j, "logs");
    jot_end(&j, ']');
    if (b->reason)
        put_reason(&j, b);
    jot_end(&j, '}');
    e2b_answer(c, 200, &text, NULL);
}

void e2b_build_logs(struct e2b_call *c) {
    struct buf text DEFER(buf_done) = BUF(E2B_ANSWER_MAX);
    struct jot j = JOT(&text);
    struct page page;
    struct err err;
    const struct template_build *b = template_build_of(c, &err);
    if (!b || page_read(c, &page, &err) < 0) {
        e2b_error(c, &err);
        return;
    }
    jot_object(&j, NULL);
    put_entries(&j, "logs", &b->log, page);
    jot_end(&j, '}');
    e2b_answer(c, 200, &text, NULL);
}
