#include "tools/plain.h"

#include <inttypes.h>
#include <string.h>

#include "base/defer.h"
#include "tools/requests.h"

/* Adds a text and ends it with a newline, unless it is empty. */
static void add_block(struct buf *out, const char *text) {
    size_t n = strlen(text);
    if (n && buf_add(out, text, n) && text[n - 1] != '\n')
        (void)!buf_add(out, "\n", 1);
}

void plain_exec(const void *view, struct buf *out) {
    const struct exec_output *v = view;
    add_block(out, v->stdout_text);
    if (v->stderr_text[0])
        add_block(out, "[stderr]");
    add_block(out, v->stderr_text);
    bool running = strcmp(v->status, "running") == 0;
    if (strcmp(v->status, "exited") == 0 && v->exit_json)
        (void)!buf_addf(out, "[exit code %s]", v->exit_json);
    else
        (void)!buf_addf(out, "[%s%s%s]", v->status, v->reason ? ": " : "",
                        v->reason ? v->reason : "");
    if (running || v->left_out)
        (void)!buf_addf(out, "\n[session %s]", v->session);
    if (v->left_out)
        (void)!buf_addf(out, "\n[%" PRIu64 " bytes of output left out]", v->left_out);
}

void plain_read(const void *view, struct buf *out) {
    const struct read_output *v = view;
    if (v->media)
        (void)!buf_addf(out, "%s: %s, %" PRIu64 " bytes", v->path, v->media, v->size);
    add_block(out, v->content);
    if (!v->media && v->more)
        (void)!buf_addf(out, "[more lines follow: continue with from_line %" PRIu64 "]",
                        v->from_line + v->lines);
    if (v->sha256)
        (void)!buf_addf(out, "%s[sha256 %s]", v->media ? "\n" : "", v->sha256);
}

void plain_edit(const void *view, struct buf *out) {
    const struct edit_output *v = view;
    (void)!buf_addf(out, "%s: %" PRIu64 " replaced\n", v->path, v->replaced);
    add_block(out, v->diff);
    (void)!buf_addf(out, "[sha256 %s]", v->sha256);
}

static void plain_patched(const json_t *file, struct buf *out) {
    const char *path = json_string_value(json_object_get(file, "path"));
    const char *change = json_string_value(json_object_get(file, "change"));
    const char *from = json_string_value(json_object_get(file, "from"));
    (void)!buf_addf(out, "%s %s%s%s (+%" JSON_INTEGER_FORMAT " -%" JSON_INTEGER_FORMAT ")\n",
                    change ? change : "", from ? from : "", from ? " to " : "", path ? path : "",
                    json_integer_value(json_object_get(file, "lines_added")),
                    json_integer_value(json_object_get(file, "lines_removed")));
}

void plain_patch(const void *view, struct buf *out) {
    const struct patch_output *v = view;
    json_t *files DEFER(json_decrefp) = json_loads(v->files, 0, NULL);
    for (size_t i = 0; i < json_array_size(files); i++)
        plain_patched(json_array_get(files, i), out);
}

static void plain_match(const json_t *match, struct buf *out) {
    const char *path = json_string_value(json_object_get(match, "path"));
    const char *text = json_string_value(json_object_get(match, "text"));
    const json_t *line = json_object_get(match, "line");
    if (line)
        (void)!buf_addf(out, "%s:%" JSON_INTEGER_FORMAT ":%s\n", path ? path : "",
                        json_integer_value(line), text ? text : "");
    else
        add_block(out, path ? path : "");
}

void plain_search(const void *view, struct buf *out) {
    const struct search_output *v = view;
    json_t *matches DEFER(json_decrefp) = json_loads(v->matches, 0, NULL);
    for (size_t i = 0; i < json_array_size(matches); i++)
        plain_match(json_array_get(matches, i), out);
    (void)!buf_addf(out, "[%" PRIu64 " matches%s]", v->count, v->more ? "; there may be more" : "");
}

/* Writes the last part of the path, indented by its depth. */
static void plain_entry(const json_t *entry, struct buf *out) {
    const char *path = json_string_value(json_object_get(entry, "path"));
    const char *type = json_string_value(json_object_get(entry, "type"));
    int depth = 0;
    for (const char *slash; path && (slash = strchr(path, '/')); path = slash + 1)
        depth++;
    (void)!buf_addf(out, "%*s%s%s\n", 2 * depth, "", path ? path : "",
                    type && strcmp(type, "directory") == 0 ? "/" : "");
}

void plain_list(const void *view, struct buf *out) {
    const struct list_output *v = view;
    json_t *entries DEFER(json_decrefp) = json_loads(v->entries, 0, NULL);
    add_block(out, v->path);
    for (size_t i = 0; i < json_array_size(entries); i++)
        plain_entry(json_array_get(entries, i), out);
    (void)!buf_addf(out, "[%" PRIu64 " entries%s]", v->count,
                    v->more ? "; there are more: list a directory below, or raise max" : "");
}

void plain_fetch(const void *view, struct buf *out) {
    const struct fetch_output *v = view;
    (void)!buf_addf(out, "[HTTP status %s, %s, %s]\n", v->status, v->type ? v->type : "no type",
                    v->url);
    add_block(out, v->body);
    if (v->left_out)
        (void)!buf_addf(out, "[%" PRIu64 " bytes left out: session %s]", v->left_out, v->session);
}

void plain_browser(const void *view, struct buf *out) {
    const struct browser_output *v = view;
    if (!v->url) {
        add_block(out, "[the browser has ended]");
        return;
    }
    (void)!buf_addf(out, "[%s]\n", v->url);
    add_block(out, v->title);
    if (v->fresh)
        add_block(out, "[new browser: pages of earlier calls are gone]");
    if (v->dialogs)
        (void)!buf_addf(out, "[the page showed dialogs, which were closed]\n%s", v->dialogs);
    add_block(out, v->text ? v->text : "");
    if (v->left_out)
        (void)!buf_addf(out, "[%" PRIu64 " characters left out]\n", v->left_out);
    if (!v->whole)
        add_block(out, "[the page is too large: its end is missing]");
    if (v->loading)
        add_block(out, "[the page is still loading]");
}

void plain_python(const void *view, struct buf *out) {
    static const char *const ends[] = {"exit", "killed", "died"};
    const struct python_output *v = view;
    if (v->fresh)
        add_block(out, "[new interpreter: variables of earlier calls do not exist]");
    add_block(out, v->stdout_text);
    if (v->stderr_text[0])
        add_block(out, "[stderr]");
    add_block(out, v->stderr_text);
    add_block(out, v->value ? v->value : "");
    add_block(out, v->error ? v->error : "");
    if (v->left_out)
        (void)!buf_addf(out, "[%" PRIu64 " bytes of output left out]\n", v->left_out);
    if (strcmp(v->status, "interrupted") == 0)
        add_block(out, "[interrupted: variables are kept]");
    for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++)
        if (strcmp(v->status, ends[i]) == 0)
            (void)!buf_addf(out, "[%s: the interpreter ended, its variables are lost]", v->status);
    if (!out->len)
        (void)!buf_addf(out, "[ok]");
}

static void plain_change(const json_t *change, struct buf *out) {
    static const char *const names[] = {"change", "type", "mode", "content"};
    const char *path = json_string_value(json_object_get(change, "path"));
    const char *diff = json_string_value(json_object_get(change, "diff"));
    (void)!buf_addf(out, "%s:", path ? path : "");
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        const char *value = json_string_value(json_object_get(change, names[i]));
        if (value)
            (void)!buf_addf(out, " %s", value);
    }
    (void)!buf_addf(out, "\n");
    add_block(out, diff ? diff : "");
}

void plain_diff(const void *view, struct buf *out) {
    const struct diff_output *v = view;
    json_t *changes DEFER(json_decrefp) = json_loads(v->changes, 0, NULL);
    (void)!buf_addf(out,
                    "%" PRIu64 " added, %" PRIu64 " modified, %" PRIu64 " deleted (%s to %s)\n",
                    v->added, v->modified, v->deleted, v->from, v->to);
    for (size_t i = 0; i < json_array_size(changes); i++)
        plain_change(json_array_get(changes, i), out);
    if (v->left_out)
        (void)!buf_addf(out, "[%" PRIu64 " bytes of differences left out]\n", v->left_out);
    if (v->more)
        add_block(out, "[more paths changed: narrow the diff with path]");
    if (v->cut)
        (void)!buf_addf(out, "[incomplete: %s]", v->cut);
}

/* Writes "name: value". A text of several lines starts on its own line. */
static void plain_member(const char *name, const json_t *value, struct buf *out) {
    const char *text = json_string_value(value);
    char *json DEFER_FREE = text ? NULL : json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    const char *shown = text ? text : json ? json : "";
    (void)!buf_addf(out, "%s:%s", name, strchr(shown, '\n') ? "\n" : " ");
    if (*shown)
        add_block(out, shown);
    else
        (void)!buf_add(out, "\n", 1);
}

void plain_text(const struct tool *t, const void *view, const char *json, struct buf *out) {
    const char *name;
    json_t *value;
    if (t->plain) {
        t->plain(view, out);
        return;
    }
    json_t *object DEFER(json_decrefp) = json_loads(json, 0, NULL);
    json_object_foreach(object, name, value) plain_member(name, value, out);
}
