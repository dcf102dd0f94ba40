/*
 * Property: a text of an owner or of a login server is read or refused. Tokens that were read can
 * be kept and read again with the same account and end, and no error shows a part of them. First
 * byte: which text it is.
 */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "base/defer.h"
#include "base/login.h"
#include "model/login.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct login_vendor claude = {.name = LOGIN_CLAUDE}, codex = {.name = LOGIN_CODEX};

static void check_kept(const struct login_vendor *v, const struct login_tokens *t) {
    struct login_tokens again DEFER(login_tokens_done) = {0};
    struct secret *kept DEFER(secret_freep) = login_keep(v, t);
    struct buf text DEFER(secret_wipe) = BUF(SECRET_MAX + 1);
    struct err err = {0};
    assert(t->access && strlen(t->account) < sizeof(t->account) && t->expires_s >= 0);
    if (!kept)
        return; /* both tokens have their greatest length */
    assert(secret_reveal(kept, &text));
    assert(login_read_kept(v, text.data, text.len, &again, &err) == 0);
    assert(strcmp(again.account, t->account) == 0 && again.expires_s == t->expires_s);
    assert(!again.refresh == !t->refresh && again.is_renewing == t->is_renewing);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct login_tokens before DEFER(login_tokens_done) = {0}, t DEFER(login_tokens_done) = {0};
    struct err err = {0};
    if (size < 1 || size > 64 << 10)
        return 0;
    const char *text = (const char *)data + 1;
    size_t n = size - 1;
    const struct login_vendor *v = data[0] & 1 ? &codex : &claude;
    before.refresh = secret_new("the-refresh-token-before", 24);
    (void)login_is_refused(400 + data[0], text, n);
    int status = data[0] % 6 < 2   ? login_read_given(v, text, n, &t, &err)
                 : data[0] % 6 < 4 ? login_read_kept(v, text, n, &t, &err)
                                   : login_read_renewed(&before, text, n, &t, &err);
    assert((status == 0) == (t.access != NULL) && (status == 0 || err.code));
    if (status == 0)
        check_kept(v, &t);
    return 0;
}
