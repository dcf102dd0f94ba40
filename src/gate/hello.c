#include "gate/hello.h"

#include <string.h>

enum {
    RECORD_HEAD = 5,
    RECORD_HANDSHAKE = 22,
    RECORD_MAX = 16384,
    HANDSHAKE_HEAD = 4,
    CLIENT_HELLO = 1,
    EXT_SERVER_NAME = 0,
    EXT_ALPN = 16,
};

/* The unread rest of a message; hello_take() removes bytes from its start. */
struct slice {
    const uint8_t *p;
    size_t n;
};

static bool hello_take(struct slice *s, size_t n, struct slice *ret) {
    if (n > s->n)
        return false;
    *ret = (struct slice){s->p, n};
    s->p += n;
    s->n -= n;
    return true;
}

static bool hello_take_number(struct slice *s, size_t bytes, size_t *ret) {
    struct slice part;
    if (!hello_take(s, bytes, &part))
        return false;
    *ret = 0;
    for (size_t i = 0; i < bytes; i++)
        *ret = *ret << 8 | part.p[i];
    return true;
}

/* Reads a TLS vector: a length of `bytes` bytes, then the content. */
static bool take_vector(struct slice *s, size_t bytes, struct slice *ret) {
    size_t n;
    return hello_take_number(s, bytes, &n) && hello_take(s, n, ret);
}

/* Reads the server name. The list must have one entry, of the type host_name. */
static bool read_name(struct slice ext, char ret[NAME_SIZE]) {
    struct slice list, name;
    size_t type;
    return take_vector(&ext, 2, &list) && ext.n == 0 && hello_take_number(&list, 1, &type) &&
           type == 0 && take_vector(&list, 2, &name) && list.n == 0 && name.n > 0 &&
           name.p[name.n - 1] != '.' && name_read((const char *)name.p, name.n, ret);
}

static bool read_protocols(struct slice ext, bool *ret_h2) {
    struct slice list, name;
    if (!take_vector(&ext, 2, &list) || ext.n)
        return false;
    while (list.n) {
        if (!take_vector(&list, 1, &name))
            return false;
        *ret_h2 |= name.n == 2 && memcmp(name.p, "h2", 2) == 0;
    }
    return true;
}

static enum hello_verdict read_extensions(struct slice all, struct hello *ret) {
    bool named = false;
    while (all.n) {
        size_t type;
        struct slice ext;
        if (!hello_take_number(&all, 2, &type) || !take_vector(&all, 2, &ext))
            return HELLO_BAD;
        if (type == EXT_SERVER_NAME) {
            if (named || !read_name(ext, ret->name))
                return HELLO_BAD;
            named = true;
        } else if (type == EXT_ALPN && !read_protocols(ext, &ret->offers_h2)) {
            return HELLO_BAD;
        }
    }
    return named ? HELLO_NAMED : HELLO_UNNAMED;
}

static enum hello_verdict read_message(struct slice m, struct hello *ret) {
    enum { VERSION_AND_RANDOM = 34 };
    struct slice skipped, extensions;
    if (!hello_take(&m, VERSION_AND_RANDOM, &skipped) || !take_vector(&m, 1, &skipped) ||
        !take_vector(&m, 2, &skipped) || !take_vector(&m, 1, &skipped))
        return HELLO_BAD;
    if (m.n == 0)
        return HELLO_UNNAMED;
    if (!take_vector(&m, 2, &extensions) || m.n)
        return HELLO_BAD;
    return read_extensions(extensions, ret);
}

/* The handshake bytes of consecutive TLS records, joined. `wanted` is the size of the message. */
struct joined {
    uint8_t bytes[HELLO_MAX];
    size_t len, wanted;
};

/* Sets j->wanted once the header of the handshake message has arrived. */
static enum hello_verdict hello_look(struct joined *j) {
    if (j->len >= 1 && j->bytes[0] != CLIENT_HELLO)
        return HELLO_BAD;
    if (j->len >= HANDSHAKE_HEAD) {
        size_t body = (size_t)j->bytes[1] << 16 | (size_t)j->bytes[2] << 8 | j->bytes[3];
        j->wanted = HANDSHAKE_HEAD + body;
    }
    return j->wanted > sizeof(j->bytes) ? HELLO_BAD : HELLO_MORE;
}

static enum hello_verdict check_head(const uint8_t *p, size_t n, bool first) {
    bool wrong = (n > 0 && p[0] != RECORD_HANDSHAKE) || (n > 1 && p[1] != 3);
    return !wrong ? HELLO_MORE : first ? HELLO_NOT_TLS : HELLO_BAD;
}

/* Joins the TLS records. HELLO_MORE with j->len >= j->wanted: the handshake message is complete. */
static enum hello_verdict join(const uint8_t *bytes, size_t n, struct joined *j) {
    size_t at = 0;
    while (j->len < j->wanted) {
        enum hello_verdict v = check_head(bytes + at, n - at, at == 0);
        if (v != HELLO_MORE || n - at < RECORD_HEAD)
            return v;
        size_t record = (size_t)bytes[at + 3] << 8 | bytes[at + 4];
        if (record == 0 || record > RECORD_MAX)
            return HELLO_BAD;
        at += RECORD_HEAD;
        size_t have = n - at < record ? n - at : record;
        size_t room = sizeof(j->bytes) - j->len, part = have < room ? have : room;
        memcpy(j->bytes + j->len, bytes + at, part);
        j->len += part;
        if ((v = hello_look(j)) != HELLO_MORE || (j->len < j->wanted && have < record))
            return v;
        at += record;
    }
    return HELLO_MORE;
}

enum hello_verdict hello_read(const uint8_t *bytes, size_t n, struct hello *ret) {
    struct joined j;
    j.len = 0;
    j.wanted = HANDSHAKE_HEAD;
    *ret = (struct hello){.offers_h2 = false};
    enum hello_verdict v = join(bytes, n, &j);
    if (v != HELLO_MORE)
        return v;
    if (j.len < j.wanted)
        return n >= HELLO_MAX ? HELLO_BAD : HELLO_MORE;
    struct slice message = {j.bytes + HANDSHAKE_HEAD, j.wanted - HANDSHAKE_HEAD};
    v = read_message(message, ret);
    if (v != HELLO_NAMED)
        ret->name[0] = '\0';
    return v;
}
