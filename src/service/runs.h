/*
 * Records of operator runs: intents and results in the journal, and events for watchers.
 *
 * Callers need the scope run. What a run does with a machine goes through the same functions as
 * every other request.
 */
#pragma once

#include "service/service.h"

struct run_record {
    const char *verb;    /* "run.call" */
    const char *machine; /* id, or NULL */
    const char *detail;  /* a JSON value of at most 8 KiB, or NULL */
};

/* Call it before the effect. It is not flushed: see service_run_flush(). */
int service_run_intent(struct service *s, const struct caller *who, const struct run_record *what,
                       uint64_t *ret_seq, struct err *err);
/* Call it after the effect. failed: why it was not done, or NULL. */
void service_run_result(struct service *s, const struct caller *who, const struct run_record *what,
                        uint64_t intent, const char *failed);
void service_run_tell(struct service *s, const struct caller *who, const char *machine,
                      const char *type, const char *json);

/*
 * Live machines that were created for a run: the key of their request starts with its id and a dot.
 */
enum { RUN_MACHINES_MAX = 64 };
struct run_machines {
    char ids[RUN_MACHINES_MAX][ID_SIZE];
    size_t count;
};
void service_run_machines(struct service *s, const struct caller *who, const char *run,
                          struct run_machines *ret);

/* When this returns 0, everything written before is on disk. Any thread; blocks. */
int service_run_flush(struct service *s, struct err *err);

/* The directory of transcripts, "$CARREL_HOME/runs"; created if needed. */
int service_run_dir(struct service *s, char *ret, size_t size, struct err *err);
