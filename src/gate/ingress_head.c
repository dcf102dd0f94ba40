#include "gate/ingress_head.h"

#include <string.h>
#include <strings.h>

#include "base/defer.h"
#include "gate/ingress_name.h"
#include "gate/path.h"

enum { REST_MAX = 32768 };

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

/* The second name is the one that clients of E2B send. */
static const char *const token_fields[] = {"Carrel-Token", "E2b-Traffic-Access-Token"};

/* ---- lists of "name=value" in queries and cookies ---- */

struct pair {
    struct http_text whole, value;
    bool ours;
};

/* Compares a name of a query or cookie with `name`. Decodes percent-escapes first, because servers
 * decode the names in a query. */
static bool is_name(struct http_text t, const char *name) {
    size_t i = 0;
    for (; *name && i < t.n; name++, i++) {
        int c = (unsigned char)t.s[i];
        if (c == '%' && i + 2 < t.n) {
            c = path_hex(t.s + i + 1);
            i += 2;
        }
        if (c != (unsigned char)*name)
            return false;
    }
    return !*name && i == t.n;
}

/* Removes the next "name=value" from the list; `between` holds the separators. False: the list is
 * empty. */
static bool next_pair(struct http_text *rest, const char *between, const char *name,
                      struct pair *ret) {
    size_t n = 0;
    if (!rest->n)
        return false;
    while (n < rest->n && !strchr(between, rest->s[n]))
        n++;
    struct http_text t = {rest->s, n};
    size_t used = n < rest->n ? n + 1 : n;
    *rest = (struct http_text){rest->s + used, rest->n - used};
    while (t.n && (*t.s == ' ' || *t.s == '\t'))
        t = (struct http_text){t.s + 1, t.n - 1};
    while (t.n && (t.s[t.n - 1] == ' ' || t.s[t.n - 1] == '\t'))
        t.n--;
    const char *equal = t.n ? memchr(t.s, '=', t.n) : NULL;
    size_t name_n = equal ? (size_t)(equal - t.s) : t.n;
    *ret = (struct pair){.whole = t};
    if (equal)
        ret->value = (struct http_text){equal + 1, t.n - name_n - 1};
    while (name_n && t.s[name_n - 1] == ' ')
        name_n--;
    ret->ours = is_name((struct http_text){t.s, name_n}, name);
    return true;
}

/* ---- finding tokens ---- */

static bool is_token_field(struct http_text name) {
    for (size_t i = 0; i < COUNT(token_fields); i++)
        if (http_text_is_like(name, token_fields[i]))
            return true;
    return false;
}

static void ingress_head_add(struct ingress_tokens *t, struct http_text token) {
    t->all++;
    if (t->count < INGRESS_TOKENS_MAX)
        t->list[t->count++] = token;
}

static bool add_pairs(struct ingress_tokens *t, struct http_text in, const char *between,
                      const char *name) {
    struct pair p;
    size_t before = t->all;
    while (next_pair(&in, between, name, &p))
        if (p.ours)
            ingress_head_add(t, p.value.s ? p.value : (struct http_text){"", 0});
    return t->all > before;
}

void ingress_tokens_find(const struct http_head *h, struct ingress_tokens *ret) {
    *ret = (struct ingress_tokens){.count = 0};
    for (size_t i = 0; i < h->count; i++) {
        if (is_token_field(h->fields[i].name))
            ingress_head_add(ret, h->fields[i].value);
        else if (http_text_is_like(h->fields[i].name, "Cookie"))
            ret->in_cookie |= add_pairs(ret, h->fields[i].value, ";,", INGRESS_COOKIE);
    }
    ret->in_query = add_pairs(ret, h->query, "&;", INGRESS_QUERY);
}

/* ---- keys of the client ---- */

bool ingress_is_key_field(struct http_text name) {
    static const char *const names[] = {"Authorization", "X-API-Key", "X-Access-Token"};
    for (size_t i = 0; i < COUNT(names); i++)
        if (http_text_is_like(name, names[i]))
            return true;
    return false;
}

static bool starts_with_any(struct http_text t, const char *letters, size_t n) {
    size_t i = 0;
    while (i < n && i < t.n && t.s[i] && strchr(letters, t.s[i]))
        i++;
    return i == n;
}

bool ingress_has_key(struct http_text value) {
    static const struct {
        const char *lead, *letters;
        size_t n;
    } keys[] = {{"crl_", "abcdefghijklmnopqrstuvwxyz234567", 52},
                {"e2b_", "0123456789abcdef", 65},
                {"console-", "0123456789abcdef", 64}};
    for (size_t i = 0; i < COUNT(keys); i++) {
        size_t lead = strlen(keys[i].lead);
        struct http_text rest = value;
        while ((rest.s = memmem(rest.s, rest.n, keys[i].lead, lead))) {
            rest.s += lead;
            rest.n = (size_t)(value.s + value.n - rest.s);
            if (starts_with_any(rest, keys[i].letters, keys[i].n))
                return true;
        }
    }
    return false;
}

void ingress_drop_fields(struct http_head *h, bool (*is_key)(void *arg, const struct http_field *f),
                         void *arg) {
    size_t kept = 0;
    for (size_t i = 0; i < h->count; i++)
        if (!is_key(arg, &h->fields[i]))
            h->fields[kept++] = h->fields[i];
    h->count = kept;
}

/* ---- heads without tokens ---- */

/* Writes the pairs that are not Carrel tokens, separated by `between`. *ret_any: at least one was
 * written. */
static bool put_others(struct http_text in, const char *split, const char *name,
                       const char *between, struct buf *out, bool *ret_any) {
    struct pair p;
    *ret_any = false;
    while (next_pair(&in, split, name, &p)) {
        if (p.ours || !p.whole.n)
            continue;
        if ((*ret_any && !buf_add(out, between, strlen(between))) ||
            !buf_add(out, p.whole.s, p.whole.n))
            return false;
        *ret_any = true;
    }
    return true;
}

/* Whether the list contains a Carrel token. If not, the caller copies the list unchanged. */
static bool has_ours(struct http_text in, const char *split, const char *name) {
    struct ingress_tokens t = {.count = 0};
    return add_pairs(&t, in, split, name);
}

bool ingress_put_target(const struct http_head *h, struct buf *out) {
    struct buf rest DEFER(buf_done) = BUF(REST_MAX);
    bool any = h->query.s != NULL, ok = buf_add(out, h->path.s, h->path.n);
    if (any && has_ours(h->query, "&;", INGRESS_QUERY))
        ok = ok && put_others(h->query, "&;", INGRESS_QUERY, "&", &rest, &any);
    else if (any && h->query.n)
        ok = ok && buf_add(&rest, h->query.s, h->query.n);
    return ok &&
           (!any || (buf_add(out, "?", 1) && (!rest.len || buf_add(out, rest.data, rest.len))));
}

static bool put_cookie(const struct http_field *f, struct buf *out) {
    struct buf rest DEFER(buf_done) = BUF(REST_MAX);
    bool any;
    if (!has_ours(f->value, ";,", INGRESS_COOKIE))
        return http_put_field(out, f->name, f->value);
    if (!put_others(f->value, ";,", INGRESS_COOKIE, "; ", &rest, &any))
        return false;
    return !any || http_put_field(out, f->name, (struct http_text){rest.data, rest.len});
}

static bool is_of_connection(struct http_text name) {
    static const char *const names[] = {"Connection", "Keep-Alive", "Proxy-Connection",
                                        "Proxy-Authorization", INGRESS_PORT_FIELD};
    for (size_t i = 0; i < COUNT(names); i++)
        if (http_text_is_like(name, names[i]))
            return true;
    return false;
}

static bool put_fields(const struct http_head *h, struct buf *out) {
    bool ok = true;
    for (size_t i = 0; ok && i < h->count; i++) {
        const struct http_field *f = &h->fields[i];
        if (is_of_connection(f->name) || is_token_field(f->name))
            continue;
        ok = http_text_is_like(f->name, "Cookie") ? put_cookie(f, out)
                                                  : http_put_field(out, f->name, f->value);
    }
    return ok;
}

bool ingress_put_request(const struct http_head *h, struct buf *out) {
    struct buf target DEFER(buf_done) = BUF(REST_MAX);
    return ingress_put_target(h, &target) &&
           http_put_request_line(out, h->method, (struct http_text){target.data, target.len}) &&
           put_fields(h, out) &&
           http_put_pairs(out, HTTP_FIELDS({"Connection", h->upgrade ? "Upgrade" : "close"})) &&
           http_put_end(out);
}

bool ingress_put_answer(const struct http_head *h, struct buf *out) {
    if (h->status < 200)
        return http_put_head(out, h);
    return buf_addf(out, "HTTP/1.1 %d %.*s\r\n", h->status, (int)h->reason.n, h->reason.s) &&
           put_fields(h, out) && http_put_pairs(out, HTTP_FIELDS({"Connection", "close"})) &&
           http_put_end(out);
}

void ingress_mask(struct buf *head, struct http_text token) {
    for (char *at = head->data;
         token.n && (at = memmem(at, head->len - (size_t)(at - head->data), token.s, token.n));)
        memset(at, '*', token.n);
}

bool ingress_origin_ok(const struct http_head *h) {
    static const char *const schemes[] = {"http://", "https://"};
    struct http_text origin = http_field_only(h, "Origin"), host = http_field_only(h, "Host");
    if (!http_field_count(h, "Origin"))
        return true; /* a browser sends Origin, so the client is not a web page */
    for (size_t i = 0; origin.s && host.s && i < COUNT(schemes); i++) {
        size_t n = strlen(schemes[i]);
        if (origin.n == n + host.n && strncasecmp(origin.s, schemes[i], n) == 0 &&
            strncasecmp(origin.s + n, host.s, host.n) == 0)
            return true;
    }
    return false;
}

/* Browsers send these fields to each origin on which they keep cookies that are Secure. */
static bool fetch_is(const struct http_head *h, const char *field, const char *value) {
    struct http_text t = http_field_only(h, field);
    return t.s && http_text_is_like(t, value);
}

bool ingress_is_page(const struct http_head *h) {
    return http_field_count(h, "Origin") || http_field_count(h, "Sec-Fetch-Site");
}

bool ingress_in_frame(const struct http_head *h) {
    return fetch_is(h, "Sec-Fetch-Dest", "iframe");
}

/* All names below a configured domain are one site for browsers, but not one machine. */
bool ingress_foreign(const struct http_head *h) {
    bool reads = http_text_is(h->method, "GET") || http_text_is(h->method, "HEAD");
    bool other =
        fetch_is(h, "Sec-Fetch-Site", "cross-site") || fetch_is(h, "Sec-Fetch-Site", "same-site");
    return other && !(reads && fetch_is(h, "Sec-Fetch-Mode", "navigate"));
}
