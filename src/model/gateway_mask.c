/*
 * Masks the owner's key or login in the answers of a provider, which may repeat it in an error or
 * in a text. Streams are masked across the pieces in which they arrive.
 */
#include <stdio.h>
#include <string.h>

#include "base/defer.h"
#include "base/secret.h"
#include "base/text/secret_forms.h"
#include "model/gateway_inner.h"

/* An attempt with another key starts anew. False: the key has more forms than fit. */
bool gateway_mask_start(struct forward *f) {
    struct buf key = BUF(SECRET_MAX);
    size_t n = strlen(f->login_account);
    gateway_mask_done(f);
    f->mask_carry = BUF(GATEWAY_ANSWER_MAX + NEEDLE_MAX);
    bool ok = !f->provider.key || (secret_reveal(f->provider.key, &key) &&
                                   secret_forms_add(key.data ? key.data : "", key.len, &f->mask));
    secret_wipe(&key);
    return ok && (!n || needles_add(&f->mask, f->login_account, n));
}

bool gateway_mask(struct forward *f, const char *bytes, size_t n, bool end, struct buf *out) {
    return needles_feed(&f->mask, &f->mask_carry, bytes, n, end, out) >= 0;
}

bool gateway_mask_whole(struct forward *f) {
    struct buf out DEFER(buf_done) = BUF(GATEWAY_ANSWER_MAX);
    if (!gateway_mask(f, f->whole.data ? f->whole.data : "", f->whole.len, true, &out))
        return false;
    buf_done(&f->whole);
    f->whole = out;
    out = BUF(0);
    return true;
}

bool gateway_mask_field(struct forward *f, char *value, size_t size) {
    struct buf carry DEFER(buf_done) = BUF(size), out DEFER(buf_done) = BUF(size);
    if (!value[0])
        return true;
    if (needles_feed(&f->mask, &carry, value, strlen(value), true, &out) < 0)
        return false;
    snprintf(value, size, "%s", out.data);
    return true;
}

void gateway_mask_done(struct forward *f) {
    needles_done(&f->mask);
    secret_wipe(&f->mask_carry);
}
