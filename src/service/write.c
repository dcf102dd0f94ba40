#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "service/events.h"
#include "service/state.h"

static struct journal_record write_record_of(const struct caller *who,
                                             const struct journal_record *what) {
    struct journal_record r = *what;
    r.owner = who ? who->owner : "carrel";
    r.token = who ? who->token : NULL;
    r.client = who ? who->client : NULL;
    return r;
}

/* Verbs that are served while the store's disk is full; all others are refused. */
static const struct {
    const char *verb;
    enum store_use use;
} uses[] = {
    {"database.drop", STORE_FREES}, {"database.forget", STORE_FREES},
    {"exec.kill", STORE_FREES},     {"exec.signal", STORE_FREES},
    {"expose.close", STORE_FREES},  {"file.list", STORE_READS},
    {"file.read", STORE_READS},     {"file.stat", STORE_READS},
    {"grant.expire", STORE_FREES},  {"grant.revoke", STORE_FREES},
    {"image.prune", STORE_FREES},   {"image.remove", STORE_FREES},
    {"machine.end", STORE_FREES},   {"machine.destroy", STORE_FREES},
    {"net.guard", STORE_FREES},     {"net.refuse", STORE_FREES},
    {"net.unrule", STORE_FREES},    {"package.clear", STORE_FREES},
    {"secret.remove", STORE_FREES}, {"token.revoke", STORE_FREES},
    {"volume.remove", STORE_FREES},
};

static enum store_use use_of(const char *verb) {
    for (size_t i = 0; i < sizeof(uses) / sizeof(*uses); i++)
        if (strcmp(uses[i].verb, verb) == 0)
            return uses[i].use;
    return STORE_USES;
}

int note_intent(struct service *s, const struct caller *who, const struct journal_record *what,
                uint64_t *ret_seq, struct err *err) {
    struct journal_record r = write_record_of(who, what);
    r.kind = JOURNAL_INTENT;
    enum store_use use = use_of(what->verb);
    if (store_admit(s->store, use, err) < 0)
        return -1;
    if (store_log(s->store, &r, ret_seq, err) == 0)
        return 0;
    /* Another writer may have used the free space since: use the reserved space. */
    if (use != STORE_USES && err->code == ERR_LIMIT && store_dig(s->store) &&
        store_log(s->store, &r, ret_seq, err) == 0)
        return 0;
    return err_wrap(err, "cannot write the journal");
}

void note_result(struct service *s, const struct caller *who, const struct journal_record *what,
                 uint64_t intent, const struct err *failed) {
    struct journal_record r = write_record_of(who, what);
    struct err err;
    r.kind = JOURNAL_RESULT;
    r.intent = intent;
    if (failed)
        r.reason = failed->text;
    if (store_log(s->store, &r, NULL, &err) == 0)
        return;
    /* The operation is done already: use the reserved disk space to record it. */
    if (!store_is_full(s->store) || !store_dig(s->store) || store_log(s->store, &r, NULL, &err) < 0)
        log_line(LOG_ERROR, "service", "write the journal: %s", err.text);
}

struct journal_record verb_record(const char *verb, const struct live *l) {
    return (struct journal_record){.verb = verb, .machine = l->row.id};
}

int event_put(struct service *s, const char *owner, const char *machine, const char *type,
              const char *json, struct err *err) {
    struct event_row row = {.time_ms = wall_ms(), .json = (char *)json};
    snprintf(row.owner, sizeof(row.owner), "%s", owner);
    snprintf(row.machine, sizeof(row.machine), "%s", machine ? machine : "");
    snprintf(row.type, sizeof(row.type), "%s", type);
    if (store_event_add(s->store, &row, &row.id, err) < 0)
        return err_wrap(err, "cannot save an event");
    loop_defer(s->loop, &s->events_call);
    return 0;
}

void event_tell(struct service *s, const char *owner, const char *machine, const char *type,
                const char *json) {
    struct err err;
    if (event_put(s, owner, machine, type, json, &err) < 0)
        log_line(LOG_ERROR, "service", "%s", err.text);
}

void events_tell(void *service) {
    struct service *s = service;
    for (s->walk = s->watches; s->walk;) {
        struct event_watch *w = s->walk;
        s->walk = w->next;
        w->changed(w->arg);
    }
}
