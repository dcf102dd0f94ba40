/* Property: a script that is accepted plays every turn it has; a turn that is found fits. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "base/defer.h"
#include "model/rehearsal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct rehearsal *r DEFER(rehearsal_freep) = NULL;
    struct err err = {0};
    if (rehearsal_parse((const char *)data, size, &r, &err) < 0) {
        assert(!r && err.text[0] && (err.code == ERR_INVALID || err.code == ERR_LIMIT));
        return 0;
    }
    for (uint64_t turns = 0; turns < 4; turns++) {
        struct rehearsal_ask ask = {
            .turns = turns, .last = (const char *)data, .n = size, .failed = turns & 1};
        const struct rehearsal_turn *t = rehearsal_find(r, &ask, NULL);
        if (!t)
            continue;
        struct model_answer a DEFER(model_answer_done) = {0};
        assert(t->number < 0 || (uint64_t)t->number == turns);
        assert(t->failed < 0 || t->failed == (int)(turns & 1));
        (void)rehearsal_fault(r, t);
        rehearsal_answer(t, &ask, "m", &a);
        assert(a.count == t->count && a.calls <= MODEL_CALLS_MAX);
        for (size_t i = 0; i < a.count; i++)
            assert(a.parts[i].kind == MODEL_TEXT || (a.parts[i].id && a.parts[i].name[0]));
    }
    return 0;
}
