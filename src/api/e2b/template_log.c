/* The log of a build as entries with a time: lines of output, and one entry for each step. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/e2b/template_inner.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/parse.h"
#include "base/text/base64.h"
#include "base/utf8.h"

enum { PIECE = 64 << 10, LINE_MAX_BYTES = 1 << 20, PAGE_MAX = 100 };

void template_log_done(struct template_log *l) {
    for (size_t i = 0; i < l->count; i++)
        free(l->entries[i].text);
    free(l->entries);
    buf_done(&l->line);
    *l = (struct template_log){0};
}

static void entry_add(struct template_log *l, const char *step, bool is_error, char *text) {
    l->entries = xrealloc(l->entries, l->count + 1, sizeof(*l->entries));
    struct template_entry *e = &l->entries[l->count++];
    *e = (struct template_entry){
        .ms = l->at_ms ? l->at_ms : (uint64_t)wall_ms(), .is_error = is_error, .text = text};
    snprintf(e->step, sizeof(e->step), "%s", step);
    l->bytes += strlen(text);
}

/* Errors are always kept, because they tell why a build failed. */
void template_log_add(struct template_log *l, const char *step, bool is_error, const char *text,
                      size_t n) {
    bool full = l->count >= LOG_ENTRIES_MAX || l->bytes + n > LOG_BYTES_MAX;
    if (full && !is_error) {
        if (!l->cut)
            entry_add(l, step, false, xstrdup("[more output is in the log of the build]"));
        l->cut = true;
        return;
    }
    entry_add(l, step, is_error, xstrndup(text, n));
}

/* The first entry of a step is its name. A log that was cut has no last lines. */
void template_log_tail(const struct template_log *l, const char *step, struct buf *ret) {
    enum { LINES = 5, LINE_MAX_SHOWN = 400 };
    size_t first = l->count;
    while (!l->cut && first && l->count - first < LINES + 1 &&
           strcmp(l->entries[first - 1].step, step) == 0)
        first--;
    for (size_t i = first; i < l->count; i++) {
        bool is_name = i == 0 || strcmp(l->entries[i - 1].step, step) != 0;
        size_t n = strlen(l->entries[i].text);
        n = n > LINE_MAX_SHOWN ? utf8_end(l->entries[i].text, LINE_MAX_SHOWN) : n;
        if (!is_name && l->count - i <= LINES)
            (void)(buf_add(ret, "\n", 1) && buf_add(ret, l->entries[i].text, n));
    }
}

/* ---- lines of the service ---- */

static void log_lines(struct template_log *l, bool all) {
    char *end;
    size_t at = 0;
    while (at < l->line.len && (end = memchr(l->line.data + at, '\n', l->line.len - at))) {
        template_log_add(l, l->step, false, l->line.data + at, (size_t)(end - l->line.data) - at);
        at = (size_t)(end - l->line.data) + 1;
    }
    buf_drop(&l->line, at);
    if (all && l->line.len) {
        template_log_add(l, l->step, false, l->line.data, l->line.len);
        l->line.len = 0;
    }
}

static void log_output(struct template_log *l, const char *bytes, size_t n) {
    if (l->line.len + n > LINE_MAX_BYTES)
        log_lines(l, true);
    if (!buf_add(&l->line, bytes, n))
        l->cut = true;
    log_lines(l, false);
}

/* Bytes that are not text become question marks. */
static void log_output_bytes(struct template_log *l, const char *base64) {
    size_t n = strlen(base64);
    char *bytes DEFER_FREE = xmalloc(n + 1);
    if (!base64_decode(base64, n, bytes, &n))
        return;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)bytes[i] >= 0x80 || !bytes[i])
            bytes[i] = '?';
    log_output(l, bytes, n);
}

static void log_step(struct template_build *b, const json_t *line) {
    struct template_log *l = &b->log;
    const char *how = json_string_value(json_object_get(line, "how"));
    const char *what = json_string_value(json_object_get(line, "what"));
    uint64_t number = (uint64_t)json_integer_value(json_object_get(line, "step"));
    char place[48];
    log_lines(l, true);
    template_step_name(&b->plan, number, l->step);
    if (number > 1 && number <= b->plan.steps + 1)
        snprintf(place, sizeof(place), "builder %s/%zu", l->step, b->plan.steps);
    else
        snprintf(place, sizeof(place), "%s", l->step);
    char *text DEFER_FREE = xformat("%s[%s] %s", how && strcmp(how, "cached") == 0 ? "CACHED " : "",
                                    place, what ? what : "");
    template_log_add(l, l->step, false, text, strlen(text));
}

static void log_line_read(struct template_build *b, const char *text, size_t n) {
    json_t *line DEFER(json_decrefp) = json_loadb(text, n, 0, NULL);
    const char *type = json_string_value(json_object_get(line, "type"));
    const char *data = json_string_value(json_object_get(line, "data"));
    const char *base64 = json_string_value(json_object_get(line, "data_base64"));
    if (type && strcmp(type, "step") == 0)
        log_step(b, line);
    else if (data)
        log_output(&b->log, data, strlen(data));
    else if (base64)
        log_output_bytes(&b->log, base64);
}

void template_log_read(struct template_build *b) {
    char *piece DEFER_FREE = xmalloc(PIECE), *end;
    ssize_t n;
    while ((n = pread(b->reader.fd, piece, PIECE, (off_t)b->read_at)) > 0) {
        b->read_at += (uint64_t)n;
        if (!buf_add(&b->rest, piece, (size_t)n))
            b->rest.len = 0; /* a line of the service is never so long */
        size_t at = 0;
        while (at < b->rest.len && (end = memchr(b->rest.data + at, '\n', b->rest.len - at))) {
            size_t length = (size_t)(end - b->rest.data) - at;
            log_line_read(b, b->rest.data + at, length);
            at += length + 1;
        }
        buf_drop(&b->rest, at);
    }
    if (b->reader.ended)
        log_lines(&b->log, true);
}
