/* What the journal and the events say about change sets. */
#include "service/review/changeset_events.h"

#include <stdio.h>

#include "base/defer.h"
#include "base/log.h"
#include "service/review/changeset_rows.h"
#include "store/store.h"

void changeset_detail(const struct changeset_view *v, struct buf *ret) {
    const char *const texts[][2] = {
        {"changeset", v->id}, {"sha256", v->sha256}, {"name", v->machine_name}, {"path", v->path},
        {"slice", v->slice},  {"kind", v->kind},     {"home", v->home},         {"ref", v->ref}};
    /* Long paths may not fit into a record. The id and the hash always do. */
    for (size_t count = sizeof(texts) / sizeof(*texts); count; count = count > 2 ? 2 : 0) {
        struct jot j = JOT(ret);
        jot_object(&j, NULL);
        for (size_t i = 0; i < count; i++)
            if (texts[i][1])
                jot_string(&j, texts[i][0], texts[i][1]);
        jot_end(&j, '}');
        if (!j.failed)
            return;
        buf_done(ret);
        *ret = BUF(JOURNAL_DETAIL_MAX);
    }
}

void changeset_tell(struct service *s, const struct changeset_view *v, const char *type) {
    struct buf text DEFER(buf_done) = BUF(JOURNAL_DETAIL_MAX);
    changeset_detail(v, &text);
    event_tell(s, v->owner, v->machine, type, text.data);
}

int service_review_returned(struct service *s, const struct caller *who, const char *owner,
                            const char *machine, const char *run, struct err *err) {
    char detail[ID_SIZE + 16];
    uint64_t intent;
    const struct journal_record what = {
        .verb = "review.return", .machine = machine, .detail = detail};
    snprintf(detail, sizeof(detail), "{\"run\":\"%s\"}", run);
    if (note_intent(s, who, &what, &intent, err) < 0)
        return -1;
    note_result(s, who, &what, intent, NULL);
    changeset_rows_return(s, machine);
    event_tell(s, owner, machine, "changeset.returned", detail);
    return 0;
}

void changesets_dropped_tell(struct service *s, const struct changesets_dropped *list) {
    for (size_t i = 0; i < list->count; i++) {
        const struct changeset_dropped *one = &list->rows[i];
        char detail[ID_SIZE + 24];
        struct err err;
        const struct journal_record note = {.kind = JOURNAL_NOTE,
                                            .verb = "review.drop",
                                            .owner = one->owner,
                                            .machine = one->machine,
                                            .detail = detail};
        snprintf(detail, sizeof(detail), "{\"changeset\":\"%s\"}", one->id);
        if (store_log(s->store, &note, NULL, &err) < 0)
            log_line(LOG_WARN, "service", "write the journal: %s", err.text);
        changeset_row_decide(s, one->id, CHANGESET_DROPPED);
        event_tell(s, one->owner, one->machine, "changeset.dropped", detail);
    }
}
