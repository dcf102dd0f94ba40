/*
 * Property: whatever lines come, what is sent is one JSON object a message without line ends, every
 * request gets at most one answer, with its own id, and a session ends with nothing under way.
 */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "mcp/mcp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct desk {
    struct mcp_request *held[MCP_REQUESTS_MAX];
    size_t count, handled, answered;
};

static void check(void *arg, void *stream, const char *json, size_t n, bool last) {
    json_error_t why;
    (void)arg;
    (void)stream;
    (void)last;
    if (!n)
        return;
    json_t *m = json_loadb(json, n, 0, &why);
    assert(json_is_object(m) && !memchr(json, '\n', n));
    assert(json_object_get(m, "id") || json_object_get(m, "method"));
    json_decref(m);
}

static bool list(void *arg, enum mcp_list what, size_t from, size_t max, struct jot *j) {
    (void)arg;
    for (size_t i = from; i < from + max && i < 60; i++)
        jot_u64(j, NULL, i + what);
    return from + max < 60;
}

static void reply(void *arg, const json_t *result) {
    (void)arg;
    assert(!result || json_is_object(result));
}

/* Every second one waits, and asks something. */
static void handle(void *arg, struct mcp_request *r) {
    struct desk *d = arg;
    assert(json_is_object(r->params));
    if (d->handled++ % 2 == 0) {
        d->answered++;
        mcp_answer(r, "{}", 2);
        return;
    }
    d->held[d->count++] = r;
    mcp_progress(r, (double)d->handled, 0, "x");
    mcp_ask(r, "elicitation/create", "{}", reply, d);
    mcp_log(r->session, r, MCP_ERROR, NULL, "1");
}

static void cancel(void *arg, struct mcp_request *r) {
    struct desk *d = arg;
    for (size_t i = 0; i < d->count; i++)
        if (d->held[i] == r)
            d->held[i] = d->held[--d->count];
    d->answered++;
    mcp_answer(r, "{}", 2);
}

static int subscribe(void *arg, const char *uri, bool on, struct err *err) {
    (void)arg;
    assert(strlen(uri) <= MCP_URI_MAX);
    return on && uri[0] == '!' ? err_set(err, ERR_NOT_FOUND, "no") : 0;
}

static const struct mcp_backend backend = {.name = "f",
                                           .title = "f",
                                           .version = "1",
                                           .list = list,
                                           .handle = handle,
                                           .cancel = cancel,
                                           .subscribe = subscribe};

static void feed(struct mcp_session *s, const char *line, size_t n) {
    char *error = NULL;
    json_t *m = mcp_parse(line, n, &error);
    assert(!m == !!error);
    if (m)
        mcp_take(s, m, NULL);
    else
        check(NULL, NULL, error, strlen(error), true);
    free(error);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct desk d = {.count = 0};
    const struct mcp_wire wire = {&d, check, NULL};
    struct mcp_session *s = mcp_session_new(&backend, &d, &wire);
    const char *at = (const char *)data, *end = at + size, *stop;
    for (; at < end; at = stop + 1) {
        stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop)
            stop = end;
        feed(s, at, (size_t)(stop - at));
    }
    mcp_session_free(s);
    assert(d.count == 0 && d.answered == d.handled);
    return 0;
}
