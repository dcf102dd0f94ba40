#include "service/images/images.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/defer.h"
#include "service/images/inner.h"
#include "service/rights.h"

int service_image_list(struct service *s, const struct caller *who, bool all_owners,
                       service_row_fn *row, void *arg, struct err *err) {
    struct image_list list DEFER(image_list_done) = {0};
    char *config DEFER_FREE = NULL;
    if (allow(who, SCOPE_READ, err) < 0)
        return -1;
    if (all_owners && authorise(who, RIGHT_LIST_ALL, err) < 0)
        return -1;
    if (store_image_list(s->store, all_owners ? NULL : who->owner, &list, err) < 0)
        return -1;
    for (size_t i = 0; i < list.count; i++) {
        struct image_view view;
        image_view_of(s, &list.rows[i], &config, &view);
        row(arg, &view);
    }
    return 0;
}

int service_image_show(struct service *s, const struct caller *who, const char *ref,
                       service_image_fn *done, void *arg, struct err *err) {
    struct image_row row;
    struct image_view view;
    char *config DEFER_FREE = NULL;
    if (allow(who, SCOPE_READ, err) < 0 || image_find(s, who, ref, &row, err) < 0)
        return -1;
    image_view_of(s, &row, &config, &view);
    s->images->stats.steps_cached += image_is_step(ref);
    done(arg, &view, NULL);
    return 0;
}

const char *image_work_name(enum image_work work) {
    static const char *const names[IMAGE_WORKS] = {
        [IMAGE_IMPORT] = "import", [IMAGE_EXPORT] = "export", [IMAGE_SNAP] = "snap"};
    return names[work];
}

void service_image_stats(struct service *s, struct image_stats *ret) {
    struct image_totals totals;
    struct err err;
    *ret = s->images->stats;
    if (store_image_totals(s->store, &totals, &err) < 0)
        return;
    ret->names = totals.names;
    ret->trees = totals.trees;
    ret->bytes = totals.bytes;
}

static void tell_removed(struct service *s, const struct image_row *row) {
    struct buf text DEFER(buf_done) = BUF(4096);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_string(&j, "image", row->id);
    jot_string(&j, "name", row->name);
    jot_end(&j, '}');
    event_tell(s, row->owner, NULL, "image.removed", j.failed ? NULL : text.data);
}

int image_remove_row(struct service *s, const struct image_row *row, struct err *err) {
    if (store_image_delete(s->store, row->owner, row->name, err) < 0)
        return -1;
    tell_removed(s, row);
    image_release(s, row->id);
    return 0;
}

void service_image_remove(struct service *s, const struct caller *who, const char *ref,
                          service_image_fn *done, void *arg) {
    struct image_row row;
    struct image_view view;
    struct err err;
    uint64_t intent;
    char *config DEFER_FREE = NULL;
    struct journal_record what = {.verb = "image.remove"};
    if (allow(who, SCOPE_RUN, &err) < 0 || image_find(s, who, ref, &row, &err) < 0) {
        done(arg, NULL, &err);
        return;
    }
    what.reason = row.name;
    if (note_intent(s, who, &what, &intent, &err) < 0) {
        done(arg, NULL, &err);
        return;
    }
    image_view_of(s, &row, &config, &view);
    int r = image_remove_row(s, &row, &err);
    note_result(s, who, &what, intent, r < 0 ? &err : NULL);
    done(arg, r < 0 ? NULL : &view, r < 0 ? &err : NULL);
}

static int tag(struct service *s, const struct caller *who, const char *ref, const char *name,
               struct image_row *row, struct err *err) {
    if (allow(who, SCOPE_RUN, err) < 0 || image_find(s, who, ref, row, err) < 0)
        return -1;
    if (image_name_check(name, err) < 0)
        return -1;
    snprintf(row->owner, sizeof(row->owner), "%s", who->owner);
    snprintf(row->name, sizeof(row->name), "%s", name);
    snprintf(row->token, sizeof(row->token), "%s", who->token);
    row->created_ms = wall_ms();
    return 0;
}

void service_image_tag(struct service *s, const struct caller *who, const char *ref,
                       const char *name, service_image_fn *done, void *arg) {
    struct image_row row;
    struct image_view view;
    struct err err;
    uint64_t intent;
    char *config DEFER_FREE = NULL;
    struct journal_record what = {.verb = "image.tag", .reason = name};
    if (tag(s, who, ref, name, &row, &err) < 0 || note_intent(s, who, &what, &intent, &err) < 0) {
        done(arg, NULL, &err);
        return;
    }
    int r = image_name(s, &row, &err);
    note_result(s, who, &what, intent, r < 0 ? &err : NULL);
    image_view_of(s, &row, &config, &view);
    done(arg, r < 0 ? NULL : &view, r < 0 ? &err : NULL);
}
