/*
 * Requests of version 2026-07-28 over HTTP. Their headers repeat parts of the message, for proxies
 * that do not read it, and must match it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/hex.h"
#include "base/sha256.h"
#include "base/text/base64.h"
#include "mcp/http.h"
#include "mcp/http_inner.h"

bool mcp_http_is_stateless(const struct http_exchange *x, const json_t *message) {
    struct http_text version = http_field_only(x->head, "MCP-Protocol-Version");
    return mcp_is_stateless(message) || (version.s && http_text_is(version, MCP_VERSION_STATELESS));
}

/* True if the header has this value, as it is or as =?base64?...?=. */
static bool header_is(struct http_text header, const char *value) {
    static const char start[] = "=?base64?", end[] = "?=";
    const size_t start_n = sizeof(start) - 1, end_n = sizeof(end) - 1;
    if (!header.s)
        return false;
    if (http_text_is(header, value))
        return true;
    if (header.n < start_n + end_n || strncmp(header.s, start, start_n) != 0 ||
        strncmp(header.s + header.n - end_n, end, end_n) != 0)
        return false;
    size_t coded = header.n - start_n - end_n, n;
    char *bytes DEFER_FREE = xmalloc(coded + 1);
    return base64_decode(header.s + start_n, coded, bytes, &n) && n == strlen(value) &&
           memcmp(bytes, value, n) == 0;
}

/* The value that the header Mcp-Name must have; NULL: none. */
static const char *name_of(const json_t *message, const char *method) {
    static const struct {
        const char *method, *member;
    } names[] = {{"tools/call", "name"}, {"prompts/get", "name"}, {"resources/read", "uri"}};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strcmp(names[i].method, method) == 0)
            return json_string_value(
                json_object_get(json_object_get(message, "params"), names[i].member));
    return NULL;
}

/* Returns the header that does not match the message, or NULL. */
static const char *wrong_header(const struct http_exchange *x, const json_t *message) {
    const char *method = json_string_value(json_object_get(message, "method"));
    const char *version = mcp_stateless_version(message);
    const char *name = method ? name_of(message, method) : NULL;
    if (version && !header_is(http_field_only(x->head, "MCP-Protocol-Version"), version))
        return "MCP-Protocol-Version";
    if (method && !header_is(http_field_only(x->head, "Mcp-Method"), method))
        return "Mcp-Method";
    if (name && !header_is(http_field_only(x->head, "Mcp-Name"), name))
        return "Mcp-Name";
    return NULL;
}

static struct session *shared_session(struct mcp_http *h, const char *owner, const void *who,
                                      struct err *err) {
    char name[512] = "", id[SESSION_ID_SIZE] = "z-";
    uint8_t hash[SHA256_BYTES];
    struct sha256 sum;
    if (h->config.name)
        h->config.name(h->config.arg, who, name, sizeof(name));
    sha256_init(&sum);
    sha256_add(&sum, name, strlen(name));
    sha256_end(&sum, hash);
    hex_put(hash, (SESSION_ID_SIZE - 4) / 2, id + 2);
    for (struct session *s = h->sessions; s; s = s->next)
        if (s->stateless && strcmp(s->id, id) == 0 && strcmp(s->owner, owner) == 0) {
            s->used_ms = mcp_http_now(h);
            return s;
        }
    struct session *s = mcp_http_session_open(h, owner, who, id, err);
    if (s)
        s->stateless = true;
    return s;
}

struct session *mcp_http_stateless(struct mcp_http *h, struct http_exchange *x, const char *owner,
                                   const void *who, const json_t *message) {
    char text[120];
    struct err err;
    const char *wrong = wrong_header(x, message);
    if (wrong) {
        snprintf(text, sizeof(text), "the HTTP header %s does not match the MCP message", wrong);
        mcp_http_refuse(x, 400, message, MCP_HEADERS, text, NULL);
        return NULL;
    }
    if (!json_object_get(message, "id")) { /* a notification has nothing to refer to */
        http_reply(x, 202, NULL, NULL, 0);
        return NULL;
    }
    if (!mcp_is_stateless(message)) {
        mcp_http_refuse(x, 400, message, MCP_PARAMS,
                        "params._meta must name the protocol version and the client's capabilities",
                        NULL);
        return NULL;
    }
    struct session *s = shared_session(h, owner, who, &err);
    if (!s)
        mcp_http_refuse(x, err.code == ERR_LIMIT ? 503 : 403, message, MCP_BUSY, err.text, NULL);
    return s;
}
