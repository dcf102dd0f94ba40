#include "service/review/changeset_rows.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/defer.h"
#include "base/log.h"
#include "service/review/changeset_files_inner.h"
#include "service/rights.h"

/* ---- writing ---- */

int changeset_row_add(struct service *s, const struct changeset_view *v, struct err *err) {
    struct buf text DEFER(buf_done) = BUF(CHANGESET_WORDS);
    struct changeset_view view = *v;
    view.image_files = NULL; /* long, and not in lists */
    if (!changeset_words(&view, &text))
        return err_set(err, ERR_LIMIT, "the metadata of the change set is too large to store");
    struct changeset_row row = {.subject = (char *)(v->slice ? v->slice : v->path),
                                .created_ms = (int64_t)v->created_ms,
                                .changed_ms = (int64_t)v->created_ms,
                                .words = text.data};
    snprintf(row.id, sizeof(row.id), "%s", v->id);
    snprintf(row.owner, sizeof(row.owner), "%s", v->owner);
    snprintf(row.machine, sizeof(row.machine), "%s", v->machine);
    snprintf(row.sha256, sizeof(row.sha256), "%s", v->sha256 ? v->sha256 : "");
    return store_changeset_add(s->store, &row, err);
}

void changeset_row_decide(struct service *s, const char *id, enum changeset_state state) {
    struct err err;
    if (store_changeset_decide(s->store, id, state, wall_ms(), &err) < 0)
        log_line(LOG_WARN, "service", "write the state of change set '%s': %s", id, err.text);
}

void changeset_rows_return(struct service *s, const char *machine) {
    struct err err;
    if (store_changesets_return(s->store, machine, wall_ms(), &err) < 0)
        log_line(LOG_WARN, "service", "write the state of the change sets of machine '%s': %s",
                 machine, err.text);
}

/* ---- lists ---- */

#define BIT(state) (1u << (state))

static int states_parse(const char *text, uint32_t *ret, struct err *err) {
    *ret = text ? 0 : BIT(CHANGESET_PENDING) | BIT(CHANGESET_RETURNED);
    if (text && strcmp(text, "all") == 0) {
        *ret = BIT(CHANGESET_STATES) - 2;
        return 0;
    }
    while (text && *text) {
        char name[32];
        enum changeset_state state;
        size_t n = strcspn(text, ",");
        snprintf(name, sizeof(name), "%.*s", (int)n, text);
        if (changeset_state_parse(name, &state, err) < 0)
            return -1;
        *ret |= BIT(state);
        text += n + (text[n] == ',');
    }
    return 0;
}

/* Takes the id of a machine, which may be deleted, or the name of one that is not. */
static int machine_parse(struct service *s, const struct caller *who, const char *text,
                         char ret[ID_SIZE], struct err *err) {
    if (id_valid(text, strlen(text), 'm')) {
        snprintf(ret, ID_SIZE, "%s", text);
        return 0;
    }
    const struct live *l = live_find(s, who, text, LIVE_ANY, err);
    if (l)
        memcpy(ret, l->row.id, ID_SIZE);
    return l ? 0 : -1;
}

static bool row_show(struct service *s, const struct changeset_row *row, service_set_fn *fn,
                     void *arg) {
    json_t *words DEFER(json_decrefp) = json_loads(row->words, 0, NULL);
    struct changeset_view view = changeset_view_of(s, row->id, words);
    view.state = changeset_state_name(row->state);
    view.instead = row->instead[0] ? row->instead : NULL;
    return fn(arg, &view);
}

int service_changesets(struct service *s, const struct caller *who,
                       const struct changesets_request *r, service_set_fn *fn, void *arg,
                       char ret_next[CURSOR_SIZE], struct err *err) {
    struct changeset_filter filter = {.owner = r->all_owners ? NULL : who->owner,
                                      .limit = r->limit};
    struct changeset_rows list DEFER(changeset_rows_done) = {0};
    char machine[ID_SIZE];
    if (allow(who, SCOPE_READ, err) < 0 ||
        (r->all_owners && authorise(who, RIGHT_LIST_ALL, err) < 0) ||
        states_parse(r->states, &filter.states, err) < 0 ||
        (r->cursor && list_cursor(r->cursor, STORE_NUMBER_MAX, &filter.before, err) < 0) ||
        (r->machine && machine_parse(s, who, r->machine, machine, err) < 0))
        return -1;
    filter.machine = r->machine ? machine : NULL;
    if (store_changeset_list(s->store, &filter, &list, err) < 0)
        return -1;
    size_t shown = 0;
    while (shown < list.count && row_show(s, &list.rows[shown], fn, arg))
        shown++;
    ret_next[0] = '\0';
    if (shown && (shown < list.count || list.count >= (r->limit ? r->limit : 100)))
        snprintf(ret_next, CURSOR_SIZE, "%" PRIu64, list.rows[shown - 1].number);
    return 0;
}
