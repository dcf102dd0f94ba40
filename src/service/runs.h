/*
 * Records of operator runs: intents and results in the journal, and events for watchers.
 *
 * Callers need the scope run. A run uses machines through the same functions as every other
 * request.
 */
#pragma once

#include "service/service.h"

struct run_record {
    const char *verb;    /* "run.call" */
    const char *machine; /* id of a machine, or NULL */
    const char *detail;  /* a JSON value of at most 8 KiB, or NULL */
};

/*
 * Records the intent of an action of a run, before the action. It is not flushed: see
 * service_run_flush().
 */
int service_run_intent(struct service *s, const struct caller *who, const struct run_record *what,
                       uint64_t *ret_seq, struct err *err);
/* Records the result of an action of a run, after the action. failed: why it failed, or NULL. */
void service_run_result(struct service *s, const struct caller *who, const struct run_record *what,
                        uint64_t intent, const char *failed);
void service_run_tell(struct service *s, const struct caller *who, const char *machine,
                      const char *type, const char *json);

/*
 * Live machines that were created for a run: the key of their request starts with the run's id and
 * a dot.
 */
enum { RUN_MACHINES_MAX = 64 };
struct run_machines {
    char ids[RUN_MACHINES_MAX][ID_SIZE];
    size_t count;
};
void service_run_machines(struct service *s, const struct caller *who, const char *run,
                          struct run_machines *ret);

/*
 * Flushes the journal: when it returns 0, all earlier records are on disk. Any thread may call it;
 * it blocks.
 */
int service_run_flush(struct service *s, struct err *err);

/* The directory of transcripts, "$CARREL_HOME/runs"; created if needed. */
int service_run_dir(struct service *s, char *ret, size_t size, struct err *err);
