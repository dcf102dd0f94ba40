#include "base/secret.h"

#include "base/alloc.h"
#include "base/err.h"

struct secret {
    size_t n;
    char value[];
};

static bool can_be_sent(const char *value, size_t n) {
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)value[i] < ' ' || value[i] == 127)
            return false;
    return n > 0 && n <= SECRET_MAX;
}

struct secret *secret_new(const char *value, size_t n) {
    if (!can_be_sent(value, n))
        return NULL;
    struct secret *s = xmalloc(sizeof(*s) + n);
    s->n = n;
    memcpy(s->value, value, n);
    return s;
}

struct secret *secret_env(const char *name) {
    const char *value = getenv(name);
    return value ? secret_new(value, strlen(value)) : NULL;
}

struct secret *secret_copy(const struct secret *s) {
    return s ? secret_new(s->value, s->n) : NULL;
}

void secret_free(struct secret *s) {
    if (!s)
        return;
    explicit_bzero(s->value, s->n);
    free(s);
}

void secret_freep(struct secret **s) {
    secret_free(*s);
}

bool secret_reveal(const struct secret *s, struct buf *to) {
    return buf_add(to, s->value, s->n);
}

void secret_wipe(struct buf *b) {
    if (b->data)
        explicit_bzero(b->data, b->cap);
    buf_done(b);
}

bool secret_is_in(const struct secret *s, const void *bytes, size_t n) {
    return memmem(bytes, n, s->value, s->n) != NULL;
}
