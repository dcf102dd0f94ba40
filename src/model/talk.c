#include "model/talk.h"

#include <jansson.h>

#include "base/defer.h"
#include "model/json.h"

void model_heard_done(struct model_heard *h) {
    arena_done(&h->arena);
}

void model_answer_done(struct model_answer *a) {
    arena_done(&a->arena);
}

const char *model_stop_name(enum model_stop stop) {
    static const char *const names[] = {
        [MODEL_STOP_DONE] = "done",         [MODEL_STOP_CALLS] = "calls",
        [MODEL_STOP_LENGTH] = "length",     [MODEL_STOP_REFUSED] = "refused",
        [MODEL_STOP_CONTEXT_FULL] = "full", [MODEL_STOP_PAUSED] = "paused",
    };
    return stop >= MODEL_STOP_DONE && stop <= MODEL_STOP_PAUSED ? names[stop] : "unknown";
}

uint64_t model_usage_total(const struct model_usage *u) {
    return u->in + u->cache_read + u->cache_write + u->cache_write_long + u->out;
}

const char *model_arguments_fault(struct arena *a, const char *text, size_t n) {
    json_error_t why;
    json_t *root DEFER(json_decrefp) = json_loadb(text, n, JSON_ALLOW_NUL, &why);
    if (!root)
        return arena_printf(a, "the arguments are not JSON: %s at byte %d", why.text, why.position);
    if (!json_is_object(root))
        return "the arguments are not a JSON object";
    return NULL;
}
