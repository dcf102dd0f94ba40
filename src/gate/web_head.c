/* Writes request and answer heads anew; no head is passed on as it came. */
#include <string.h>

#include "base/defer.h"
#include "gate/address.h"
#include "gate/web_inner.h"

/* Fields that are not copied: they belong to one connection (RFC 9110, 7.6.1) or to proxies, or the
 * gate writes its own field. */
static const char *const dropped[] = {
    "Connection",
    "Keep-Alive",
    "Proxy-Connection",
    "Proxy-Authenticate",
    "Proxy-Authorization",
    "TE",
    "Trailer",
    "Upgrade",
    "HTTP2-Settings",
    "Content-Length",
    "Transfer-Encoding",
    "Host",
};

static bool is_dropped(const struct http_head *h, struct http_text name) {
    char text[64];
    for (size_t i = 0; i < sizeof(dropped) / sizeof(*dropped); i++)
        if (http_text_is_like(name, dropped[i]))
            return true;
    snprintf(text, sizeof(text), "%.*s", (int)(name.n < 63 ? name.n : 63), name.s);
    return http_list_has(h, "Connection", text);
}

/* Fields that are not sent to hosts with secrets: in a partial or compressed answer the gate could
 * not find an echoed secret. */
static bool hides_values(struct http_text name) {
    static const char *const names[] = {"Accept-Encoding", "Range", "If-Range", "A-IM"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (http_text_is_like(name, names[i]))
            return true;
    return false;
}

static bool put_fields_of(const struct conn *c, const struct http_head *h, struct buf *out) {
    const struct secret_uses *uses = &c->web->shield->uses;
    bool masks = c->web->shield->masked.count > 0;
    for (size_t i = 0; i < h->count; i++) {
        const struct http_field *f = &h->fields[i];
        struct buf value = BUF(HEAD_OUT_MAX);
        if (is_dropped(h, f->name) || (masks && hides_values(f->name)))
            continue;
        bool ok = secrets_put_value(uses, f->name, f->value, &value) &&
                  http_put_field(out, f->name, (struct http_text){value.data, value.len});
        secret_wipe(&value);
        if (!ok)
            return false;
    }
    return !masks || http_put_pairs(out, HTTP_FIELDS({"Accept-Encoding", "identity"}));
}

static bool put_fields(const struct http_head *h, struct buf *out) {
    for (size_t i = 0; i < h->count; i++)
        if (!is_dropped(h, h->fields[i].name) &&
            !http_put_field(out, h->fields[i].name, h->fields[i].value))
            return false;
    return true;
}

static bool put_framing(const struct http_head *h, struct buf *out) {
    if (h->framing == HTTP_SIZED)
        return http_put_number(out, "Content-Length", h->length);
    return h->framing != HTTP_CHUNKED ||
           http_put_pairs(out, HTTP_FIELDS({"Transfer-Encoding", "chunked"}));
}

static bool put_upgrade(const char *to, struct buf *out) {
    return http_put_pairs(out, HTTP_FIELDS({"Connection", "Upgrade"}, {"Upgrade", to}));
}

static bool put_host(const struct conn *c, struct buf *out) {
    char text[NAME_SIZE + 16];
    unsigned usual = c->protocol == PROTOCOL_TLS ? 443 : 80;
    bool six = strchr(c->host, ':') != NULL;
    int n = snprintf(text, sizeof(text), "%s%s%s", six ? "[" : "", c->host, six ? "]" : "");
    if (c->port != usual)
        snprintf(text + n, sizeof(text) - (size_t)n, ":%u", c->port);
    return http_put_pairs(out, HTTP_FIELDS({"Host", text}));
}

static bool put_target(const struct conn *c, const struct http_head *h, struct buf *out) {
    struct buf target DEFER(secret_wipe) = BUF(HEAD_OUT_MAX);
    const struct shield *s = c->web->shield;
    if (h->form == HTTP_ASTERISK)
        return http_put_request_line(out, h->method, HTTP_TEXT("*"));
    bool ok = h->path.n ? buf_add(&target, h->path.s, h->path.n) : buf_add(&target, "/", 1);
    if (ok && h->query.s)
        ok = buf_add(&target, "?", 1) && (s ? secrets_put_query(&s->uses, h->query, &target)
                                            : buf_add(&target, h->query.s, h->query.n));
    return ok && http_put_request_line(out, h->method, (struct http_text){target.data, target.len});
}

bool web_put_request(const struct conn *c, const struct http_head *h, struct buf *out) {
    return put_target(c, h, out) && put_host(c, out) &&
           (c->web->shield ? put_fields_of(c, h, out) : put_fields(h, out)) &&
           put_framing(h, out) && (!c->web->wants_upgrade || put_upgrade("websocket", out)) &&
           http_put_end(out);
}

bool web_put_answer(struct web *w, const struct http_head *h, struct buf *out) {
    bool last = !w->keeps_client;
    if (!buf_addf(out, "HTTP/1.1 %d %.*s\r\n", h->status, (int)h->reason.n, h->reason.s) ||
        !put_fields(h, out))
        return false;
    if (h->status == 101)
        return put_upgrade("websocket", out) && http_put_end(out);
    if (h->status < 200)
        return http_put_end(out);
    if (h->framing == HTTP_NO_BODY) { /* answer to HEAD, or 304: has a length but no body */
        struct http_text length = http_field_only(h, "Content-Length");
        if (length.s && !http_put_field(out, HTTP_TEXT("Content-Length"), length))
            return false;
    } else if (w->recode ? !http_put_pairs(out, HTTP_FIELDS({"Transfer-Encoding", "chunked"}))
                         : h->framing == HTTP_SIZED && !put_framing(h, out)) {
        return false;
    }
    return (!last || http_put_pairs(out, HTTP_FIELDS({"Connection", "close"}))) &&
           http_put_end(out);
}

/* ---- the destination of a request ---- */

/* Parses "host[:port]"; *ret_port is 0 if the text has no port. */
static bool read_authority(struct http_text t, char host[NAME_SIZE], uint16_t *ret_port,
                           bool *ret_address) {
    char address[ADDRESS_TEXT_SIZE];
    unsigned long port = 0;
    size_t n = t.n;
    if (n && t.s[0] == '[') {
        const char *end = memchr(t.s, ']', n);
        n = end ? (size_t)(end - t.s) + 1 : 0;
    } else {
        const char *colon = memchr(t.s, ':', n);
        n = colon ? (size_t)(colon - t.s) : n;
    }
    for (size_t i = n + 1; i < t.n; i++) {
        if (t.s[i] < '0' || t.s[i] > '9' || i > n + 5)
            return false;
        port = port * 10 + (unsigned long)(t.s[i] - '0');
    }
    if (port > 65535 || (t.n > n && (t.s[n] != ':' || port == 0)))
        return false;
    *ret_port = (uint16_t)port;
    bool six = n > 2 && t.s[0] == '[';
    *ret_address = address_read(t.s + six, n - 2 * six, address);
    if (*ret_address)
        snprintf(host, NAME_SIZE, "%s", address);
    return *ret_address || name_read(t.s, n, host);
}

/* Without the proxy the destination is known before the request: every host name in the request
 * must match it. */
static const char *check_authority(const struct conn *c, struct http_text t) {
    char host[NAME_SIZE];
    uint16_t port;
    bool is_address;
    if (!read_authority(t, host, &port, &is_address))
        return "malformed Host field";
    if (strcmp(host, c->host) != 0)
        return "the Host field differs from the host of the connection";
    return port && port != c->port
               ? "the port in the Host field differs from the port of the connection"
               : NULL;
}

/* With the proxy the request names the destination. */
static const char *take_authority(struct conn *c, const struct http_head *h) {
    char host[NAME_SIZE];
    uint16_t port;
    bool is_address;
    if (h->form != HTTP_ABSOLUTE && h->form != HTTP_AUTHORITY)
        return "a request to this proxy must contain the absolute URL";
    if (!read_authority(h->authority, host, &port, &is_address) ||
        (h->form == HTTP_AUTHORITY && !port))
        return "the host in the URL is not valid";
    if (!port)
        port = c->is_terminated ? 443 : 80;
    if (strcmp(host, c->host) != 0 || port != c->port)
        channel_close(&c->server);
    snprintf(c->host, sizeof(c->host), "%s", host);
    c->is_address = is_address;
    c->port = port;
    return NULL;
}

const char *web_check_target(struct conn *c, const struct http_head *h) {
    struct http_text host = http_field_only(h, "Host");
    const char *wrong = c->is_proxy ? take_authority(c, h) : NULL;
    if (wrong)
        return wrong;
    if (h->form == HTTP_AUTHORITY)
        return c->is_proxy ? NULL : "the method CONNECT works only with the proxy at port 3128";
    if (h->form == HTTP_ABSOLUTE &&
        !http_text_is_like(h->scheme, c->protocol == PROTOCOL_TLS ? "https" : "http"))
        return "the scheme of the URL differs from the protocol of the connection";
    if (http_field_count(h, "Host") > 1 || (!host.s && h->minor))
        return "the request must have exactly one Host field";
    wrong = check_authority(c, h->authority);
    return wrong || !host.s ? wrong : check_authority(c, host);
}
