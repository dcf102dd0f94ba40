/* Answers a diff of two steps as JSON; the comparison itself runs in the service. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/bodies.h"
#include "api/route.h"
#include "base/alloc.h"
#include "base/defer.h"
#include "base/text/base64.h"
#include "base/utf8.h"
#include "service/review/diff.h"

enum { DIFF_BODY_MAX = 2 * CALL_BODY_MAX };

/* Writes a name as text. A name that is not UTF-8 is also written exactly, as base64. */
static void put_name(struct jot *j, const char *name, const char *base64_name,
                     const struct bytes *b) {
    if (b->n == 0)
        return;
    jot_bytes(j, name, b->s, b->n);
    if (utf8_valid(b->s, b->n))
        return;
    char *text DEFER_FREE = xmalloc(BASE64_SIZE(b->n));
    base64_encode(b->s, b->n, text);
    jot_string(j, base64_name, text);
}

static void put_side(struct jot *j, const char *name, const struct change_side *side) {
    char mode[8];
    const char *type = change_type_name(side->mode);
    if (!type)
        return;
    snprintf(mode, sizeof(mode), "%04o", (unsigned)side->mode & 07777u);
    jot_object(j, name);
    jot_string(j, "type", type);
    jot_string(j, "mode", mode);
    jot_u64(j, "owner", side->uid);
    jot_u64(j, "group", side->gid);
    jot_u64(j, "size", side->size);
    jot_end(j, '}');
}

static void put_change(struct jot *j, const struct change *c) {
    jot_object(j, NULL);
    put_name(j, "path", "path_base64", &c->path);
    jot_string(j, "change", change_kind_name(c->kind));
    if (c->own)
        jot_bool(j, "own", true);
    put_side(j, "before", &c->before);
    put_side(j, "after", &c->after);
    put_name(j, "target_before", "target_before_base64", &c->target_before);
    put_name(j, "target_after", "target_after_base64", &c->target_after);
    if (c->content != CONTENT_NONE)
        jot_string(j, "content", change_content_name(c->content));
    if (c->content == CONTENT_TEXT || c->lines_added || c->lines_removed) {
        jot_u64(j, "lines_added", c->lines_added);
        jot_u64(j, "lines_removed", c->lines_removed);
    }
    if (c->content == CONTENT_TEXT)
        jot_bytes(j, "diff", c->diff.s, c->diff.n);
    jot_end(j, '}');
}

static void put_end(struct jot *j, const char *name, const struct diff_end *e) {
    jot_object(j, name);
    jot_string(j, "name", e->name);
    if (e->number)
        jot_u64(j, "number", e->number);
    jot_end(j, '}');
}

static void diff_answer(void *arg, const struct diff_view *view, const struct err *err) {
    struct call *c = arg;
    struct buf text DEFER(buf_done) = BUF(DIFF_BODY_MAX);
    struct jot j = JOT(&text);
    if (err) {
        call_error(c, err);
        return;
    }
    const struct changes_end *end = &view->changes->end;
    jot_object(&j, NULL);
    jot_string(&j, "machine", view->machine);
    put_end(&j, "from", &view->from);
    put_end(&j, "to", &view->to);
    jot_u64(&j, "added", end->added);
    jot_u64(&j, "modified", end->modified);
    jot_u64(&j, "deleted", end->deleted);
    jot_u64(&j, "looked", end->looked);
    if (end->cut != CUT_NONE)
        jot_string(&j, "cut", changes_cut_name(end->cut));
    jot_array(&j, "changes");
    for (size_t i = 0; i < view->changes->count; i++)
        put_change(&j, &view->changes->v[i]);
    jot_end(&j, ']');
    jot_end(&j, '}');
    call_json(c, 200, &j, &text);
}

void api_diff(struct call *c) {
    struct err err;
    struct diff_request r = {.from = call_query(c, "from"),
                             .to = call_query(c, "to"),
                             .path = call_query(c, "path"),
                             .volume = call_query(c, "volume"),
                             .context = DIFF_CONTEXT,
                             .brief = call_flag(c, "brief"),
                             .skip_repos = call_flag(c, "skip_repos")};
    if (call_number(c, "context", 0, DIFF_CONTEXT_MAX, &r.context, &err) < 0)
        call_error(c, &err);
    else
        service_diff(c->service, &c->who, c->params[0], &r, diff_answer, c);
}
