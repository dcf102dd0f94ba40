#include "model/openai.h"

#include <string.h>

#include "base/defer.h"

void openai_get_usage(struct model_answer *a, const json_t *usage,
                      const struct openai_usage_names *names) {
    if (!json_is_object(usage))
        return;
    const json_t *in = json_object_get(usage, names->in_details);
    const json_t *out = json_object_get(usage, names->out_details);
    uint64_t all = json_count(usage, names->in);
    uint64_t read = json_count(in, "cached_tokens"), written = json_count(in, "cache_write_tokens");
    if (read > all)
        read = all;
    if (written > all - read)
        written = all - read;
    a->has_usage = true;
    a->usage = (struct model_usage){
        .in = all - read - written,
        .cache_read = read,
        .cache_write = written,
        .out = json_count(usage, names->out),
        .reasoning = json_count(out, "reasoning_tokens"),
    };
}

void openai_put_usage(struct jot *j, const struct model_usage *u,
                      const struct openai_usage_names *names) {
    uint64_t written = u->cache_write + u->cache_write_long;
    uint64_t in = u->in + u->cache_read + written;
    jot_object(j, "usage");
    jot_u64(j, names->in, in);
    jot_object(j, names->in_details);
    jot_u64(j, "cached_tokens", u->cache_read);
    jot_u64(j, "cache_write_tokens", written);
    jot_end(j, '}');
    jot_u64(j, names->out, u->out);
    jot_object(j, names->out_details);
    jot_u64(j, "reasoning_tokens", u->reasoning);
    jot_end(j, '}');
    jot_u64(j, "total_tokens", in + u->out);
    jot_end(j, '}');
}

void openai_put_failure(enum model_failure failure, const char *message, bool in_band,
                        struct jot *j) {
    const struct model_failure_row *row = model_failure_row(failure);
    (void)in_band;
    jot_object(j, NULL);
    jot_object(j, "error");
    jot_string(j, "message", message);
    jot_string(j, "type", row->openai_type);
    jot_null(j, "param");
    if (row->openai_code)
        jot_string(j, "code", row->openai_code);
    else
        jot_null(j, "code");
    jot_end(j, '}');
    jot_end(j, '}');
}

void openai_put_choice(struct jot *j, const struct model_request *r, bool nested) {
    static const char *const names[] = {[MODEL_CHOICE_AUTO] = "auto",
                                        [MODEL_CHOICE_ANY] = "required",
                                        [MODEL_CHOICE_NONE] = "none"};
    if (r->tool_count == 0 || r->choice == MODEL_CHOICE_AUTO)
        return;
    if (r->choice != MODEL_CHOICE_NAMED) {
        jot_string(j, "tool_choice", names[r->choice]);
        return;
    }
    jot_object(j, "tool_choice");
    jot_string(j, "type", "function");
    if (nested)
        jot_object(j, "function");
    jot_string(j, "name", r->choice_name);
    if (nested)
        jot_end(j, '}');
    jot_end(j, '}');
}

void openai_get_choice(struct hearing *h, const json_t *choice) {
    struct model_request *r = &h->heard->request;
    const char *word = json_string_value(choice);
    const json_t *nested = json_object_get(choice, "function");
    const char *name = json_member(nested ? nested : choice, "name");
    if (word && strcmp(word, "required") == 0)
        r->choice = MODEL_CHOICE_ANY;
    if (word && strcmp(word, "none") == 0)
        r->choice = MODEL_CHOICE_NONE;
    if (!word && name) {
        r->choice = MODEL_CHOICE_NAMED;
        r->choice_name = arena_copy(&h->heard->arena, name, strlen(name));
    }
}

void openai_put_image_url(struct jot *j, const char *name, const struct model_part *p) {
    struct buf url DEFER(buf_done) = BUF(MODEL_REQUEST_MAX);
    if (buf_addf(&url, "data:%s;base64,", p->media) && buf_add(&url, p->text, p->n))
        jot_bytes(j, name, url.data, url.len);
    else
        j->failed = true;
}

void openai_name_answer(struct model_answer *a, const json_t *root) {
    const char *id = json_member_or(root, "id", ""), *model = json_member_or(root, "model", "");
    a->id = arena_copy(&a->arena, id, strnlen(id, 200));
    a->model = arena_copy(&a->arena, model, strnlen(model, 200));
}
