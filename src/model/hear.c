/* Builds a parsed request; common to all formats. */
#include <string.h>

#include "model/inner.h"

static void close_message(struct hearing *h) {
    if (h->count == 0)
        return;
    struct model_message *last = &h->messages[h->count - 1];
    last->parts = h->parts;
    last->count = h->part_count;
}

static bool open_message(struct hearing *h, enum model_role role) {
    if (h->count && h->messages[h->count - 1].role == role)
        return true;
    if (h->count == MODEL_MESSAGES_MAX)
        return false;
    close_message(h);
    h->messages = arena_grow(&h->heard->arena, h->messages, h->count, sizeof(*h->messages));
    h->messages[h->count++] = (struct model_message){.role = role};
    h->parts = NULL;
    h->part_count = 0;
    return true;
}

struct model_part *hear(struct hearing *h, enum model_role role, enum model_part_kind kind,
                        struct err *err) {
    if (!open_message(h, role) || h->part_count == MODEL_PARTS_MAX) {
        err_set(err, ERR_LIMIT, "the request has more messages or parts than are allowed");
        return NULL;
    }
    h->parts = arena_grow(&h->heard->arena, h->parts, h->part_count, sizeof(*h->parts));
    struct model_part *p = &h->parts[h->part_count++];
    *p = (struct model_part){.kind = kind, .text = ""};
    return p;
}

int hear_text(struct hearing *h, enum model_role role, const json_t *string, struct err *err) {
    size_t n = json_string_length(string);
    if (!json_is_string(string))
        return err_set(err, ERR_INVALID, "the text of a message part is not a string");
    if (n == 0)
        return 0;
    struct model_part *p = hear(h, role, MODEL_TEXT, err);
    if (!p)
        return -1;
    p->text = arena_copy(&h->heard->arena, json_string_value(string), n);
    p->n = n;
    return 0;
}

int hear_opaque(struct hearing *h, enum model_role role, const struct model_codec *codec,
                const json_t *value, struct err *err) {
    struct model_part *p = hear(h, role, MODEL_OPAQUE, err);
    if (!p)
        return -1;
    p->text = json_text(&h->heard->arena, value, &p->n);
    p->codec = codec;
    return 0;
}

int hear_image(struct hearing *h, struct model_part *p, const char *media, const char *data) {
    struct arena *a = &h->heard->arena;
    p->n = strlen(data);
    p->text = arena_copy(a, data, p->n);
    p->media = arena_copy(a, media, strlen(media));
    return 0;
}

int hear_result_image(struct hearing *h, struct model_part *result, const char *media,
                      const char *data) {
    struct model_part *images = arena_grow(&h->heard->arena, (void *)result->images,
                                           result->image_count, sizeof(*result->images));
    images[result->image_count] = (struct model_part){.kind = MODEL_IMAGE};
    result->images = images;
    return hear_image(h, &images[result->image_count++], media, data);
}

int hear_call(struct hearing *h, const char *id, const char *name, const char *arguments, size_t n,
              struct err *err) {
    struct arena *a = &h->heard->arena;
    if (!id || !name || !name[0] || strlen(name) > MODEL_NAME_MAX)
        return err_set(err, ERR_INVALID, "a tool call has no id or no valid name");
    struct model_part *p = hear(h, MODEL_ASSISTANT, MODEL_CALL, err);
    if (!p)
        return -1;
    p->id = arena_copy(a, id, strlen(id));
    p->name = arena_copy(a, name, strlen(name));
    p->text = arena_copy(a, n ? arguments : "{}", n ? n : 2);
    p->n = n ? n : 2;
    p->bad = model_arguments_fault(a, p->text, p->n);
    return 0;
}

void hear_outcome(struct hearing *h, struct model_part *result, const char *text, size_t n) {
    const size_t lead = strlen(OUTCOME_FAILED);
    result->failed = n >= lead && memcmp(text, OUTCOME_FAILED, lead) == 0;
    if (result->failed) {
        text += lead;
        n -= lead;
    }
    result->text = arena_copy(&h->heard->arena, text, n);
    result->n = n;
}

void hear_system(struct hearing *h, const char *text) {
    struct arena *a = &h->heard->arena;
    h->system = h->system ? arena_printf(a, "%s\n\n%s", h->system, text)
                          : arena_copy(a, text, strlen(text));
}

int hear_tool(struct hearing *h, const json_t *tool, const char *schema_name, struct err *err) {
    struct arena *a = &h->heard->arena;
    const char *name = json_member(tool, "name"), *about = json_member_or(tool, "description", "");
    const json_t *schema = json_object_get(tool, schema_name);
    if (!name || !name[0] || strlen(name) > MODEL_NAME_MAX)
        return err_set(err, ERR_INVALID, "the name of a tool must be 1 to %d bytes long",
                       MODEL_NAME_MAX);
    if (h->tool_count == MODEL_TOOLS_MAX)
        return err_set(err, ERR_LIMIT, "the request has more than %d tools", MODEL_TOOLS_MAX);
    h->tools = arena_grow(a, h->tools, h->tool_count, sizeof(*h->tools));
    h->tools[h->tool_count++] = (struct model_tool){
        .name = arena_copy(a, name, strlen(name)),
        .description = arena_copy(a, about, strlen(about)),
        .schema = json_is_object(schema) ? json_text(a, schema, NULL) : "{\"type\":\"object\"}",
    };
    return 0;
}

int hear_end(struct hearing *h, struct err *err) {
    struct model_request *r = &h->heard->request;
    if (h->count == 0)
        return err_set(err, ERR_INVALID, "the request has no messages");
    close_message(h);
    r->system = h->system;
    r->messages = h->messages;
    r->message_count = h->count;
    r->tools = h->tools;
    r->tool_count = h->tool_count;
    return 0;
}

bool data_url(struct arena *a, const char *url, const char **ret_media, const char **ret_data) {
    const char *media = url ? url + strlen("data:") : NULL;
    const char *comma = url ? strstr(url, ";base64,") : NULL;
    if (!url || strncmp(url, "data:", 5) != 0 || !comma || comma == media || comma - media > 100)
        return false;
    *ret_media = arena_copy(a, media, (size_t)(comma - media));
    *ret_data = comma + strlen(";base64,");
    return true;
}
