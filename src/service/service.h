/*
 * The service: one function per operation. Every front end calls these functions; no other code
 * controls machines.
 *
 * An operation authorises the caller, checks quotas and the idempotency key, writes the intent to
 * the journal, does the work and writes the result. It runs on the loop thread. `done` is called
 * exactly once, possibly before the function returns, and only after the result is saved. Views and
 * errors are valid only during `done`.
 *
 * A machine is referenced by id, name or unique id prefix. Callers see only their own machines;
 * callers with the scope admin see all.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "io/loop.h"
#include "io/place.h"
#include "service/request.h"
#include "service/view.h"
#include "store/conf.h"
#include "store/db.h"
#include "store/events.h"
#include "store/owners.h"

struct service;

struct service_options {
    struct loop *loop;
    struct store *store; /* owned by the caller */
    const struct conf *conf;
    const struct place *place;
    /*
     * The store accepts no more writes: the daemon must exit at once, without writing. The next
     * daemon starts from what is on disk.
     */
    void (*broken)(const struct err *why);
};

/* Adopts live machines and ends unwanted ones; then calls `ready`. */
struct service *service_new(const struct service_options *options, loop_fn *ready, void *arg,
                            struct err *err);
/* Frees the service. The machines keep running. */
/* Call it before the faces of the API are freed: commands go on waiting for their readers. */
void service_leave(struct service *s);
void service_free(struct service *s);

/* Number of live machines and running requests: a daemon without any may exit. */
size_t service_machine_count(const struct service *s);

const struct conf *service_conf(const struct service *s);

/* The caller of an operation, filled by the front end that authenticated it. */
struct caller {
    char owner[STORE_NAME_SIZE];
    char token[ID_SIZE]; /* empty: authenticated by uid */
    uint32_t scopes;     /* enum token_scope */
    struct quota quota;  /* quota of the token; that of the owner applies too */
    char client[64];     /* "uid 1000 pid 4711", "127.0.0.1:4711" */
    bool local;          /* connected by unix socket: may pass descriptors */
    uid_t uid;           /* uid of a local caller */
    char console[16];    /* name of the console's session that it comes from; empty: another way */
    bool has_volumes;    /* the front end keeps its volumes apart: they need no more scope */
    bool waits;          /* for an operation in progress, instead of being refused: see below */
    bool is_idle;        /* the daemon itself, for a machine whose idle timeout is over */
};

/* Authenticates by peer credentials; creates the owner on first use. */
int service_caller_by_uid(struct service *s, uid_t uid, pid_t pid, struct caller *ret,
                          struct err *err);
int service_caller_by_token(struct service *s, const char *secret, size_t len, const char *client,
                            struct caller *ret, struct err *err);

/* True if the caller's token is still valid. */
bool service_caller_stands(struct service *s, const struct caller *who);

typedef void service_done_fn(void *arg, const struct err *err);
typedef void service_machine_fn(void *arg, const struct machine_view *view, const struct err *err);
typedef void service_stats_fn(void *arg, const struct stats_view *view, const struct err *err);

/* ---- machines (machines.c) ---- */

/* Returns how many descriptors a request must pass: for directories, then for copied files. */
size_t service_request_fds(const struct caller *who, const struct machine_request *r);
/* Creates a machine. fds: as many as service_request_fds(); owned by the caller. */
void service_create(struct service *s, const struct caller *who, const struct machine_request *r,
                    const uint8_t request_hash[SHA256_BYTES], const int *fds, size_t nfds,
                    service_machine_fn *done, void *arg);
/*
 * Both answer at once, with the disk usage as last measured. service_look() also counts the steps.
 */
/* The variables of all commands of a machine as one JSON object, which the caller frees; NULL with
 * *err. */
char *service_machine_env(struct service *s, const struct caller *who, const char *machine,
                          struct err *err);
void service_show(struct service *s, const struct caller *who, const char *ref,
                  service_machine_fn *done, void *arg);
void service_look(struct service *s, const struct caller *who, const char *ref,
                  service_machine_fn *done, void *arg);
void service_update(struct service *s, const struct caller *who, const char *ref,
                    const struct update_request *r, service_machine_fn *done, void *arg);
void service_pause(struct service *s, const struct caller *who, const char *ref,
                   service_machine_fn *done, void *arg);
void service_resume(struct service *s, const struct caller *who, const char *ref,
                    service_machine_fn *done, void *arg);
/*
 * Resumes a paused or stopped machine for a request that needs it running, unless somebody else put
 * it to rest (rest.h). Waits for an operation in progress.
 */
void service_wake(struct service *s, const struct caller *who, const char *ref,
                  service_machine_fn *done, void *arg);
/*
 * Call it before a request about a machine. True: go() is called later, when a machine that sleeps
 * is awake (asleep.h), or with the error; then call this again. False: go on. If ret_id is set, the
 * machine stays awake until service_use_over(). wakes: false for a request that needs no box.
 */
bool service_use(struct service *s, const struct caller *who, const char *ref, bool wakes,
                 service_done_fn *go, void *arg, char ret_id[ID_SIZE]);
void service_use_over(struct service *s, const char *id);
/*
 * True: an operation on the machine is in progress, and go() is called when it is over. False: go
 * on. A caller that waits needs it before an update; stop, pause and destroy wait by themselves,
 * and a request to destroy the machine is the next one.
 */
bool service_wait(struct service *s, const struct caller *who, const char *ref, service_done_fn *go,
                  void *arg);
/* Ends every process except the guest. Files stay; resume starts the machine again. */
void service_stop(struct service *s, const struct caller *who, const char *ref,
                  service_machine_fn *done, void *arg);
/* Hibernation fails with ERR_UNSUPPORTED. With files_only it takes a step and stops the machine. */
struct hibernate_request {
    bool files_only;
};
void service_hibernate(struct service *s, const struct caller *who, const char *ref,
                       const struct hibernate_request *r, service_machine_fn *done, void *arg);
void service_destroy(struct service *s, const struct caller *who, const char *ref,
                     service_machine_fn *done, void *arg);
void service_stats(struct service *s, const struct caller *who, const char *ref,
                   service_stats_fn *done, void *arg);

struct list_request {
    const char *states; /* comma-separated; NULL: all except ended machines */
    const char *kind, *name, *meta_key, *meta_value;
    const char *cursor; /* `next` of the previous page */
    uint64_t limit;
    bool all_owners;
    bool all; /* of commands: also those that are part of another action */
};

enum { CURSOR_SIZE = 48 };

/* Calls `row` for each machine of the page; ret_next is empty at the end of the list. */
typedef void service_row_fn(void *arg, const void *view);
int service_list(struct service *s, const struct caller *who, const struct list_request *r,
                 service_row_fn *row, void *arg, char ret_next[CURSOR_SIZE], struct err *err);

/*
 * Returns descriptors of the changes in copy-on-write grants, in their order. The service owns
 * them.
 */
int service_changes(struct service *s, const struct caller *who, const char *ref, int *ret_fds,
                    size_t max, size_t *ret_count, struct err *err);
