/*
 * Property: an answer that is accepted whole says the same when it is sent on as a stream and read
 * again. First byte: the format.
 */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "base/defer.h"
#include "model/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool has_bad(const struct model_answer *a) {
    for (size_t i = 0; i < a->count; i++)
        if (a->parts[i].bad)
            return true;
    return false;
}

static void compare(const struct model_answer *a, const struct model_answer *b) {
    assert(a->calls == b->calls && a->has_usage == b->has_usage);
    assert(memcmp(&a->usage, &b->usage, sizeof(a->usage)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct model_codec *const codecs[] = {&model_anthropic, &model_chat,
                                                       &model_responses};
    struct err err = {0};
    enum model_failure failure;
    struct model_answer first DEFER(model_answer_done) = {0}, second DEFER(model_answer_done) = {0};
    struct buf stream DEFER(buf_done) = BUF(64 << 20);
    if (size == 0)
        return 0;
    const struct model_codec *c = codecs[data[0] % 3];
    if (model_get_answer(c, (const char *)data + 1, size - 1, &first, &failure, &err) < 0) {
        assert(failure != MODEL_FAIL_NONE && err.text[0] && first.count == 0);
        return 0;
    }
    if (has_bad(&first))
        return 0;
    assert(model_put_stream(c, &first, &stream, &err) == 0);
    struct model_stream *s DEFER(model_stream_freep) = model_stream_new(c, NULL, NULL);
    assert(model_stream_feed(s, stream.data, stream.len, &err) == 0);
    assert(model_stream_end(s, &second, &err) == 0);
    compare(&first, &second);
    return 0;
}
