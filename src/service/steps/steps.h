/*
 * Steps: restore points of a machine, and the return to one.
 *
 * A step is taken after the response of a command and before the next change: changes wait at the
 * barrier (barrier.h). It costs a switch of the root (machine.h, `root`). If a running process
 * would not survive a switch, the step is recorded without a restore point and says why.
 */
#pragma once

#include "service/service.h"
#include "store/steps.h"

struct step_view {
    const char *id, *machine, *kind, *exec, *what, *name;
    uint64_t number, created_ms, files, bytes, layers;
    int64_t status;
    bool restorable, durable, counted;
    bool memory;        /* a rewind to it brings the memory of the vm back, too */
    const char *reason; /* why the step cannot be restored; NULL: it can */
    const char *how; /* how the step was taken: switch, reflink, copy, same (no changes); or NULL */
};

void step_view(const struct step_row *row, struct step_view *ret);

typedef void service_step_fn(void *arg, const struct step_view *view, const struct err *err);

struct snap_request {
    const char *name; /* NULL: none */
    bool memory;      /* of a vm: it stands still meanwhile */
};
/* Takes a step now. Commands are frozen while their files are copied. */
void service_snap(struct service *s, const struct caller *who, const char *machine,
                  const struct snap_request *r, service_step_fn *done, void *arg);
struct step_name_request {
    const char *name;
};
/* Sets the name of a step that was taken before; an empty name removes it. */
void service_step_name(struct service *s, const struct caller *who, const char *machine,
                       const char *step, const char *name, service_step_fn *done, void *arg);
/* Calls go(arg) once all begun steps of the machine are saved. */
void service_settled(struct service *s, const struct caller *who, const char *machine, loop_fn *go,
                     void *arg);

/* Lists the steps of a machine, newest first. */
int service_step_list(struct service *s, const struct caller *who, const char *machine,
                      const struct list_request *r, service_row_fn *row, void *arg,
                      char ret_next[CURSOR_SIZE], struct err *err);
int service_step_show(struct service *s, const struct caller *who, const char *machine,
                      const char *step, service_step_fn *done, void *arg, struct err *err);

struct rewind_request {
    const char *step;
    bool drifted;        /* allowed even if the host's packages have changed since */
    bool stop_processes; /* if the step has no restore point: to the newest one before it */
};
/* Rewinds a machine to a step. Ends its commands first; the present state is kept as a step. */
void service_rewind(struct service *s, const struct caller *who, const char *machine,
                    const struct rewind_request *r, service_step_fn *done, void *arg);

struct fork_request {
    const char *step; /* NULL: the present state */
    struct given count;
    bool drifted;
    bool memory;         /* of a vm: the forks go on where it is, or was at that step */
    const char *key;     /* idempotency key: the same key returns the same machines; or NULL */
    const uint8_t *hash; /* hash of the request, for the key; or NULL */
};
enum { FORK_MAX = 1000, FORK_KEY_MAX = STORE_KEY_SIZE - 8 }; /* a number is appended to the key */
/*
 * Creates a machine from r->source: a machine, MACHINE@STEP (both as forks do) or an image. What
 * the request gives replaces what the source has; rules and grants of the request are added. r and
 * fds must stay valid until `done`.
 */
void service_create_from(struct service *s, const struct caller *who,
                         const struct machine_request *r, const uint8_t hash[SHA256_BYTES],
                         const int *fds, size_t nfds, service_machine_fn *done, void *arg);
/* Creates forks. Calls `row` for each new machine, then `done`; after a failure none is left. */
void service_fork(struct service *s, const struct caller *who, const char *machine,
                  const struct fork_request *r, service_row_fn *row, service_done_fn *done,
                  void *arg);
