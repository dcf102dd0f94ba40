#include "service/runs.h"

#include <stdio.h>
#include <string.h>

#include "base/fs/folder.h"
#include "service/state.h"

static struct journal_record runs_record_of(const struct run_record *what) {
    bool fits = what->detail && strlen(what->detail) < JOURNAL_DETAIL_MAX;
    return (struct journal_record){
        .verb = what->verb, .machine = what->machine, .detail = fits ? what->detail : NULL};
}

int service_run_intent(struct service *s, const struct caller *who, const struct run_record *what,
                       uint64_t *ret_seq, struct err *err) {
    struct journal_record r = runs_record_of(what);
    return allow(who, SCOPE_RUN, err) < 0 ? -1 : note_intent(s, who, &r, ret_seq, err);
}

void service_run_result(struct service *s, const struct caller *who, const struct run_record *what,
                        uint64_t intent, const char *failed) {
    struct journal_record r = runs_record_of(what);
    struct err err;
    if (failed)
        err_set(&err, ERR_INTERNAL, "%s", failed);
    note_result(s, who, &r, intent, failed ? &err : NULL);
}

void service_run_tell(struct service *s, const struct caller *who, const char *machine,
                      const char *type, const char *json) {
    event_tell(s, who->owner, machine, type, json);
}

void service_run_machines(struct service *s, const struct caller *who, const char *run,
                          struct run_machines *ret) {
    size_t n = strlen(run);
    struct live *l;
    ret->count = 0;
    for (size_t at = 0; (l = map_next(&s->machines, &at)) && ret->count < RUN_MACHINES_MAX;)
        if (strncmp(l->row.key, run, n) == 0 && l->row.key[n] == '.' &&
            may_see(who, l->row.owner) && l->row.state != MACHINE_ENDED)
            snprintf(ret->ids[ret->count++], ID_SIZE, "%s", l->row.id);
}

int service_run_flush(struct service *s, struct err *err) {
    return store_flush(s->store, err);
}

int service_run_dir(struct service *s, char *ret, size_t size, struct err *err) {
    snprintf(ret, size, "%s/runs", s->place->home);
    int status = folder_make(ret);
    return status < 0 ? err_num(err, status, "cannot create directory '%s'", ret) : 0;
}
