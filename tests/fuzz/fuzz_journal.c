/* Property: what decodes encodes to the very same line; after scrubbing no secret is left. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/defer.h"
#include "store/journal_record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct journal_slot slot;

static void check_record(const char *line, size_t len) {
    uint8_t hash[SHA256_BYTES] = {0};
    struct err err;
    struct buf again DEFER(buf_done) = BUF(JOURNAL_LINE_MAX);
    if (journal_record_decode(line, len, NULL, &slot, &err) < 0)
        return;
    assert(slot.record.argc <= JOURNAL_ARGV_COUNT);
    int status = journal_record_encode(&slot.record, hash, &again, &err);
    assert(status == 0);
    (void)status;
    /* Without a chain the hash is any: all before it must be equal, and so must be the length. */
    size_t tail = 2 * SHA256_BYTES + 3;
    assert(again.len == len + (line[len - 1] != '\n'));
    assert(memcmp(again.data, line, again.len - tail) == 0);
}

/* The first byte says how long the secret is; then comes the secret, then the text. */
static void check_scrub(const char *bytes, size_t len) {
    size_t n = len ? (unsigned char)bytes[0] % 8 : 0;
    if (n == 0 || len < 1 + n)
        return;
    struct journal_secret secret = {"N", bytes + 1, n};
    struct buf out DEFER(buf_done) = BUF(1 << 20);
    const char *text = bytes + 1 + n;
    if (!journal_scrub(text, len - 1 - n, &secret, 1, &out) || !out.data)
        return;
    /* A secret that is part of what stands for it comes back with the name. */
    if (!memmem("[secret N]", 10, secret.value, n) &&
        !strpbrk("[secret N]", (char[]){secret.value[0], 0}) &&
        !strpbrk("[secret N]", (char[]){secret.value[n - 1], 0}))
        assert(!memmem(out.data, out.len, secret.value, n));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    check_record((const char *)data, size);
    check_scrub((const char *)data, size);
    return 0;
}
