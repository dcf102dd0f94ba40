/* Builds an answer; common to all formats. */
#include <string.h>

#include "model/inner.h"

static struct model_part *add_part(struct maker *m, enum model_part_kind kind, const char *text,
                                   size_t n) {
    struct arena *a = &m->answer->arena;
    m->bytes += n;
    if (m->count == MODEL_PARTS_MAX || m->bytes > MODEL_ANSWER_MAX)
        m->failed = true;
    if (m->failed)
        return NULL;
    m->parts = arena_grow(a, m->parts, m->count, sizeof(*m->parts));
    struct model_part *p = &m->parts[m->count++];
    *p = (struct model_part){.kind = kind, .text = arena_copy(a, text, n), .n = n};
    return p;
}

void make_text(struct maker *m, const char *text, size_t n) {
    if (n > 0)
        (void)add_part(m, MODEL_TEXT, text, n);
}

void make_json_text(struct maker *m, const json_t *string) {
    if (json_is_string(string))
        make_text(m, json_string_value(string), json_string_length(string));
}

static bool id_taken(const struct maker *m, const char *id) {
    for (size_t i = 0; i + 1 < m->count; i++)
        if (m->parts[i].kind == MODEL_CALL && strcmp(m->parts[i].id, id) == 0)
            return true;
    return false;
}

static const char *unique_id(struct maker *m, const char *id) {
    struct arena *a = &m->answer->arena;
    if (!id || !id[0])
        id = arena_printf(a, "call_%zu", m->calls);
    const char *wanted = id;
    for (size_t n = 2; id_taken(m, id); n++)
        id = arena_printf(a, "%s_%zu", wanted, n);
    return id == wanted ? arena_copy(a, id, strlen(id)) : id;
}

static const char *name_fault(const char *name) {
    if (!name || !name[0])
        return "the call has no tool name";
    return strlen(name) > MODEL_NAME_MAX ? "the name of the tool is too long" : NULL;
}

void make_call(struct maker *m, const char *id, const char *name, const char *arguments, size_t n,
               const char *bad) {
    struct arena *a = &m->answer->arena;
    if (m->calls == MODEL_CALLS_MAX || (id && strlen(id) > 256))
        m->failed = true;
    struct model_part *p = add_part(m, MODEL_CALL, n ? arguments : "{}", n ? n : 2);
    if (!p)
        return;
    m->calls++;
    p->id = unique_id(m, id);
    p->name = arena_copy(a, name ? name : "", name ? strnlen(name, MODEL_NAME_MAX) : 0);
    p->bad = bad ? bad : name_fault(name);
    if (!p->bad)
        p->bad = model_arguments_fault(a, p->text, p->n);
}

void make_opaque(struct maker *m, const struct model_codec *codec, const json_t *value) {
    char *text = json_dumps(value, JSON_COMPACT);
    struct model_part *p = text ? add_part(m, MODEL_OPAQUE, text, strlen(text)) : NULL;
    free(text);
    if (p)
        p->codec = codec;
}

/* Marks the last call of an answer that was cut off as bad. The call can look complete, because
 * missing arguments are read as {}. */
static void doubt_last_call(struct maker *m) {
    struct model_part *last = m->count ? &m->parts[m->count - 1] : NULL;
    if (last && last->kind == MODEL_CALL && !last->bad)
        last->bad = "the answer was cut off at the limit of tokens before this call was complete";
}

int make_end(struct maker *m, enum model_stop stop, struct err *err) {
    struct model_answer *a = m->answer;
    if (m->failed)
        return model_failure_err(MODEL_FAIL_LARGE, NULL, err);
    if (stop == MODEL_STOP_LENGTH)
        doubt_last_call(m);
    if (m->refused)
        stop = MODEL_STOP_REFUSED;
    if (stop == MODEL_STOP_DONE || stop == MODEL_STOP_CALLS)
        stop = m->calls ? MODEL_STOP_CALLS : MODEL_STOP_DONE;
    a->parts = m->parts;
    a->count = m->count;
    a->calls = m->calls;
    a->stop = stop;
    return 0;
}
