#include "gate/pg_wire.h"

#include <string.h>

#include "base/defer.h"

/* CANCEL, TLS and KERBEROS are special values in the field of the protocol version. A version is
 * major << 16 | minor. */
enum { CANCEL = 80877102, TLS = 80877103, KERBEROS = 80877104, VERSION = 3, WAYS = 10 };

static uint32_t number(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static bool pg_wire_put_number(struct buf *out, uint32_t v) {
    const uint8_t bytes[4] = {(uint8_t)(v >> 24), (uint8_t)(v >> 16), (uint8_t)(v >> 8),
                              (uint8_t)v};
    return buf_add(out, bytes, sizeof(bytes));
}

/* ---- packets of the client ---- */

/* Takes a NUL-terminated string; NULL: no NUL before `end`. */
static const char *text_at(const uint8_t **at, const uint8_t *end) {
    const char *text = (const char *)*at;
    const uint8_t *nul = *at < end ? memchr(*at, '\0', (size_t)(end - *at)) : NULL;
    *at = nul ? nul + 1 : end;
    return nul ? text : NULL;
}

static bool pg_wire_take_word(struct pg_startup *s, const char *name, const char *value) {
    if (strcmp(name, "replication") == 0) {
        s->replicates = true;
        return true;
    }
    const char **to = strcmp(name, "user") == 0       ? &s->user
                      : strcmp(name, "database") == 0 ? &s->database
                                                      : NULL;
    if (!to)
        return true;
    if (*to)
        return false;
    *to = value;
    return true;
}

/* Reads the parameters of the first packet: names and values in turn, until an empty name. */
static enum pg_first pg_wire_read_words(const uint8_t *at, const uint8_t *end,
                                        struct pg_startup *s) {
    const char *name, *value;
    while ((name = text_at(&at, end)) && *name)
        if (!(value = text_at(&at, end)) || !pg_wire_take_word(s, name, value))
            return PG_BAD;
    if (!name || at != end || !s->user || !*s->user)
        return PG_BAD;
    if (!s->database || !*s->database)
        s->database = s->user;
    return PG_STARTUP;
}

static enum pg_first read_key(const uint8_t *body, size_t n, struct pg_key *ret) {
    if (n < 8 || n > sizeof(ret->bytes))
        return PG_BAD;
    ret->n = n;
    memcpy(ret->bytes, body, n);
    return PG_CANCEL;
}

enum pg_first pg_first_read(const uint8_t *bytes, size_t n, struct pg_startup *ret) {
    *ret = (struct pg_startup){.size = 0};
    if (n >= 1 && bytes[0])
        return PG_BAD; /* not PostgreSQL: perhaps a TLS ClientHello, or HTTP */
    if (n < 4)
        return PG_MORE;
    size_t size = number(bytes);
    if (size < PG_REQUEST_BYTES || size > PG_FIRST_MAX)
        return PG_BAD;
    if (n < size)
        return PG_MORE;
    ret->size = size;
    uint32_t code = number(bytes + 4);
    if (code == TLS || code == KERBEROS)
        return size == PG_REQUEST_BYTES ? PG_WANTS_TLS : PG_BAD;
    if (code == CANCEL)
        return read_key(bytes + 8, size - 8, &ret->key);
    return code >> 16 == VERSION ? pg_wire_read_words(bytes + 8, bytes + size, ret) : PG_BAD;
}

void pg_put_tls_request(uint8_t ret[PG_REQUEST_BYTES]) {
    static const uint8_t request[PG_REQUEST_BYTES] = {0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f};
    memcpy(ret, request, sizeof(request));
}

/* ---- messages of the server ---- */

int pg_message_read(const uint8_t *bytes, size_t n, struct pg_message *ret) {
    if (n < 5)
        return 0;
    size_t len = number(bytes + 1);
    if (len < 4 || len > PG_GREETING_MAX - 1)
        return -1;
    if (n < len + 1)
        return 0;
    *ret = (struct pg_message){(char)bytes[0], bytes + 5, len - 4, len + 1};
    return 1;
}

bool pg_offers_ways(const struct pg_message *m) {
    return m->kind == 'R' && m->n >= 4 && number(m->body) == WAYS;
}

static bool put_message(char kind, const struct buf *body, struct buf *out) {
    return buf_add(out, &kind, 1) && pg_wire_put_number(out, (uint32_t)body->len + 4) &&
           buf_add(out, body->data, body->len);
}

bool pg_put_ways(const struct pg_message *m, struct buf *out) {
    static const char bound[] = "-PLUS";
    struct buf body DEFER(buf_done) = BUF(PG_GREETING_MAX);
    const uint8_t *at = m->body + 4, *end = m->body + m->n;
    const char *way = NULL;
    bool ok = pg_wire_put_number(&body, WAYS), any = false;
    while (ok && (way = text_at(&at, end)) && *way) {
        size_t n = strlen(way);
        if (n >= strlen(bound) && strcmp(way + n - strlen(bound), bound) == 0)
            continue;
        any = true;
        ok = buf_add(&body, way, n + 1);
    }
    return ok && any && way && at == end && buf_add(&body, "", 1) && put_message('R', &body, out);
}

bool pg_key_read(const struct pg_message *m, struct pg_key *ret) {
    return m->kind == 'K' && read_key(m->body, m->n, ret) == PG_CANCEL;
}

bool pg_key_equal(const struct pg_key *a, const struct pg_key *b) {
    unsigned differs = a->n != b->n || !a->n;
    for (size_t i = 0; !(a->n != b->n) && i < a->n; i++)
        differs |= a->bytes[i] ^ b->bytes[i]; /* constant time: hides where the keys differ */
    return !differs;
}

bool pg_put_error(const char *code, const char *text, const char *hint, struct buf *out) {
    const struct {
        char kind;
        const char *text;
    } fields[] = {{'S', "FATAL"}, {'V', "FATAL"}, {'C', code}, {'M', text}, {'H', hint}};
    struct buf body DEFER(buf_done) = BUF(PG_GREETING_MAX);
    for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++)
        if (!buf_add(&body, &fields[i].kind, 1) ||
            !buf_add(&body, fields[i].text, strlen(fields[i].text) + 1))
            return false;
    return buf_add(&body, "", 1) && put_message('E', &body, out);
}
