/* The tool diff: file changes of a machine between two steps, or since its creation. */
#include "service/review/diff.h"
#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/defer.h"
#include "service/steps/steps.h"
#include "tools/requests.h"
#include "tools/toolbox.h"

enum { ROWS_MAX = 500, ROWS_TEXT_MAX = 4 << 20 };

/* The rows of the answer, and the bytes left for their text differences. */
struct listing {
    struct jot json;
    uint64_t room, left_out;
};

static void put_mode(struct jot *j, const char *name, uint32_t mode) {
    char text[8];
    snprintf(text, sizeof(text), "%04o", (unsigned)mode & 07777u);
    jot_string(j, name, text);
}

static void put_hunks(struct listing *l, const struct change *c) {
    size_t shown = c->diff.n < l->room ? c->diff.n : utf8_end(c->diff.s, l->room);
    l->room -= shown;
    l->left_out += c->diff.n - shown;
    jot_u64(&l->json, "lines_added", c->lines_added);
    jot_u64(&l->json, "lines_removed", c->lines_removed);
    if (shown)
        jot_bytes(&l->json, "diff", c->diff.s, shown);
}

static void put_row(struct listing *l, const struct change *c) {
    struct jot *j = &l->json;
    const struct change_side *side = c->after.mode ? &c->after : &c->before;
    char path[CHANGES_PATH_MAX + 2];
    int n = snprintf(path, sizeof(path), "/%.*s", (int)c->path.n, c->path.s);
    jot_object(j, NULL);
    jot_bytes(j, "path", path, (size_t)n);
    jot_string(j, "change", change_kind_name(c->kind));
    jot_string(j, "type", change_type_name(side->mode));
    jot_u64(j, "size", side->size);
    put_mode(j, "mode", side->mode);
    if (c->kind == CHANGE_MODIFIED && (c->before.mode ^ c->after.mode) & 07777u)
        put_mode(j, "mode_before", c->before.mode);
    if (c->target_after.n)
        jot_bytes(j, "target", c->target_after.s, c->target_after.n);
    if (c->content != CONTENT_NONE)
        jot_string(j, "content", change_content_name(c->content));
    if (c->content == CONTENT_TEXT)
        put_hunks(l, c);
    jot_end(j, '}');
}

static void compared(void *arg, const struct diff_view *view, const struct err *err) {
    struct act *a = arg;
    const struct diff_input *in = a->request;
    struct buf text DEFER(buf_done) = BUF(ROWS_TEXT_MAX);
    struct listing l = {JOT(&text), in->max_output.is ? in->max_output.value : OUTPUT_DEFAULT, 0};
    if (err) {
        act_fail(a, err);
        return;
    }
    const struct changes_end *end = &view->changes->end;
    size_t rows = view->changes->count < ROWS_MAX ? view->changes->count : ROWS_MAX;
    jot_array(&l.json, NULL);
    for (size_t i = 0; i < rows; i++)
        put_row(&l, &view->changes->v[i]);
    jot_end(&l.json, ']');
    if (l.json.failed) {
        struct err full;
        err_set(&full, ERR_LIMIT, "the differences of the files are larger than %d MiB",
                ROWS_TEXT_MAX >> 20);
        err_remedy(&full, "limit the diff with 'path' or 'max_output'");
        act_fail(a, &full);
        return;
    }
    act_done(a, &(struct diff_output){.machine = view->machine,
                                      .from = view->from.name,
                                      .to = view->to.name,
                                      .changes = text.data,
                                      .cut = changes_cut_name(end->cut),
                                      .added = end->added,
                                      .modified = end->modified,
                                      .deleted = end->deleted,
                                      .left_out = l.left_out,
                                      .more = end->added + end->modified + end->deleted > rows});
}

static void diff_now(void *arg) {
    struct act *a = arg;
    const struct diff_input *in = a->request;
    const struct diff_request r = {.from = in->from,
                                   .to = in->to,
                                   .path = in->path,
                                   .context = DIFF_CONTEXT,
                                   .brief = in->brief};
    service_diff(act_service(a), act_who(a), a->machine, &r, compared, a);
}

/* Waits until the step (snapshot) after the previous command is taken. */
void tool_diff(struct act *a) {
    service_settled(act_service(a), act_who(a), a->machine, diff_now, a);
}
