/*
 * Property: a model's stream gives the same events and the same end however it is cut; an answer
 * comes only of a whole one, within its caps, and calls that are not bad have JSON objects.
 * First byte: the format; second: the cuts.
 */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/defer.h"
#include "model/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void see(void *arg, const struct model_seen *seen) {
    uint64_t *hash = arg;
    for (size_t i = 0; i < seen->n; i++)
        *hash = (*hash ^ (uint8_t)seen->text[i]) * 0x100000001b3ull;
    *hash += seen->kind + 1;
}

struct outcome {
    uint64_t hash;
    int result;
    enum model_failure failure;
    size_t count, calls;
};

static void check(const struct model_answer *a) {
    struct arena scratch DEFER(arena_done) = {0};
    size_t bytes = 0;
    assert(a->stop >= MODEL_STOP_DONE && a->stop <= MODEL_STOP_PAUSED);
    assert(a->count <= MODEL_PARTS_MAX && a->calls <= MODEL_CALLS_MAX);
    for (size_t i = 0; i < a->count; i++) {
        const struct model_part *p = &a->parts[i];
        bytes += p->n;
        assert(p->text[p->n] == '\0');
        if (p->kind == MODEL_CALL) {
            assert(p->id && p->id[0] && p->name && strlen(p->name) <= MODEL_NAME_MAX);
            assert(p->bad || !model_arguments_fault(&scratch, p->text, p->n));
        }
    }
    assert(bytes <= MODEL_ANSWER_MAX);
}

static struct outcome run(const struct model_codec *c, const char *bytes, size_t n, size_t step) {
    struct outcome o = {0};
    struct model_answer a DEFER(model_answer_done) = {0};
    struct model_stream *s DEFER(model_stream_freep) = model_stream_new(c, see, &o.hash);
    for (size_t i = 0; o.result == 0 && i < n; i += step)
        o.result = model_stream_feed(s, bytes + i, n - i < step ? n - i : step, NULL);
    if (o.result == 0)
        o.result = model_stream_end(s, &a, NULL);
    if (o.result < 0) {
        o.failure = model_stream_failure(s);
        assert(o.failure != MODEL_FAIL_NONE && a.count == 0);
        return o;
    }
    check(&a);
    o.count = a.count;
    o.calls = a.calls;
    return o;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct model_codec *const codecs[] = {&model_anthropic, &model_chat,
                                                       &model_responses, &model_gemini};
    if (size < 2)
        return 0;
    const struct model_codec *c = codecs[data[0] % 4];
    const char *bytes = (const char *)data + 2;
    struct outcome whole = run(c, bytes, size - 2, size),
                   cut = run(c, bytes, size - 2, data[1] % 37 + 1);
    assert(whole.hash == cut.hash && whole.result == cut.result && whole.failure == cut.failure);
    assert(whole.count == cut.count && whole.calls == cut.calls);
    return 0;
}
