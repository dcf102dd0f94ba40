#include "gate/secrets.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include "base/defer.h"
#include "base/text/base64.h"
#include "base/text/secret_forms.h"

enum { PLACEHOLDER_RANDOM = 26, BASIC_MAX = 12288 };
static const char lead[] = "carrel-secret-";

static const char *const ways[] = {
    [SECRET_HEADER] = "header", [SECRET_BASIC] = "basic", [SECRET_QUERY] = "query"};

const char *secret_way_name(enum secret_way way) {
    return ways[way];
}

int secret_way_parse(const char *text, enum secret_way *ret, struct err *err) {
    for (enum secret_way w = SECRET_HEADER; w <= SECRET_QUERY; w++)
        if (strcmp(ways[w], text) == 0) {
            *ret = w;
            return 0;
        }
    return err_set(err, ERR_INVALID, "a secret is sent as header, basic or query, not as '%.20s'",
                   text);
}

bool secret_name_ok(const char *name) {
    size_t n = strlen(name);
    if (n == 0 || n >= SECRET_NAME_SIZE || isdigit((unsigned char)name[0]))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)name[i]) && name[i] != '_')
            return false;
    return true;
}

void placeholder_make(char ret[PLACEHOLDER_SIZE]) {
    static const char base32[] = "abcdefghijklmnopqrstuvwxyz234567";
    unsigned char random[PLACEHOLDER_RANDOM];
    while (getrandom(random, sizeof(random), 0) != sizeof(random))
        ;
    memcpy(ret, lead, sizeof(lead));
    for (size_t i = 0; i < PLACEHOLDER_RANDOM; i++)
        ret[sizeof(lead) - 1 + i] = base32[random[i] & 31];
    ret[sizeof(lead) - 1 + PLACEHOLDER_RANDOM] = '\0';
}

bool secret_grants_for(const struct secret_grants *g, const char *host) {
    for (size_t i = 0; i < g->count; i++)
        if (strcmp(g->list[i].host, host) == 0)
            return true;
    return false;
}

void secret_uses_done(struct secret_uses *u) {
    for (size_t i = 0; i < u->count; i++)
        secret_free(u->list[i].value);
    u->count = 0;
}

/* ---- finding placeholders ---- */

static const char *secrets_find(struct http_text t, const char *what) {
    return t.n ? memmem(t.s, t.n, what, strlen(what)) : NULL;
}

/* Decodes the credentials of basic authentication. False: the field is something else. */
static bool decode_basic(struct http_text name, struct http_text value, char ret[BASIC_MAX],
                         size_t *ret_n) {
    static const char scheme[] = "Basic ";
    size_t lead_n = sizeof(scheme) - 1;
    if (!http_text_is_like(name, "Authorization") || value.n <= lead_n ||
        strncasecmp(value.s, scheme, lead_n) != 0)
        return false;
    const char *text = value.s + lead_n;
    size_t n = value.n - lead_n;
    while (n && *text == ' ')
        text++, n--;
    return n / 4 * 3 <= BASIC_MAX && base64_decode(text, n, ret, ret_n);
}

struct looking {
    const struct secret_grants *grants;
    const char *host;
    bool is_tls;
    struct secret_uses *uses;
};

static void secrets_refuse(struct looking *k, const char *name, const char *why,
                           enum remedy remedy) {
    if (k->uses->why[0])
        return;
    snprintf(k->uses->why, sizeof(k->uses->why), "the placeholder of secret '%s' %s", name, why);
    k->uses->remedy = remedy;
}

static const struct secret_grant *fitting(const struct looking *k, const char *name,
                                          enum secret_way way) {
    for (size_t i = 0; i < k->grants->count; i++) {
        const struct secret_grant *g = &k->grants->list[i];
        if (g->way == way && strcmp(g->name, name) == 0 && strcmp(g->host, k->host) == 0)
            return g;
    }
    return NULL;
}

static bool is_for_host(const struct looking *k, const char *name) {
    for (size_t i = 0; i < k->grants->count; i++)
        if (strcmp(k->grants->list[i].name, name) == 0 &&
            strcmp(k->grants->list[i].host, k->host) == 0)
            return true;
    return false;
}

/* Records a placeholder that was found in the request, or refuses it. way 0: the placeholder is
 * where none is allowed. */
static void stands(struct looking *k, const char *name, enum secret_way way) {
    struct secret_uses *u = k->uses;
    const struct secret_grant *g = way ? fitting(k, name, way) : NULL;
    if (!is_for_host(k, name)) {
        secrets_refuse(k, name, "may not be sent to this host", REMEDY_SECRET_HOST);
    } else if (!g) {
        secrets_refuse(k, name, "is in a part of the request that its grant does not allow",
                       REMEDY_SECRET_PLACE);
    } else if (!k->is_tls) {
        secrets_refuse(k, name, "may be used only inside TLS", REMEDY_SECRET_TLS);
    } else {
        for (size_t i = 0; i < u->count; i++)
            if (u->list[i].grant == g)
                return;
        if (u->count == SECRET_USES_MAX)
            secrets_refuse(k, name, "cannot be replaced: the request uses too many secrets",
                           REMEDY_NONE);
        else
            u->list[u->count++] = (struct secret_use){.grant = g};
    }
}

static void secrets_look(struct looking *k, struct http_text in, enum secret_way way) {
    const struct secret_grants *all = k->grants;
    for (size_t i = 0; i < all->count; i++)
        if (secrets_find(in, all->list[i].placeholder))
            stands(k, all->list[i].name, way);
}

static void look_at_field(struct looking *k, const struct http_field *f) {
    char words[BASIC_MAX];
    size_t n;
    secrets_look(k, f->name, 0);
    if (decode_basic(f->name, f->value, words, &n)) {
        secrets_look(k, (struct http_text){words, n}, SECRET_BASIC);
        explicit_bzero(words, sizeof(words));
    }
    secrets_look(k, f->value, SECRET_HEADER);
}

void secrets_check(const struct secret_grants *g, const char *host, bool is_tls,
                   const struct http_head *h, struct secret_uses *ret) {
    struct looking k = {g, host, is_tls, ret};
    *ret = (struct secret_uses){.count = 0};
    if (!g->count)
        return;
    secrets_look(&k, h->method, 0);
    secrets_look(&k, h->path, 0);
    secrets_look(&k, h->query, SECRET_QUERY);
    for (size_t i = 0; i < h->count; i++)
        look_at_field(&k, &h->fields[i]);
    if (ret->why[0])
        ret->count = 0;
}

/* ---- replacing placeholders by values ---- */

static bool put_encoded(const struct secret *value, struct buf *out) {
    struct buf plain = BUF(SECRET_MAX + 1);
    bool ok = secret_reveal(value, &plain);
    for (size_t i = 0; ok && i < plain.len; i++) {
        unsigned char c = (unsigned char)plain.data[i];
        bool free = isalnum(c) || strchr("-._~", c);
        ok = free ? buf_add(out, &plain.data[i], 1) : buf_addf(out, "%%%02X", c);
    }
    secret_wipe(&plain);
    return ok;
}

/* Finds the first placeholder of a secret that is granted for this part of requests (way); NULL:
 * none. */
static const struct secret_use *next_use(const struct secret_uses *u, enum secret_way way,
                                         struct http_text in, size_t *ret_at) {
    const struct secret_use *first = NULL;
    for (size_t i = 0; i < u->count; i++) {
        const char *at =
            u->list[i].grant->way == way ? secrets_find(in, u->list[i].grant->placeholder) : NULL;
        if (at && (!first || (size_t)(at - in.s) < *ret_at)) {
            first = &u->list[i];
            *ret_at = (size_t)(at - in.s);
        }
    }
    return first;
}

static bool secrets_put(const struct secret_uses *u, enum secret_way way, struct http_text in,
                        struct buf *out) {
    const struct secret_use *use;
    size_t at = 0;
    while ((use = next_use(u, way, in, &at))) {
        size_t n = at + strlen(use->grant->placeholder);
        if (!buf_add(out, in.s, at) ||
            !(way == SECRET_QUERY ? put_encoded(use->value, out) : secret_reveal(use->value, out)))
            return false;
        in = (struct http_text){in.s + n, in.n - n};
    }
    return !in.n || buf_add(out, in.s, in.n);
}

static bool uses_way(const struct secret_uses *u, enum secret_way way) {
    for (size_t i = 0; i < u->count; i++)
        if (u->list[i].grant->way == way)
            return true;
    return false;
}

static bool put_basic(const struct secret_uses *u, struct http_text words, struct buf *out) {
    struct buf plain = BUF(BASIC_MAX + SECRET_USES_MAX * SECRET_MAX);
    bool ok = secrets_put(u, SECRET_BASIC, words, &plain);
    char *text = ok ? malloc(BASE64_SIZE(plain.len)) : NULL;
    if (text) {
        base64_encode(plain.data, plain.len, text);
        ok = buf_addf(out, "Basic %s", text);
        explicit_bzero(text, BASE64_SIZE(plain.len));
        free(text);
    }
    secret_wipe(&plain);
    return ok && text;
}

bool secrets_put_value(const struct secret_uses *u, struct http_text name, struct http_text value,
                       struct buf *out) {
    char words[BASIC_MAX];
    size_t n;
    if (uses_way(u, SECRET_BASIC) && decode_basic(name, value, words, &n))
        return put_basic(u, (struct http_text){words, n}, out);
    return secrets_put(u, SECRET_HEADER, value, out);
}

bool secrets_put_query(const struct secret_uses *u, struct http_text query, struct buf *out) {
    return secrets_put(u, SECRET_QUERY, query, out);
}

/* ---- texts to find in bodies ---- */

bool secrets_placeholders(const struct secret_grants *g, struct needles *ret) {
    for (size_t i = 0; i < g->count; i++)
        if (!needles_add(ret, g->list[i].placeholder, strlen(g->list[i].placeholder)))
            return false;
    return true;
}

/* Adds the encoded credentials after "Basic ", because a server may echo them. */
static bool add_basic(const struct secret_uses *one, const struct http_head *h,
                      struct needles *ret) {
    for (size_t i = 0; i < h->count; i++) {
        char words[BASIC_MAX];
        size_t n;
        struct buf out = BUF(2 * (BASIC_MAX + SECRET_MAX));
        if (!decode_basic(h->fields[i].name, h->fields[i].value, words, &n))
            continue;
        bool ok = put_basic(one, (struct http_text){words, n}, &out) &&
                  needles_add(ret, out.data + 6, out.len - 6);
        secret_wipe(&out);
        if (!ok)
            return false;
    }
    return true;
}

bool secrets_forms(const struct secret_use *use, const struct http_head *h, struct needles *ret) {
    struct buf plain DEFER(secret_wipe) = BUF(SECRET_MAX + 1);
    const struct secret_uses one = {.list = {*use}, .count = 1};
    return secret_reveal(use->value, &plain) && secret_forms_add(plain.data, plain.len, ret) &&
           (use->grant->way != SECRET_BASIC || add_basic(&one, h, ret));
}
