/* The tools that a joined MCP server offers, cleaned: a model reads their texts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/text/visible.h"
#include "base/utf8.h"
#include "tools/joined_inner.h"
#include "tools/requests.h"
#include "tools/tables.h"

enum {
    TEXT_MAX = 600,
    VALUES_MAX = 2000,
    DEPTH_MAX = 16,
    SCHEMA_BYTES_MAX = 16 << 10,
    STRING_MAX = 4000,
};

/* ---- texts ---- */

void joined_clean_text(const char *text, size_t max, struct buf *out) {
    size_t n = strlen(text), end = out->len + max;
    for (size_t i = 0; i < n;) {
        uint32_t c;
        size_t length = utf8_decode(text + i, n - i, &c);
        bool unseen = !length || (c != ' ' && visible_is_unseen(c));
        if (out->len + (length ? length : 1) > end)
            return;
        (void)!buf_add(out, unseen ? " " : text + i, unseen ? 1 : length);
        i += length ? length : 1;
    }
}

static json_t *clean_string(const char *text) {
    struct buf out DEFER(buf_done) = BUF(STRING_MAX + 1);
    joined_clean_text(text, STRING_MAX, &out);
    return json_string(out.data ? out.data : "");
}

static json_t *clean_value(const json_t *value, unsigned depth, size_t *left);

static json_t *clean_array(const json_t *value, unsigned depth, size_t *left) {
    json_t *copy = json_array(), *one;
    size_t i;
    json_array_foreach(value, i, one) {
        json_t *clean = clean_value(one, depth, left);
        if (!clean || json_array_append_new(copy, clean) < 0) {
            json_decref(copy);
            return NULL;
        }
    }
    return copy;
}

static json_t *clean_object(const json_t *value, unsigned depth, size_t *left) {
    json_t *copy = json_object(), *one;
    const char *name;
    json_object_foreach((json_t *)value, name, one) {
        struct buf key DEFER(buf_done) = BUF(STRING_MAX + 1);
        joined_clean_text(name, STRING_MAX, &key);
        json_t *clean = clean_value(one, depth, left);
        if (!clean || json_object_set_new(copy, key.data ? key.data : "", clean) < 0) {
            json_decref(copy);
            return NULL;
        }
    }
    return copy;
}

static json_t *clean_value(const json_t *value, unsigned depth, size_t *left) {
    if (!depth || !*left)
        return NULL;
    --*left;
    if (json_is_object(value))
        return clean_object(value, depth - 1, left);
    if (json_is_array(value))
        return clean_array(value, depth - 1, left);
    return json_is_string(value) ? clean_string(json_string_value(value)) : json_deep_copy(value);
}

/* ---- tools ---- */

/* The JSON of a cleaned schema; NULL: it is not one, or too large. */
static char *clean_schema(const json_t *schema) {
    size_t left = VALUES_MAX;
    json_t *clean DEFER(json_decrefp) =
        json_is_object(schema) ? clean_value(schema, DEPTH_MAX, &left) : NULL;
    const char *type = json_string_value(json_object_get(clean, "type"));
    if (!type || strcmp(type, "object") != 0)
        return NULL;
    if (!json_object_get(clean, "properties"))
        json_object_set_new(clean, "properties", json_object());
    char *text = json_dumps(clean, JSON_COMPACT);
    if (text && strlen(text) <= SCHEMA_BYTES_MAX)
        return text;
    free(text);
    return NULL;
}

static bool is_tool_name(const char *name) {
    return *name && !name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                       "0123456789_-")];
}

static bool has_tool(const struct joined *s, const char *remote) {
    for (size_t i = 0; i < s->tool_count; i++)
        if (strcmp(s->tools[i]->remote, remote) == 0)
            return true;
    return false;
}

static char *describe_tool(const struct joined *s, const char *text) {
    struct buf out DEFER(buf_done) = BUF(TEXT_MAX + 200);
    (void)!buf_addf(&out,
                    "From the MCP server '%s' in your machine, not from Carrel: ", s->join.name);
    joined_clean_text(text ? text : "", TEXT_MAX, &out);
    return buf_take(&out);
}

static void take_tool(struct joined *s, const json_t *row) {
    const char *remote = json_string_value(json_object_get(row, "name"));
    size_t prefix = strlen(s->join.name) + 2;
    if (s->tool_count == JOINED_TOOLS_MAX || !remote || !is_tool_name(remote) ||
        prefix + strlen(remote) >= JOINED_NAME_SIZE || has_tool(s, remote))
        return;
    char *schema = clean_schema(json_object_get(row, "inputSchema"));
    if (!schema)
        return;
    struct joined_tool *t = xnew(struct joined_tool);
    *t = (struct joined_tool){.server = s, .schema = schema};
    snprintf(t->name, sizeof(t->name), "%s__%s", s->join.name, remote);
    t->remote = t->name + prefix;
    /* The server's own hints do not count: a client may run a read-only tool without asking. */
    t->tool = (struct tool){
        .name = t->name,
        .title = t->name,
        .description = describe_tool(s, json_string_value(json_object_get(row, "description"))),
        .input = &joined_input_schema,
        .output = &joined_output_schema,
        .hints = TOOL_MACHINE | TOOL_CONTENT | TOOL_DESTRUCTIVE | TOOL_OPEN_WORLD,
        .recovery = TOOL_ONCE,
        .start = tool_joined,
        .foreign = true,
        .set = TOOL_SET_MINIMAL,
        .plain = plain_joined};
    s->tools[s->tool_count++] = t;
}

void joined_take_tools(struct joined *s, const json_t *result) {
    const json_t *list = json_object_get(result, "tools");
    for (size_t i = 0; i < json_array_size(list); i++)
        take_tool(s, json_array_get(list, i));
}
