#include "service/reports.h"

#include <string.h>

#include "service/state.h"

int service_report(struct service *s, const struct caller *who, const char *machine,
                   const char *json, struct err *err) {
    struct journal_record what = {.verb = "agent.report",
                                  .machine = *machine ? machine : NULL,
                                  .bytes = strlen(json),
                                  .detail = strlen(json) < JOURNAL_DETAIL_MAX ? json : NULL};
    uint64_t intent;
    if (allow(who, SCOPE_RUN, err) < 0 ||
        (*machine && !live_find(s, who, machine, LIVE_ANY, err)) ||
        note_intent(s, who, &what, &intent, err) < 0)
        return -1;
    event_tell(s, who->owner, machine, "agent.report", json);
    note_result(s, who, &(struct journal_record){.verb = what.verb, .machine = what.machine},
                intent, NULL);
    return 0;
}
