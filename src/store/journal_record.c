#include "store/journal_record.h"

#include <string.h>

#include "base/defer.h"
#include "base/hex.h"
#include "base/jot.h"
#include "base/text/cursor.h"
#include "base/text/json_check.h"

enum field_type { FIELD_U64, FIELD_I64, FIELD_TEXT, FIELD_KIND, FIELD_ARGV, FIELD_EXIT };

struct field {
    const char *name;
    enum field_type type;
    size_t offset;
    bool always;
};

#define AT(member) offsetof(struct journal_record, member)

/* The fields of a record, in the order of its line. The fields `detail` and `hash` follow them. */
static const struct field fields[] = {
    {"seq", FIELD_U64, AT(seq), true},
    {"time", FIELD_I64, AT(time_ms), true},
    {"kind", FIELD_KIND, AT(kind), true},
    {"owner", FIELD_TEXT, AT(owner), false},
    {"token", FIELD_TEXT, AT(token), false},
    {"client", FIELD_TEXT, AT(client), false},
    {"verb", FIELD_TEXT, AT(verb), false},
    {"machine", FIELD_TEXT, AT(machine), false},
    {"exec", FIELD_TEXT, AT(exec), false},
    {"argv", FIELD_ARGV, AT(argv), false},
    {"argv_bytes", FIELD_U64, AT(argv_bytes), false},
    {"argv_hash", FIELD_TEXT, AT(argv_hash), false},
    {"exit", FIELD_EXIT, AT(exit), false},
    {"bytes", FIELD_U64, AT(bytes), false},
    {"intent", FIELD_U64, AT(intent), false},
    {"reason", FIELD_TEXT, AT(reason), false},
    {"segment", FIELD_U64, AT(segment), false},
    {"journal", FIELD_TEXT, AT(journal), false},
    {"prev", FIELD_TEXT, AT(prev), false},
    {"sig", FIELD_TEXT, AT(sig), false},
};
enum { FIELD_COUNT = sizeof(fields) / sizeof(*fields) };

static const char *const kind_names[] = {
    [JOURNAL_INTENT] = "intent",   [JOURNAL_RESULT] = "result", [JOURNAL_NOTE] = "note",
    [JOURNAL_SEGMENT] = "segment", [JOURNAL_HEAD] = "head",
};
enum { KIND_COUNT = sizeof(kind_names) / sizeof(*kind_names) };

static const char hash_lead[] = ",\"hash\":\"";
static const char detail_lead[] = ",\"detail\":";
enum { HASH_TAIL = sizeof(hash_lead) - 1 + 2 * SHA256_BYTES + 2 }; /* ,"hash":"..."} */

const char *journal_kind_name(enum journal_kind kind) {
    return (size_t)kind < KIND_COUNT && kind_names[kind] ? kind_names[kind] : "?";
}

/* ---- Encoding ---- */

static const void *member(const struct journal_record *r, const struct field *f) {
    return (const char *)r + f->offset;
}

static const char *journal_record_text_of(const struct journal_record *r, const struct field *f) {
    const char *text;
    memcpy(&text, member(r, f), sizeof(text));
    return text ? text : "";
}

static uint64_t journal_record_number_of(const struct journal_record *r, const struct field *f) {
    uint64_t n;
    memcpy(&n, member(r, f), sizeof(n));
    return n;
}

static bool present(const struct journal_record *r, const struct field *f) {
    switch (f->type) {
    case FIELD_TEXT:
        return *journal_record_text_of(r, f) != '\0';
    case FIELD_ARGV:
        return r->argc > 0;
    case FIELD_EXIT:
        return r->has_exit;
    case FIELD_U64:
    case FIELD_I64:
    case FIELD_KIND:
        break;
    }
    return f->always || journal_record_number_of(r, f) != 0;
}

static void put_argv(struct jot *j, const struct journal_record *r) {
    jot_array(j, "argv");
    for (size_t i = 0; i < r->argc; i++)
        jot_string(j, NULL, r->argv[i]);
    jot_end(j, ']');
}

static void put_field(struct jot *j, const struct journal_record *r, const struct field *f) {
    switch (f->type) {
    case FIELD_U64:
        return jot_u64(j, f->name, journal_record_number_of(r, f));
    case FIELD_I64:
    case FIELD_EXIT:
        return jot_i64(j, f->name, (int64_t)journal_record_number_of(r, f));
    case FIELD_TEXT:
        return jot_string(j, f->name, journal_record_text_of(r, f));
    case FIELD_KIND:
        return jot_string(j, f->name, journal_kind_name(r->kind));
    case FIELD_ARGV:
        return put_argv(j, r);
    }
}

static int check_argv(const struct journal_record *r, struct err *err) {
    size_t bytes = 0;
    if (r->argc > JOURNAL_ARGV_COUNT)
        return err_set(err, ERR_LIMIT,
                       "cannot write a journal record: field 'argv' has more than %d elements",
                       JOURNAL_ARGV_COUNT);
    for (size_t i = 0; i < r->argc; i++)
        bytes += strlen(r->argv[i]) + 1;
    if (bytes > JOURNAL_ARGV_BYTES)
        return err_set(err, ERR_LIMIT,
                       "cannot write a journal record: field 'argv' is longer than %d KiB",
                       JOURNAL_ARGV_BYTES >> 10);
    return 0;
}

static int journal_record_check(const struct journal_record *r, struct err *err) {
    if ((size_t)r->kind >= KIND_COUNT || !kind_names[r->kind])
        return err_set(err, ERR_INVALID, "cannot write a journal record: its kind %d is unknown",
                       (int)r->kind);
    for (size_t i = 0; i < FIELD_COUNT; i++)
        if (fields[i].type == FIELD_TEXT &&
            strlen(journal_record_text_of(r, &fields[i])) > JOURNAL_TEXT_MAX)
            return err_set(err, ERR_LIMIT,
                           "cannot write a journal record: field '%s' is longer than %d bytes",
                           fields[i].name, JOURNAL_TEXT_MAX);
    size_t detail = r->detail ? strlen(r->detail) : 0;
    if (detail > JOURNAL_DETAIL_MAX)
        return err_set(err, ERR_LIMIT,
                       "cannot write a journal record: field 'detail' is longer than %d KiB",
                       JOURNAL_DETAIL_MAX >> 10);
    /* JSON allows newlines between values, but a record must be one line. */
    if (detail && (!json_check(r->detail, detail) || strpbrk(r->detail, "\r\n")))
        return err_set(err, ERR_INVALID,
                       "cannot write a journal record: field 'detail' is not one JSON value");
    return check_argv(r, err);
}

/* Writes the part of the line that is hashed: without the field `hash` and the newline. */
static bool put_body(const struct journal_record *r, struct buf *out) {
    struct jot j = JOT(out);
    jot_object(&j, NULL);
    for (size_t i = 0; i < FIELD_COUNT; i++)
        if (present(r, &fields[i]))
            put_field(&j, r, &fields[i]);
    if (j.failed)
        return false;
    if (r->detail && *r->detail &&
        (!buf_add(out, detail_lead, sizeof(detail_lead) - 1) ||
         !buf_add(out, r->detail, strlen(r->detail))))
        return false;
    return buf_add(out, "}", 1);
}

static void chain(uint8_t hash[SHA256_BYTES], const char *body, size_t len) {
    struct sha256 s;
    sha256_init(&s);
    sha256_add(&s, hash, SHA256_BYTES);
    sha256_add(&s, body, len);
    sha256_end(&s, hash);
}

int journal_record_encode(const struct journal_record *record, uint8_t hash[SHA256_BYTES],
                          struct buf *out, struct err *err) {
    if (journal_record_check(record, err) < 0)
        return -1;

    size_t start = out->len;
    uint8_t next[SHA256_BYTES];
    char hex[JOURNAL_HEX_SIZE];
    if (!put_body(record, out))
        goto full;
    memcpy(next, hash, sizeof(next));
    chain(next, out->data + start, out->len - start);
    hex_put(next, sizeof(next), hex);
    out->len--; /* drop the closing brace: the hash goes before it */
    if (!buf_addf(out, "%s%s\"}\n", hash_lead, hex) || out->len - start > JOURNAL_LINE_MAX)
        goto full;
    memcpy(hash, next, sizeof(next));
    return 0;
full:
    if (out->data) {
        out->len = start;
        out->data[start] = '\0';
    }
    return err_set(err, ERR_LIMIT, "cannot write a journal record: it is larger than %d KiB",
                   JOURNAL_LINE_MAX >> 10);
}

/* ---- Decoding ---- */

struct reader {
    struct cursor in;
    char *text; /* unused part of slot->text */
    struct journal_slot *slot;
};

/* Reads an escape of base/jot.h: \n \t \r \" \\ or \u00xx for one byte. \ufffd stands for a byte
 * that was not UTF-8. It becomes such a byte again, so that encoding writes the same text. */
static bool read_escape(struct cursor *c, char *ret) {
    static const char pairs[][2] = {
        {'n', '\n'}, {'t', '\t'}, {'r', '\r'}, {'"', '"'}, {'\\', '\\'}};
    if (c->at == c->end)
        return false;
    if (take(c, "ufffd", 5)) {
        *ret = (char)0xff;
        return true;
    }
    if (take(c, "u00", 3)) {
        uint8_t byte;
        if (c->end - c->at < 2 || !hex_read(c->at, 1, &byte) || byte == 0)
            return false;
        c->at += 2;
        *ret = (char)byte;
        return true;
    }
    for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++)
        if (*c->at == pairs[i][0]) {
            *ret = pairs[i][1];
            c->at++;
            return true;
        }
    return false;
}

/* Reads a JSON string. Text without escapes is not longer than the line, so it fits the slot. */
static const char *read_text(struct reader *r) {
    char *text = r->text;
    if (!take_char(&r->in, '"'))
        return NULL;
    while (r->in.at < r->in.end) {
        char c = *r->in.at++;
        if (c == '"') {
            *r->text++ = '\0';
            return text;
        }
        if (c == '\0' || (c == '\\' && !read_escape(&r->in, &c)))
            return NULL;
        *r->text++ = c;
    }
    return NULL;
}

static bool read_u64(struct cursor *c, uint64_t *ret) {
    uint64_t n = 0;
    const char *from = c->at;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++)
        if (__builtin_mul_overflow(n, 10, &n) ||
            __builtin_add_overflow(n, (uint64_t)(*c->at - '0'), &n))
            return false;
    *ret = n;
    return c->at > from;
}

static bool read_i64(struct cursor *c, uint64_t *ret) {
    bool negative = take_char(c, '-');
    if (!read_u64(c, ret) || *ret > (uint64_t)INT64_MAX + negative)
        return false;
    if (negative)
        *ret = 0 - *ret;
    return true;
}

static bool read_kind(struct reader *r) {
    const char *name = read_text(r);
    for (size_t i = 1; name && i < KIND_COUNT; i++)
        if (strcmp(name, kind_names[i]) == 0) {
            r->slot->record.kind = (enum journal_kind)i;
            return true;
        }
    return false;
}

static bool read_argv(struct reader *r) {
    struct journal_record *record = &r->slot->record;
    record->argv = r->slot->argv;
    if (!take_char(&r->in, '['))
        return false;
    do {
        const char *text = record->argc < JOURNAL_ARGV_COUNT ? read_text(r) : NULL;
        if (!text)
            return false;
        r->slot->argv[record->argc++] = text;
    } while (take_char(&r->in, ','));
    return take_char(&r->in, ']');
}

static bool journal_record_read_number(struct reader *r, const struct field *f) {
    uint64_t n;
    if (!(f->type == FIELD_U64 ? read_u64(&r->in, &n) : read_i64(&r->in, &n)))
        return false;
    memcpy((char *)&r->slot->record + f->offset, &n, sizeof(n));
    return true;
}

static bool read_field(struct reader *r, const struct field *f) {
    switch (f->type) {
    case FIELD_EXIT:
        r->slot->record.has_exit = true;
        return journal_record_read_number(r, f);
    case FIELD_U64:
    case FIELD_I64:
        return journal_record_read_number(r, f);
    case FIELD_KIND:
        return read_kind(r);
    case FIELD_ARGV:
        return read_argv(r);
    case FIELD_TEXT:
        break;
    }
    const char *text = read_text(r);
    if (text)
        memcpy((char *)&r->slot->record + f->offset, &text, sizeof(text));
    return text != NULL;
}

static bool journal_record_take_name(struct cursor *c, const char *name, bool first) {
    struct cursor saved = *c;
    if (take_char(c, first ? '{' : ',') && take_char(c, '"') && take(c, name, strlen(name)) &&
        take(c, "\":", 2))
        return true;
    *c = saved;
    return false;
}

static bool read_detail(struct reader *r) {
    if (!journal_record_take_name(&r->in, "detail", false))
        return true;
    size_t n = (size_t)(r->in.end - r->in.at);
    memcpy(r->text, r->in.at, n);
    r->text[n] = '\0';
    r->slot->record.detail = r->text;
    r->text += n + 1;
    r->in.at = r->in.end;
    return n > 0 && memchr(r->slot->record.detail, 0, n) == NULL;
}

static void clear_record(struct journal_record *r) {
    const char *empty = "";
    *r = (struct journal_record){.detail = empty};
    for (size_t i = 0; i < FIELD_COUNT; i++)
        if (fields[i].type == FIELD_TEXT)
            memcpy((char *)r + fields[i].offset, &empty, sizeof(empty));
}

/* Reads the fields of a record. body: the line from '{' up to the comma before `hash`. */
static int read_body(const char *body, size_t len, struct journal_slot *slot, struct err *err) {
    struct reader r = {.in = {body, body + len}, .text = slot->text, .slot = slot};
    clear_record(&slot->record);
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        bool found = journal_record_take_name(&r.in, fields[i].name, i == 0);
        if ((!found && fields[i].always) || (found && !read_field(&r, &fields[i])))
            return err_set(err, ERR_INVALID,
                           "field '%s' of the journal record is missing or malformed",
                           fields[i].name);
    }
    if (!read_detail(&r))
        return err_set(err, ERR_INVALID, "field 'detail' of the journal record is malformed");
    if (r.in.at != r.in.end)
        return err_set(err, ERR_INVALID,
                       "the journal record has an unknown field, or fields out of order");
    return 0;
}

/* A record has only one encoding, so encoding it again must give the same bytes. */
static int check_canonical(const struct journal_slot *slot, const char *body, size_t len,
                           struct err *err) {
    if (journal_record_check(&slot->record, err) < 0)
        return -1;
    struct buf again DEFER(buf_done) = BUF(JOURNAL_LINE_MAX);
    if (!put_body(&slot->record, &again) || again.len != len + 1 ||
        memcmp(again.data, body, len) != 0)
        return err_set(err, ERR_INVALID, "the journal record is not in canonical form");
    return 0;
}

static int check_chain(const uint8_t prev[SHA256_BYTES], const struct journal_slot *slot,
                       const char *body, size_t len, struct err *err) {
    struct sha256 s;
    uint8_t hash[SHA256_BYTES];
    sha256_init(&s);
    sha256_add(&s, prev, SHA256_BYTES);
    sha256_add(&s, body, len);
    sha256_add(&s, "}", 1);
    sha256_end(&s, hash);
    if (memcmp(hash, slot->hash, sizeof(hash)) != 0)
        return err_set(err, ERR_INVALID,
                       "the hash does not match the journal record and the one before it");
    return 0;
}

int journal_record_decode(const char *line, size_t len, const uint8_t prev[SHA256_BYTES],
                          struct journal_slot *ret, struct err *err) {
    if (len > 0 && line[len - 1] == '\n')
        len--;
    if (len >= JOURNAL_LINE_MAX)
        return err_set(err, ERR_LIMIT, "the journal record is larger than %d KiB",
                       JOURNAL_LINE_MAX >> 10);
    if (len < HASH_TAIL || memcmp(line + len - 2, "\"}", 2) != 0)
        return err_set(err, ERR_INVALID, "the journal record does not end with a hash");
    size_t body = len - HASH_TAIL;
    if (memcmp(line + body, hash_lead, sizeof(hash_lead) - 1) != 0 ||
        !hex_read(line + body + sizeof(hash_lead) - 1, SHA256_BYTES, ret->hash))
        return err_set(err, ERR_INVALID, "the journal record does not end with a hash");
    if (prev && check_chain(prev, ret, line, body, err) < 0)
        return -1;
    if (read_body(line, body, ret, err) < 0)
        return -1;
    return check_canonical(ret, line, body, err);
}

/* ---- Secrets ---- */

/* One form in which a secret's value may occur in a text. */
struct needle {
    const char *bytes;
    size_t len;
    const struct journal_secret *secret;
};

struct needles {
    struct needle *v;
    size_t count;
    struct buf escaped; /* the bytes of all needles (search texts) */
};

static void needles_done(struct needles *n) {
    free(n->v);
    buf_done(&n->escaped);
}

/* Makes two needles (search texts) per secret: its value, and its value escaped as in JSON. */
static bool needles_make(struct needles *n, const struct journal_secret *secrets, size_t count) {
    size_t room = 0;
    for (size_t i = 0; i < count; i++)
        room += 7 * secrets[i].len + 2;
    n->escaped = BUF(room);
    n->v = calloc(2 * count + 1, sizeof(*n->v));
    if (!n->v || !buf_add(&n->escaped, "", 0))
        return false;
    size_t *ends DEFER_FREE = calloc(2 * count + 1, sizeof(*ends));
    for (size_t i = 0; ends && i < count; i++) {
        struct jot j = JOT(&n->escaped);
        if (!buf_add(&n->escaped, secrets[i].value, secrets[i].len))
            return false;
        ends[2 * i] = n->escaped.len;
        jot_bytes(&j, NULL, secrets[i].value, secrets[i].len);
        ends[2 * i + 1] = n->escaped.len;
        if (j.failed)
            return false;
    }
    for (size_t i = 0; ends && i < 2 * count; i++) {
        size_t start = (i ? ends[i - 1] : 0) + i % 2, end = ends[i] - i % 2;
        n->v[n->count++] = (struct needle){n->escaped.data + start, end - start, &secrets[i / 2]};
    }
    return ends != NULL;
}

/* A longer secret may begin with a shorter one: the longest match wins. */
static const struct needle *needle_at(const struct needles *n, const char *text, size_t len) {
    const struct needle *found = NULL;
    for (size_t i = 0; i < n->count; i++) {
        const struct needle *v = &n->v[i];
        if (v->len > 0 && v->len <= len && v->bytes[0] == text[0] &&
            memcmp(v->bytes, text, v->len) == 0 && (!found || v->len > found->len))
            found = v;
    }
    return found;
}

/* Writes [secret NAME]. A character that JSON would escape becomes '?'. */
static bool put_secret_name(const char *name, struct buf *out) {
    bool ok = buf_add(out, "[secret ", 8);
    for (; ok && *name; name++) {
        unsigned char c = (unsigned char)*name;
        ok = buf_add(out, c < ' ' || c > '~' || c == '"' || c == '\\' ? "?" : name, 1);
    }
    return ok && buf_add(out, "]", 1);
}

bool journal_scrub(const char *text, size_t len, const struct journal_secret *secrets, size_t count,
                   struct buf *out) {
    struct needles needles DEFER(needles_done) = {0};
    if (!needles_make(&needles, secrets, count))
        return false;
    for (size_t i = 0; i < len;) {
        const struct needle *n = needle_at(&needles, text + i, len - i);
        if (n ? !put_secret_name(n->secret->name, out) : !buf_add(out, text + i, 1))
            return false;
        i += n ? n->len : 1;
    }
    return true;
}
