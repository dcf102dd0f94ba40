#include "service/timers/upkeep.h"

#include <string.h>

#include "service/cells.h"
#include "service/state.h"
#include "service/vm/vms.h"

#define HOUR_MS 3600000ull

static const char upkeep_script[] =
#include "service/upkeep.inc"
    ;

static const struct upkeep_task tasks[] = {
    {"updates", 24 * HOUR_MS, false},
    {"cleanup", 7 * 24 * HOUR_MS, false},
    {"units", HOUR_MS / 4, true},
};
const char *const upkeep_names[] = {"updates", "cleanup", "units", NULL};

_Static_assert(sizeof(upkeep_names) / sizeof(*upkeep_names) == sizeof(tasks) / sizeof(*tasks) + 1,
               "each task has a name");

const struct upkeep_task *upkeep_find(const struct live *l, const char *name, struct err *err) {
    const struct upkeep_task *task = NULL;
    for (size_t i = 0; upkeep_names[i]; i++)
        if (strcmp(tasks[i].name, name) == 0)
            task = &tasks[i];
    if (!task) {
        err_set(err, ERR_INVALID, "unknown task '%.40s'", name);
        err_remedy(err, "use updates, cleanup or units");
        return NULL;
    }
    if (cell_refuse(l, "tasks of upkeep", err) < 0)
        return NULL;
    if (task->needs_vm && !live_is_vm(l)) {
        err_set(err, ERR_UNSUPPORTED,
                "the task '%s' restarts units of systemd, which does not run in a box", name);
        err_remedy(err, "make the machine a vm: carrel move --kind vm %s", l->row.id);
        return NULL;
    }
    return task;
}

void upkeep_words(const char *task, const char *ret[UPKEEP_WORDS]) {
    const char *const words[UPKEEP_WORDS] = {"/bin/sh", "-c", upkeep_script, "carrel-upkeep", task};
    memcpy(ret, words, sizeof(words));
}
