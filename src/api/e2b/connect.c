#include "api/e2b/connect.h"

static const struct {
    const char *name;
    int status;
} codes[CONNECT_CODES] = {
    [CONNECT_CANCELED] = {"canceled", 499},
    [CONNECT_INVALID_ARGUMENT] = {"invalid_argument", 400},
    [CONNECT_DEADLINE_EXCEEDED] = {"deadline_exceeded", 504},
    [CONNECT_NOT_FOUND] = {"not_found", 404},
    [CONNECT_ALREADY_EXISTS] = {"already_exists", 409},
    [CONNECT_PERMISSION_DENIED] = {"permission_denied", 403},
    [CONNECT_RESOURCE_EXHAUSTED] = {"resource_exhausted", 429},
    [CONNECT_FAILED_PRECONDITION] = {"failed_precondition", 400},
    [CONNECT_UNIMPLEMENTED] = {"unimplemented", 501},
    [CONNECT_INTERNAL] = {"internal", 500},
    [CONNECT_UNAVAILABLE] = {"unavailable", 503},
    [CONNECT_UNAUTHENTICATED] = {"unauthenticated", 401},
    [CONNECT_UNKNOWN] = {"unknown", 500},
};

static const struct {
    enum err_code ours;
    enum connect_code code;
} meanings[] = {
    {ERR_INVALID, CONNECT_INVALID_ARGUMENT},  {ERR_NOT_FOUND, CONNECT_NOT_FOUND},
    {ERR_EXISTS, CONNECT_ALREADY_EXISTS},     {ERR_DENIED, CONNECT_PERMISSION_DENIED},
    {ERR_LIMIT, CONNECT_RESOURCE_EXHAUSTED},  {ERR_BUSY, CONNECT_FAILED_PRECONDITION},
    {ERR_UNSUPPORTED, CONNECT_UNIMPLEMENTED}, {ERR_GONE, CONNECT_NOT_FOUND},
    {ERR_TIMEOUT, CONNECT_DEADLINE_EXCEEDED}, {ERR_INTERNAL, CONNECT_INTERNAL},
    {ERR_UNKNOWN, CONNECT_UNKNOWN},
};

const char *connect_code_name(enum connect_code code) {
    return codes[code].name;
}

int connect_code_status(enum connect_code code) {
    return codes[code].status;
}

enum connect_code connect_code_of(enum err_code code) {
    for (size_t i = 0; i < sizeof(meanings) / sizeof(*meanings); i++)
        if (meanings[i].ours == code)
            return meanings[i].code;
    return CONNECT_INTERNAL;
}

bool connect_put(struct buf *b, uint8_t flags, const char *message, size_t n) {
    const char head[CONNECT_HEAD] = {(char)flags, (char)(n >> 24), (char)(n >> 16), (char)(n >> 8),
                                     (char)n};
    size_t before = b->len;
    if (n > UINT32_MAX || !buf_add(b, head, sizeof(head)))
        return false;
    if (buf_add(b, message, n))
        return true;
    b->len = before;
    b->data[before] = '\0';
    return false;
}

int connect_next(struct http_text *rest, size_t max, struct http_text *ret, struct err *err) {
    const unsigned char *p = (const unsigned char *)rest->s;
    if (rest->n < CONNECT_HEAD)
        return 0;
    size_t n = (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4];
    if (p[0] & CONNECT_COMPRESSED)
        return err_set(err, ERR_UNSUPPORTED, "compressed messages are not supported");
    if (p[0])
        return err_set(err, ERR_INVALID, "the envelope of a message has unknown flags");
    if (n > max)
        return err_set(err, ERR_LIMIT, "the message of %zu bytes is larger than %zu bytes", n, max);
    if (rest->n - CONNECT_HEAD < n)
        return 0;
    *ret = (struct http_text){rest->s + CONNECT_HEAD, n};
    rest->s += CONNECT_HEAD + n;
    rest->n -= CONNECT_HEAD + n;
    return 1;
}

int connect_only(struct http_text body, size_t max, struct http_text *ret, struct err *err) {
    struct http_text message;
    int got = connect_next(&body, max, &message, err);
    if (got < 0)
        return -1;
    if (!got)
        return err_set(err, ERR_INVALID, "the body ends within the envelope of its message");
    if (body.n)
        return err_set(err, ERR_INVALID, "the body has more than one message");
    *ret = message;
    return 0;
}
