#include "model/reach.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- the allow-list ---- */

enum kind {
    DATA,   /* any value: the provider does not fetch anything for it */
    SCHEMA, /* a JSON schema, which must not refer to another document */
    INLINE, /* bytes in base64 or a data: URL, but no other URL */
    MODEL,  /* the name of a model; some models search the web */
    FORMS,  /* an object of one of these forms, or a list of them */
    TEXT_OR_FORMS,
};

struct shape;
struct member {
    const char *name;
    const struct shape *shape;
};
struct form {
    const char *type; /* the value of the member "type"; NULL: the object has no type */
    const struct member *members;
};
struct shape {
    enum kind kind;
    const struct form *forms; /* the list ends with a form without members */
};

#define MEMBERS(...) ((const struct member[]){__VA_ARGS__, {NULL, NULL}})
#define SHAPE(kind, ...)              \
    {                                 \
        kind, (const struct form[]) { \
            __VA_ARGS__, {            \
                NULL, NULL            \
            }                         \
        }                             \
    }

static const struct shape data = {DATA, NULL}, schema = {SCHEMA, NULL}, bytes = {INLINE, NULL},
                          model = {MODEL, NULL};

/* ---- Anthropic Messages ---- */

#define CACHED \
    { "cache_control", &data }

static const struct shape anthropic_text =
    SHAPE(TEXT_OR_FORMS, {"text", MEMBERS({"text", &data}, {"citations", &data}, CACHED)});

static const struct shape anthropic_image_source =
    SHAPE(FORMS, {"base64", MEMBERS({"media_type", &data}, {"data", &bytes})});

#define ANTHROPIC_IMAGE \
    { "image", MEMBERS({"source", &anthropic_image_source}, CACHED) }

static const struct shape anthropic_parts =
    SHAPE(TEXT_OR_FORMS, {"text", MEMBERS({"text", &data}, {"citations", &data}, CACHED)},
          ANTHROPIC_IMAGE);

static const struct shape anthropic_document_source =
    SHAPE(FORMS, {"base64", MEMBERS({"media_type", &data}, {"data", &bytes})},
          {"text", MEMBERS({"media_type", &data}, {"data", &data})},
          {"content", MEMBERS({"content", &anthropic_parts})});

#define ANTHROPIC_SAID                                                                       \
    {"text", MEMBERS({"text", &data}, {"citations", &data}, CACHED)}, ANTHROPIC_IMAGE,       \
        {"document", MEMBERS({"source", &anthropic_document_source}, {"title", &data},       \
                             {"context", &data}, {"citations", &data}, CACHED)},             \
    {                                                                                        \
        "search_result", MEMBERS({"source", &data}, {"title", &data},                        \
                                 {"content", &anthropic_text}, {"citations", &data}, CACHED) \
    }

static const struct shape anthropic_result = SHAPE(TEXT_OR_FORMS, ANTHROPIC_SAID);

static const struct shape anthropic_content =
    SHAPE(TEXT_OR_FORMS, ANTHROPIC_SAID,
          {"tool_use", MEMBERS({"id", &data}, {"name", &data}, {"input", &data}, CACHED)},
          {"tool_result", MEMBERS({"tool_use_id", &data}, {"content", &anthropic_result},
                                  {"is_error", &data}, CACHED)},
          {"thinking", MEMBERS({"thinking", &data}, {"signature", &data}, CACHED)},
          {"redacted_thinking", MEMBERS({"data", &data}, CACHED)});

static const struct shape anthropic_messages =
    SHAPE(FORMS, {NULL, MEMBERS({"role", &data}, {"content", &anthropic_content})});

/* Tools that Anthropic defines but the client runs, in the same way as functions. */
#define ANTHROPIC_OWN(type)                                                                       \
    {                                                                                             \
        type, MEMBERS({"name", &data}, {"display_width_px", &data}, {"display_height_px", &data}, \
                      {"display_number", &data}, {"max_characters", &data}, CACHED)               \
    }
#define ANTHROPIC_FUNCTION                                                                         \
    MEMBERS({"name", &data}, {"description", &data}, {"input_schema", &schema}, {"strict", &data}, \
            {"input_examples", &data}, {"eager_input_streaming", &data}, CACHED)

static const struct shape anthropic_tools =
    SHAPE(FORMS, {NULL, ANTHROPIC_FUNCTION}, {"custom", ANTHROPIC_FUNCTION},
          ANTHROPIC_OWN("bash_20241022"), ANTHROPIC_OWN("bash_20250124"),
          ANTHROPIC_OWN("text_editor_20241022"), ANTHROPIC_OWN("text_editor_20250124"),
          ANTHROPIC_OWN("text_editor_20250429"), ANTHROPIC_OWN("text_editor_20250728"),
          ANTHROPIC_OWN("computer_20241022"), ANTHROPIC_OWN("computer_20250124"),
          ANTHROPIC_OWN("memory_20250818"));

static const struct shape anthropic_output =
    SHAPE(FORMS, {NULL, MEMBERS({"effort", &data}, {"format", &schema})});

static const struct shape anthropic_request = SHAPE(
    FORMS,
    {NULL,
     MEMBERS({"model", &model}, {"messages", &anthropic_messages}, {"system", &anthropic_text},
             {"tools", &anthropic_tools}, {"tool_choice", &data}, {"max_tokens", &data},
             {"stop_sequences", &data}, {"stream", &data}, {"temperature", &data}, {"top_p", &data},
             {"top_k", &data}, {"metadata", &data}, {"thinking", &data},
             {"output_config", &anthropic_output}, {"output_format", &schema},
             {"service_tier", &data}, {"context_management", &data}, {"n", &data}, CACHED)});

/* ---- OpenAI, both formats ---- */

static const struct shape openai_audio =
    SHAPE(FORMS, {NULL, MEMBERS({"data", &bytes}, {"format", &data})});

/* ---- Chat Completions ---- */

static const struct shape chat_url =
    SHAPE(FORMS, {NULL, MEMBERS({"url", &bytes}, {"detail", &data})});

static const struct shape chat_file =
    SHAPE(FORMS, {NULL, MEMBERS({"file_data", &bytes}, {"filename", &data})});

static const struct shape chat_content =
    SHAPE(TEXT_OR_FORMS, {"text", MEMBERS({"text", &data}, CACHED)},
          {"refusal", MEMBERS({"refusal", &data})},
          {"image_url", MEMBERS({"image_url", &chat_url}, CACHED)},
          {"input_audio", MEMBERS({"input_audio", &openai_audio})},
          {"file", MEMBERS({"file", &chat_file})});

static const struct shape chat_messages =
    SHAPE(FORMS, {NULL, MEMBERS({"role", &data}, {"content", &chat_content}, {"name", &data},
                                {"tool_calls", &data}, {"tool_call_id", &data}, {"refusal", &data},
                                {"function_call", &data}, {"reasoning_content", &data},
                                {"reasoning", &data}, {"annotations", &data})});

static const struct shape chat_function =
    SHAPE(FORMS, {NULL, MEMBERS({"name", &data}, {"description", &data}, {"parameters", &schema},
                                {"strict", &data})});

static const struct shape chat_tools =
    SHAPE(FORMS, {"function", MEMBERS({"function", &chat_function}, CACHED)},
          {"custom", MEMBERS({"custom", &data})});

static const struct shape chat_request = SHAPE(
    FORMS,
    {NULL,
     MEMBERS({"model", &model}, {"messages", &chat_messages}, {"max_tokens", &data},
             {"max_completion_tokens", &data}, {"temperature", &data}, {"top_p", &data},
             {"top_k", &data}, {"min_p", &data}, {"repetition_penalty", &data}, {"n", &data},
             {"stop", &data}, {"stream", &data}, {"stream_options", &data},
             {"presence_penalty", &data}, {"frequency_penalty", &data}, {"logit_bias", &data},
             {"logprobs", &data}, {"top_logprobs", &data}, {"user", &data}, {"seed", &data},
             {"tools", &chat_tools}, {"tool_choice", &data}, {"functions", &chat_function},
             {"function_call", &data}, {"parallel_tool_calls", &data}, {"response_format", &schema},
             {"reasoning_effort", &data}, {"verbosity", &data}, {"metadata", &data},
             {"store", &data}, {"service_tier", &data}, {"prompt_cache_key", &data},
             {"prompt_cache_retention", &data}, {"safety_identifier", &data}, {"modalities", &data},
             {"audio", &data}, {"prediction", &data})});

/* ---- Responses ---- */

static const struct shape responses_content =
    SHAPE(TEXT_OR_FORMS, {"input_text", MEMBERS({"text", &data})},
          {"output_text", MEMBERS({"text", &data}, {"annotations", &data}, {"logprobs", &data})},
          {"refusal", MEMBERS({"refusal", &data})},
          {"input_image", MEMBERS({"image_url", &bytes}, {"detail", &data})},
          {"input_file", MEMBERS({"file_data", &bytes}, {"filename", &data})},
          {"input_audio", MEMBERS({"input_audio", &openai_audio})});

/* An item without a type must be a message: an id alone would refer to stored data. */
static const struct shape responses_input = SHAPE(
    TEXT_OR_FORMS, {NULL, MEMBERS({"role", &data}, {"content", &responses_content})},
    {"message", MEMBERS({"role", &data}, {"content", &responses_content}, {"id", &data},
                        {"status", &data}, {"phase", &data})},
    {"function_call", MEMBERS({"id", &data}, {"call_id", &data}, {"name", &data},
                              {"arguments", &data}, {"status", &data})},
    {"function_call_output",
     MEMBERS({"id", &data}, {"call_id", &data}, {"output", &responses_content}, {"status", &data})},
    {"custom_tool_call", MEMBERS({"id", &data}, {"call_id", &data}, {"name", &data},
                                 {"input", &data}, {"status", &data})},
    {"custom_tool_call_output",
     MEMBERS({"id", &data}, {"call_id", &data}, {"output", &responses_content}, {"status", &data})},
    {"local_shell_call",
     MEMBERS({"id", &data}, {"call_id", &data}, {"action", &data}, {"status", &data})},
    {"local_shell_call_output",
     MEMBERS({"id", &data}, {"call_id", &data}, {"output", &data}, {"status", &data})},
    {"reasoning", MEMBERS({"id", &data}, {"summary", &data}, {"content", &data},
                          {"encrypted_content", &data}, {"status", &data})});

static const struct shape responses_tools =
    SHAPE(FORMS,
          {"function", MEMBERS({"name", &data}, {"description", &data}, {"parameters", &schema},
                               {"strict", &data})},
          {"custom", MEMBERS({"name", &data}, {"description", &data}, {"format", &data})},
          {"local_shell", MEMBERS({"name", &data})});

static const struct shape responses_text =
    SHAPE(FORMS, {NULL, MEMBERS({"format", &schema}, {"verbosity", &data})});

static const struct shape responses_request = SHAPE(
    FORMS, {NULL, MEMBERS({"model", &model}, {"input", &responses_input}, {"instructions", &data},
                          {"max_output_tokens", &data}, {"temperature", &data}, {"top_p", &data},
                          {"stream", &data}, {"stream_options", &data}, {"store", &data},
                          {"tools", &responses_tools}, {"tool_choice", &data},
                          {"parallel_tool_calls", &data}, {"text", &responses_text},
                          {"reasoning", &data}, {"truncation", &data}, {"metadata", &data},
                          {"user", &data}, {"include", &data}, {"service_tier", &data},
                          {"prompt_cache_key", &data}, {"prompt_cache_retention", &data},
                          {"safety_identifier", &data}, {"top_logprobs", &data}, {"n", &data})});

/* ---- Gemini ---- */

static const struct shape gemini_inline =
    SHAPE(FORMS, {NULL, MEMBERS({"mimeType", &data}, {"mime_type", &data}, {"data", &bytes})});

static const struct shape gemini_parts = SHAPE(
    FORMS, {NULL, MEMBERS({"text", &data}, {"functionCall", &data}, {"functionResponse", &data},
                          {"inlineData", &gemini_inline}, {"inline_data", &gemini_inline},
                          {"thought", &data}, {"thoughtSignature", &data})});

static const struct shape gemini_contents =
    SHAPE(FORMS, {NULL, MEMBERS({"role", &data}, {"parts", &gemini_parts})});

static const struct shape gemini_functions =
    SHAPE(FORMS, {NULL, MEMBERS({"name", &data}, {"description", &data}, {"parameters", &schema},
                                {"parametersJsonSchema", &schema}, {"response", &schema},
                                {"responseJsonSchema", &schema}, {"behavior", &data})});

static const struct shape gemini_tools =
    SHAPE(FORMS, {NULL, MEMBERS({"functionDeclarations", &gemini_functions})});

static const struct shape gemini_request =
    SHAPE(FORMS, {NULL, MEMBERS({"model", &model}, {"contents", &gemini_contents},
                                {"systemInstruction", &gemini_contents}, {"tools", &gemini_tools},
                                {"toolConfig", &data}, {"generationConfig", &schema},
                                {"safetySettings", &data}, {"labels", &data})});

/* ---- checking a request ---- */

static bool looks(const struct shape *shape, const json_t *value, const char *name, char *ret);

static bool found(char *ret, const char *name, const char *what) {
    snprintf(ret, MODEL_REACH_SIZE, "%.50s%s%.50s", name, what[0] ? " " : "", what);
    return true;
}

/* Returns the string; NULL also for a string with a NUL byte, because C functions would compare
 * only its first part. */
static const char *reach_text_of(const json_t *value) {
    const char *text = json_string_value(value);
    return text && strlen(text) == json_string_length(value) ? text : NULL;
}

static bool begins(const char *text, const char *with) {
    return strncasecmp(text, with, strlen(with)) == 0;
}

/* True for a data: URL or base64, which has no colon and no dot in either alphabet. */
static bool is_inline(const json_t *value) {
    const char *text = reach_text_of(value);
    return text && (begins(text, "data:") || !strpbrk(text, ":.\\%?"));
}

/* True if a JSON schema refers to another document. Parts of the same document are allowed, and the
 * standard's name in $schema. */
static bool refers_outside(const char *name, const json_t *value) {
    const char *text = reach_text_of(value);
    if (strcmp(name, "$schema") == 0)
        return !text || (!begins(text, "http://json-schema.org/") &&
                         !begins(text, "https://json-schema.org/"));
    bool refers = strcmp(name, "$ref") == 0 || strcmp(name, "$dynamicRef") == 0 ||
                  strcmp(name, "$recursiveRef") == 0;
    return refers && (!text || text[0] != '#');
}

static bool looks_schema(const json_t *value, char *ret) {
    const char *name;
    const json_t *inner;
    size_t i;
    json_object_foreach((json_t *)value, name, inner) {
        if (refers_outside(name, inner))
            return found(ret, name, "of another document");
        if (looks_schema(inner, ret))
            return true;
    }
    json_array_foreach(value, i, inner) {
        if (looks_schema(inner, ret))
            return true;
    }
    return false;
}

/* Detects models that search the web. A list of their names is never complete; this finds known
 * patterns. */
static bool looks_model(const json_t *value, char *ret) {
    static const char *const marks[] = {"search", "research", "online", "sonar", "compound"};
    const char *name = reach_text_of(value);
    for (size_t i = 0; name && i < sizeof(marks) / sizeof(*marks); i++)
        if (strcasestr(name, marks[i]))
            return found(ret, "model", name);
    return name ? false : found(ret, "model", "");
}

static const struct form *form_of(const struct shape *shape, const json_t *value) {
    const json_t *type = json_object_get(value, "type");
    const char *said = reach_text_of(type);
    bool none = !type || json_is_null(type);
    for (const struct form *f = shape->forms; f->members; f++)
        if (f->type ? said && strcmp(f->type, said) == 0 : none)
            return f;
    return NULL;
}

static const struct shape *member_of(const struct form *form, const char *name) {
    if (strcmp(name, "type") == 0)
        return &data;
    for (const struct member *m = form->members; m->name; m++)
        if (strcmp(m->name, name) == 0)
            return m->shape;
    return NULL;
}

static bool looks_object(const struct shape *shape, const json_t *value, const char *name,
                         char *ret) {
    const struct form *form = form_of(shape, value);
    const char *inner_name;
    const json_t *inner;
    if (!form) {
        const char *type = reach_text_of(json_object_get(value, "type"));
        return found(ret, name, type ? type : "of an unknown type");
    }
    json_object_foreach((json_t *)value, inner_name, inner) {
        const struct shape *next = member_of(form, inner_name);
        if (json_is_null(inner))
            continue;
        if (!next)
            return found(ret, inner_name, "");
        if (looks(next, inner, inner_name, ret))
            return true;
    }
    return false;
}

static bool looks_forms(const struct shape *shape, const json_t *value, const char *name,
                        char *ret) {
    size_t i;
    const json_t *item;
    if (json_is_object(value))
        return looks_object(shape, value, name, ret);
    if (!json_is_array(value))
        return found(ret, name, "of an unknown kind");
    json_array_foreach(value, i, item) {
        if (!json_is_object(item))
            return found(ret, name, "of an unknown kind");
        if (looks_object(shape, item, name, ret))
            return true;
    }
    return false;
}

static bool looks(const struct shape *shape, const json_t *value, const char *name, char *ret) {
    switch (shape->kind) {
    case DATA:
        return false;
    case SCHEMA:
        return looks_schema(value, ret);
    case INLINE:
        return is_inline(value) ? false : found(ret, name, "that is an address");
    case MODEL:
        return looks_model(value, ret);
    case TEXT_OR_FORMS:
        return json_is_string(value) ? false : looks_forms(shape, value, name, ret);
    case FORMS:
        break;
    }
    return looks_forms(shape, value, name, ret);
}

bool model_reaches_out(const struct model_codec *codec, const json_t *request,
                       char ret[MODEL_REACH_SIZE]) {
    const struct shape *shape = codec == &model_anthropic ? &anthropic_request
                                : codec == &model_chat    ? &chat_request
                                : codec == &model_gemini  ? &gemini_request
                                                          : &responses_request;
    ret[0] = '\0';
    return looks(shape, request, "request", ret);
}
