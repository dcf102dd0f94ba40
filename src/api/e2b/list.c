/*
 * The list of sandboxes. A page continues after the last sandbox of the page before by its time and
 * id, so machines that begin or end meanwhile neither repeat nor hide others.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api/e2b/inner.h"
#include "base/alloc.h"
#include "base/defer.h"
#include "base/parse.h"
#include "io/http_uri.h"

enum { PAGE_MAX = 1000, PAGE_USUAL = 100, TOKEN_MAX = 64, FILTERS_MAX = 64, FILTER_SIZE = 1024 };

struct filter {
    char *metadata[2 * FILTERS_MAX];
    size_t metadata_count; /* names and values */
    bool running, paused, ascending;
    uint64_t after_ms;
    uint64_t limit;
    char *template;
    uint64_t last_ms; /* of the last sandbox of the page before; 0: the first page */
    char last_label[ID_LABEL_SIZE];
};

struct listing {
    struct e2b_sandbox *rows;
    size_t count, room;
};

static void filter_done(struct filter *f) {
    for (size_t i = 0; i < f->metadata_count; i++)
        free(f->metadata[i]);
    free(f->template);
}

static void listing_done(struct listing *l) {
    for (size_t i = 0; i < l->count; i++)
        e2b_sandbox_done(&l->rows[i]);
    free(l->rows);
}

/* ---- the query ---- */

/* A text that was encoded once as a form and once more before that. */
static char *decode_twice(struct http_text text) {
    char once[FILTER_SIZE], *twice = xcalloc(1, FILTER_SIZE);
    size_t n;
    if (http_decode_query(text, once, sizeof(once), &n) == 0 &&
        http_decode_query((struct http_text){once, n}, twice, FILTER_SIZE, &n) == 0)
        return twice;
    free(twice);
    return NULL;
}

static int read_metadata(const char *text, struct filter *f, struct err *err) {
    struct http_text rest = {text, strlen(text)}, name, value;
    while (http_query_next(&rest, &name, &value)) {
        if (f->metadata_count == 2 * FILTERS_MAX)
            return err_set(err, ERR_LIMIT, "query parameter 'metadata' has more than %d pairs",
                           FILTERS_MAX);
        char *pair[2] = {decode_twice(name), decode_twice(value)};
        if (!pair[0] || !pair[1]) {
            free(pair[0]);
            free(pair[1]);
            return err_set(err, ERR_INVALID, "query parameter 'metadata' is malformed");
        }
        f->metadata[f->metadata_count++] = pair[0];
        f->metadata[f->metadata_count++] = pair[1];
    }
    return 0;
}

static int read_states(const char *text, struct filter *f, struct err *err) {
    f->running = f->paused = false;
    while (*text) {
        struct http_text one = {text, strcspn(text, ",")};
        if (http_text_is(one, "running"))
            f->running = true;
        else if (http_text_is(one, "paused"))
            f->paused = true;
        else
            return err_set(err, ERR_INVALID, "query parameter 'state': '%.*s' is not a state",
                           (int)(one.n < 40 ? one.n : 40), one.s);
        text += one.n + (text[one.n] == ',');
    }
    return 0;
}

/* Reads a time of RFC 3339, without its fraction of a second. */
static int read_time(const char *text, uint64_t *ret_ms, struct err *err) {
    struct tm tm = {0};
    int hours = 0, minutes = 0;
    const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    if (rest && *rest == '.')
        rest += 1 + strspn(rest + 1, "0123456789");
    bool east = rest && *rest == '+', west = rest && *rest == '-';
    if (east || west)
        rest = sscanf(rest + 1, "%2d:%2d", &hours, &minutes) == 2 ? "" : NULL;
    else if (rest && (*rest == 'Z' || *rest == 'z'))
        rest++;
    time_t seconds = rest && !*rest ? timegm(&tm) : -1;
    if (seconds < 0)
        return err_set(err, ERR_INVALID, "query parameter 'startedAfter': '%.40s' is not a time",
                       text);
    seconds -= (east ? 1 : west ? -1 : 0) * (hours * 3600 + minutes * 60);
    *ret_ms = seconds > 0 ? (uint64_t)seconds * 1000 : 0;
    return 0;
}

static int read_order(const char *text, struct filter *f, struct err *err) {
    f->ascending = strcmp(text, "asc") == 0;
    return f->ascending || strcmp(text, "desc") == 0
               ? 0
               : err_set(err, ERR_INVALID, "query parameter 'order' must be asc or desc");
}

/* A page token is the time and id of a sandbox: "1700000000000.m4kq2x7w3n5ab". */
static int read_next(const char *text, struct filter *f, struct err *err) {
    char id[ID_SIZE], number[24];
    size_t n = strcspn(text, ".");
    snprintf(number, sizeof(number), "%.*s", (int)n, text);
    if (!text[n] || n >= sizeof(number) || parse_u64(number, 1, INT64_MAX, &f->last_ms, NULL) < 0 ||
        !id_from_label(text + n + 1, strlen(text + n + 1), 'm', id))
        return err_set(err, ERR_INVALID, "query parameter 'nextToken' is not of this list");
    snprintf(f->last_label, sizeof(f->last_label), "%s", text + n + 1);
    return 0;
}

static int read_limit(const char *text, struct filter *f, struct err *err) {
    if (parse_u64(text, 1, INT64_MAX, &f->limit, err) < 0)
        return err_wrap(err, "query parameter 'limit'");
    f->limit = f->limit < PAGE_MAX ? f->limit : PAGE_MAX;
    return 0;
}

static int read_after(const char *text, struct filter *f, struct err *err) {
    return read_time(text, &f->after_ms, err);
}

static int read_template(const char *text, struct filter *f, struct err *err) {
    (void)err;
    f->template = xstrdup(text);
    return 0;
}

static int read_filter(const struct e2b_call *c, struct filter *f, struct err *err) {
    static const struct {
        const char *name;
        int (*read)(const char *text, struct filter *f, struct err *err);
    } parameters[] = {
        {"metadata", read_metadata}, {"state", read_states}, {"startedAfter", read_after},
        {"template", read_template}, {"order", read_order},  {"limit", read_limit},
        {"nextToken", read_next},
    };
    for (size_t i = 0; i < sizeof(parameters) / sizeof(*parameters); i++) {
        char *text DEFER_FREE = NULL;
        int found = e2b_query(c, parameters[i].name, &text, err);
        if (found < 0 || (found && *text && parameters[i].read(text, f, err) < 0))
            return -1;
    }
    return 0;
}

/* ---- the sandboxes ---- */

static bool has_metadata(const struct e2b_sandbox *b, const struct filter *f) {
    for (size_t i = 0; i < f->metadata_count; i += 2) {
        const char *value = json_string_value(json_object_get(b->metadata, f->metadata[i]));
        if (!value || strcmp(value, f->metadata[i + 1]) != 0)
            return false;
    }
    return true;
}

static bool filter_fits(const struct filter *f, const struct e2b_sandbox *b) {
    const char *template = json_string_value(json_object_get(b->own, "template"));
    bool is_running = strcmp(b->state, "running") == 0;
    return ((is_running && f->running) || (b->paused && f->paused)) &&
           b->created_ms >= f->after_ms && has_metadata(b, f) &&
           (!f->template || (template && strcmp(template, f->template) == 0));
}

static void listing_add(void *arg, const void *view) {
    struct listing *l = arg;
    if (l->count == l->room) {
        l->room = l->room ? 2 * l->room : 64;
        l->rows = xrealloc(l->rows, l->room, sizeof(*l->rows));
    }
    if (e2b_sandbox_read(view, &l->rows[l->count]))
        l->count++;
}

static int listing_read(const struct e2b_call *c, struct listing *l, struct err *err) {
    char next[CURSOR_SIZE] = "", at[CURSOR_SIZE];
    do {
        snprintf(at, sizeof(at), "%s", next);
        const struct list_request r = {.meta_key = E2B_KEY_FACE,
                                       .meta_value = E2B_FACE_SANDBOX,
                                       .cursor = at[0] ? at : NULL,
                                       .limit = PAGE_MAX};
        if (service_list(c->service, &c->who, &r, listing_add, l, next, err) < 0)
            return -1;
    } while (next[0]);
    return 0;
}

/* Orders by time, then by id: the oldest sandbox first. */
static int compare(uint64_t a_ms, const char *a, uint64_t b_ms, const char *b) {
    return a_ms != b_ms ? (a_ms < b_ms ? -1 : 1) : strcmp(a, b);
}

static int compare_rows(const void *a, const void *b) {
    const struct e2b_sandbox *x = a, *y = b;
    return compare(x->created_ms, x->label, y->created_ms, y->label);
}

static bool is_after(const struct filter *f, const struct e2b_sandbox *b) {
    int order = compare(b->created_ms, b->label, f->last_ms, f->last_label);
    return !f->last_ms || (f->ascending ? order > 0 : order < 0);
}

/* Writes one page. ret_next: the token of the next one, or empty. */
static void put_page(struct jot *j, const struct filter *f, const struct listing *l,
                     char ret_next[TOKEN_MAX]) {
    const struct e2b_sandbox *last = NULL;
    uint64_t count = 0;
    ret_next[0] = '\0';
    jot_array(j, NULL);
    for (size_t i = 0; i < l->count; i++) {
        const struct e2b_sandbox *b = &l->rows[f->ascending ? i : l->count - 1 - i];
        if (!filter_fits(f, b) || !is_after(f, b))
            continue;
        if (count == f->limit) {
            snprintf(ret_next, TOKEN_MAX, "%llu.%s", (unsigned long long)last->created_ms,
                     last->label);
            break;
        }
        e2b_put_listed(j, b);
        last = b;
        count++;
    }
    jot_end(j, ']');
}

/* The older path lists running sandboxes only, without pages. */
void e2b_list(struct e2b_call *c) {
    bool is_old = strncmp(c->route->path, "/v2", 3) != 0;
    struct filter f DEFER(filter_done) = {
        .running = true, .paused = !is_old, .limit = is_old ? PAGE_MAX : PAGE_USUAL};
    struct listing l DEFER(listing_done) = {NULL, 0, 0};
    struct buf text DEFER(buf_done) = BUF(E2B_ANSWER_MAX);
    struct jot j = JOT(&text);
    char next[TOKEN_MAX];
    struct err err;
    if (read_filter(c, &f, &err) < 0 || listing_read(c, &l, &err) < 0) {
        e2b_error(c, &err);
        return;
    }
    qsort(l.rows, l.count, sizeof(*l.rows), compare_rows);
    put_page(&j, &f, &l, next);
    if (j.failed) {
        err_set(&err, ERR_LIMIT, "the list is too long: ask for fewer sandboxes with 'limit'");
        e2b_error(c, &err);
        return;
    }
    e2b_answer(c, 200, &text, next[0] ? &(struct http_pair){"X-Next-Token", next} : NULL);
}
