#include "cli/mcp_link.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "cli/table.h"

enum { HELLO_MAX = 1 << 20, INTERNAL = -32603 };

void link_init(struct mcp_link *l) {
    *l = (struct mcp_link){
        .hello = BUF(HELLO_MAX), .told = BUF(HELLO_MAX), .pending = alloc_check(json_array())};
}

void link_done(struct mcp_link *l) {
    buf_done(&l->hello);
    buf_done(&l->told);
    json_decref(l->first);
    json_decref(l->pending);
}

static void mcp_link_forget(struct mcp_link *l, const json_t *id) {
    for (size_t i = json_array_size(l->pending); i-- > 0;)
        if (json_equal(json_array_get(l->pending, i), id))
            json_array_remove(l->pending, i);
}

static void keep_line(struct buf *to, const char *line, size_t n) {
    to->len = 0;
    if (!buf_add(to, line, n))
        to->len = 0;
}

static const char *method_of(const json_t *message) {
    const char *text = json_string_value(json_object_get(message, "method"));
    return text ? text : "";
}

void link_said(struct mcp_link *l, const char *line, size_t n) {
    json_t *message DEFER(json_decrefp) = json_loadb(line, n, 0, NULL);
    json_t *id = json_object_get(message, "id");
    const char *method = method_of(message);
    bool first = strcmp(method, "initialize") == 0;
    if (first && !l->greeted) {
        keep_line(&l->hello, line, n);
        json_decref(l->first);
        l->first = json_incref(id);
    }
    if (strcmp(method, "notifications/initialized") == 0)
        keep_line(&l->told, line, n);
    else if (strcmp(method, "notifications/cancelled") == 0) /* the call gets no answer */
        mcp_link_forget(l, json_object_get(json_object_get(message, "params"), "requestId"));
    else if (id && *method && !(first && !l->greeted))
        json_array_append(l->pending, id);
}

bool link_heard(struct mcp_link *l, const char *line, size_t n) {
    json_t *message DEFER(json_decrefp) = json_loadb(line, n, 0, NULL);
    const json_t *id = json_object_get(message, "id");
    if (!id || *method_of(message))
        return true;
    if (l->first && json_equal(id, l->first)) {
        bool again = l->answers_twice;
        l->answers_twice = false;
        if (again)
            return false;
        l->greeted |= json_object_get(message, "result") != NULL;
    }
    mcp_link_forget(l, id);
    return true;
}

static bool put_failure(struct buf *to, json_t *id) {
    json_t *message DEFER(json_decrefp) =
        json_pack("{s:s, s:O, s:{s:i, s:s}}", "jsonrpc", "2.0", "id", id, "error", "code", INTERNAL,
                  "message",
                  "the daemon ended during this call: check what the call has changed before you "
                  "repeat it");
    char *text DEFER_FREE = message ? json_dumps(message, JSON_COMPACT) : NULL;
    return text && buf_add(to, text, strlen(text)) && buf_add(to, "\n", 1);
}

bool link_lost(struct mcp_link *l, struct buf *ret) {
    bool fits = true;
    for (size_t i = 0; i < json_array_size(l->pending); i++)
        fits &= put_failure(ret, json_array_get(l->pending, i));
    json_array_clear(l->pending);
    return fits;
}

bool link_hello(struct mcp_link *l, struct buf *ret) {
    l->answers_twice = l->greeted;
    return buf_add(ret, l->hello.data ? l->hello.data : "", l->hello.len) &&
           buf_add(ret, l->told.data ? l->told.data : "", l->told.len);
}
