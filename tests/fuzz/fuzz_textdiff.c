/*
 * Properties: the difference of two texts, applied to the one, gives the other; equal texts have
 * none; anything else applied does no harm.
 */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "base/text/textdiff.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The first byte says how many lines of context, the second where the one text ends. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct buf hunks = BUF(1 << 24), again = BUF(1 << 24);
    struct textdiff_count n;
    if (size < 2)
        return 0;
    unsigned context = data[0] % 5;
    const char *text = (const char *)data + 2;
    size_t len = size - 2, a_len = len * data[1] / 255;
    const char *b = text + a_len;
    size_t b_len = len - a_len;
    assert(textdiff(&hunks, text, a_len, b, b_len, context, &n));
    bool same = a_len == b_len && (a_len == 0 || memcmp(text, b, a_len) == 0);
    assert(same == (hunks.len == 0) && same == (n.added + n.removed == 0));
    assert(textdiff_apply(&again, text, a_len, hunks.len ? hunks.data : "", hunks.len));
    assert(again.len == b_len && (b_len == 0 || memcmp(again.data, b, b_len) == 0));
    buf_done(&again);
    again = BUF(1 << 16);
    textdiff_apply(&again, text, a_len, b, b_len);
    buf_done(&again);
    buf_done(&hunks);
    return 0;
}
