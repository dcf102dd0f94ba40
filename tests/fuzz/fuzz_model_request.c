/*
 * Property: a request that is accepted can be written again, and from then on reading and writing
 * change nothing. First byte: the format.
 */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "base/defer.h"
#include "model/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Reads and writes; false: it was refused. */
static bool again(const struct model_codec *c, const char *bytes, size_t n, struct buf *to) {
    struct err err = {0};
    struct model_heard h DEFER(model_heard_done) = {0};
    if (model_get_request(c, bytes, n, &h, &err) < 0) {
        assert((err.code == ERR_INVALID || err.code == ERR_LIMIT) && err.text[0]);
        return false;
    }
    assert(h.request.message_count > 0 && h.request.model[0]);
    if (h.request.max_tokens == 0)
        h.request.max_tokens = 1;
    return model_put_request(c, &h.request, NULL, to, &err) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct model_codec *const codecs[] = {&model_anthropic, &model_chat,
                                                       &model_responses};
    struct buf first DEFER(buf_done) = BUF(32 << 20), second DEFER(buf_done) = BUF(32 << 20),
                     third DEFER(buf_done) = BUF(32 << 20);
    if (size == 0)
        return 0;
    const struct model_codec *c = codecs[data[0] % 3];
    if (!again(c, (const char *)data + 1, size - 1, &first))
        return 0;
    assert(again(c, first.data, first.len, &second));
    assert(again(c, second.data, second.len, &third));
    assert(second.len == third.len && memcmp(second.data, third.data, second.len) == 0);
    return 0;
}
