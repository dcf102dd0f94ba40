/*
 * Internal state of the service and of each live machine, shared by its files. Only for
 * src/service. State of a single subfolder is in its inner.h.
 */
#pragma once

#include "base/clock.h"
#include "base/jot.h"
#include "base/map.h"
#include "gate/gate.h"
#include "machine/machine.h"
#include "service/commit.h"
#include "service/host.h"
#include "service/idle.h"
#include "service/rights.h"
#include "service/service.h"
#include "store/execs.h"
#include "store/journal.h"
#include "store/machines.h"

struct exec_defaults;
struct live_execs;
struct live_grants;
struct live_image;
struct live_net;
struct live_steps;
struct ending;
struct trimming;
struct event_watch;
struct service_execs;
struct service_grants;
struct service_images;
struct service_models;
struct service_net;
struct service_review;
struct service_steps;

/* How far a machine of an earlier daemon is known again. A new machine is heard at once. */
struct reach {
    bool heard;         /* its commands are known */
    bool calling;       /* adoption or a query is in progress */
    bool awaited;       /* the start of the daemon waits for it, for a limited time */
    bool between_roots; /* taken over from another store: its last step may be unfinished */
    unsigned tries;
    size_t unknown; /* commands added that were not in the store: a guest may report any number */
    uint64_t again_ms; /* time of the next try; 0: wait for an event */
    uint64_t since_ms;
    char why[200];            /* why the machine is not reached */
    service_machine_fn *told; /* callback of the request that took it over, or NULL */
    void *told_arg;
};

/* A machine that has not ended. It is in the table from the moment its row is written. */
struct live {
    struct service *service;
    struct machine_row row;
    struct machine *machine; /* NULL while it is created or adopted */
    uint32_t watched;        /* paths watched with inotify, which a new root would invalidate */
    uint32_t open;           /* terminals and streams with a client */
    bool changing;           /* an operation on the whole machine is in progress */
    bool drifted;
    uint64_t disk_bytes; /* of its own, as last measured */
    uint32_t refs;
    struct reach reach;
    struct ending *ending; /* set once it is ending */
    uint64_t expires_ms;   /* when its ttl ends, by boot_ms(); 0: never */
    struct idle_state idle;
    uint64_t idle_check_ms;   /* time of the next check */
    struct commit_lane lane;  /* commits that wait to be saved */
    bool dormant;             /* has no box; waits to be resumed */
    char *cwd;                /* of commands: a granted directory, or NULL */
    struct live_image *image; /* its image; NULL: the host's */
    struct gate_machine *gate;
    /* State of each folder; the structs are in inner.h of the folder. */
    struct live_execs *execs;
    struct live_steps *steps;
    struct live_net *net;
    struct live_grants *grants;
    struct {
        bool unsaved; /* in the policy, but not yet in the store or not in all sharing machines */
        bool untold;  /* not in the journal yet */
        bool joining; /* taint_join() is passing it on; sharing machines may lead back here */
    } taint;          /* service/taint.h */
    struct http_server *model_server; /* NULL: it never used a model */
    bool releasing;                   /* idle: being checked for changes of its own */
    struct texts env;                 /* environment of the row as pairs; points into env_json */
    void *env_json;
};

/* Disk quota reserved for an image that is being created. */
struct disk_hold {
    struct disk_hold *next;
    const struct caller *who;
    uint64_t bytes; /* 0: no quota */
};

struct service {
    struct loop *loop;
    struct store *store;
    struct commits *commits;
    const struct conf *conf;
    const struct place *place;
    const struct machine_driver *driver; /* of boxes; other kinds add a table here */
    struct machine_host *host;
    /* State of each folder; the structs are in inner.h of the folder. */
    struct service_execs *execs;
    struct service_steps *steps;
    struct service_grants *grants;
    struct service_images *images;
    struct service_models *models;
    struct service_net *net;
    struct service_review *review;
    struct map machines; /* id -> struct live */
    struct loop_timer *tick;
    struct trimming *trimming; /* old data is being deleted */
    uint64_t trim_again_ms, changesets_look_ms;
    struct event_watch *watches, *walk;
    uint32_t watch_ids;
    char last_owner[STORE_NAME_SIZE]; /* owner of the last caller; empty: none yet */
    uid_t last_uid;
    struct loop_call events_call; /* notifies watchers after the commit */
    uint64_t hits[HIT_COUNT];     /* enum limit_hit */
    loop_fn *ready;
    void (*broken)(const struct err *why);
    void *ready_arg;
    size_t adopting;       /* machines that the start still waits for */
    struct map strays;     /* id -> struct stray: boxes that this daemon must not touch */
    struct id_list wanted; /* machines that have not ended, until they are adopted */
    bool listed;           /* the boxes of the host are known, and unwanted ones removed */
    bool listing;          /* the host is being asked for its boxes */
    unsigned list_tries;
    uint64_t list_again_ms;
    struct disk_hold *holds;
    bool store_full, store_scarce; /* as reported last; room.c */
    bool unsigned_told;            /* the failure to sign the journal was logged */
};

/* ---- write.c: what is written down about a verb ---- */

/*
 * Call it before the effect. who: NULL for the daemon itself. If the intent cannot be written, the
 * operation must not be done.
 */
int note_intent(struct service *s, const struct caller *who, const struct journal_record *what,
                uint64_t *ret_seq, struct err *err);
/*
 * Call it after the effect. A result that cannot be written is only logged, because the effect
 * exists.
 */
void note_result(struct service *s, const struct caller *who, const struct journal_record *what,
                 uint64_t intent, const struct err *failed);

/* A record with the fields that most operations on a machine need. */
struct journal_record verb_record(const char *verb, const struct live *l);

/*
 * Stores an event and notifies watchers later, from the loop; within a transaction only if that is
 * committed. json: an object or NULL.
 */
void events_tell(void *service);
int event_put(struct service *s, const char *owner, const char *machine, const char *type,
              const char *json, struct err *err);
/* The same; a failure is logged. */
void event_tell(struct service *s, const char *owner, const char *machine, const char *type,
                const char *json);

/* ---- who may (auth.c) ---- */

bool may_see(const struct caller *who, const char *owner);

/* ---- live.c: what a living machine is ---- */

struct live *live_new(struct service *s, struct machine_row *row); /* takes the row's texts */
void live_ref(struct live *l);
void live_unref(struct live *l);
/* Allows the next operation, unless the machine is ending. */
void live_verb_over(struct live *l);
void live_view(const struct live *l, struct machine_view *ret);
void machine_row_view(const struct machine_row *row, struct machine_view *ret); /* one that ended */

/* The user that commands run as; NULL: that of the host's image. */
const struct exec_defaults *live_defaults(const struct live *l);

/* Sets the time until the ttl ends; 0: never. */
void live_set_lifetime(struct live *l, uint64_t left_ms);
/* At least 1; 0: no ttl. */
uint64_t live_time_left(const struct live *l);
/* True if the ttl ended at least `ago_ms` ago; negative: ends within that time. */
bool live_is_over(const struct live *l, int64_t ago_ms);

/* Finds a machine that the caller may see and that is in the required state. */
enum live_need { LIVE_ANY, LIVE_RUNNING, LIVE_UP /* running or paused */ };
struct live *live_find(struct service *s, const struct caller *who, const char *ref,
                       enum live_need need, struct err *err);

/* Changes variables of commands in one write of the row; value NULL: unset. */
struct env_change {
    const char *name, *value;
};
int live_set_env(struct live *l, const struct env_change *changes, size_t n, struct err *err);
/* For a write that may be rolled back: copies the environment, and restores it. */
char *live_env_copy(const struct live *l);
void live_put_env(struct live *l, char *text); /* takes it */

struct live *live_by_id(struct service *s, const struct caller *who, const char *id);
/* Finds ended machines too, so that callers can answer `gone` instead of `not_found`. */
int live_row_find(struct service *s, const struct caller *who, const char *ref,
                  struct machine_row *ret, struct err *err);
/* Sets the error `busy` with the state of the machine. */
int live_state_error(const struct live *l, struct err *err);

/* ---- machines.c ---- */

/* Parses a cursor, the number of the last row of a page: from 1 to max. */
int list_cursor(const char *text, uint64_t max, uint64_t *ret, struct err *err);

/* ---- quota.c ---- */

/* before: NULL for a new machine. If a quota is set, every machine must have that limit. */
int quota_check(struct service *s, const struct caller *who, const struct machine_row *before,
                const struct machine_row *row, struct err *err);

/*
 * Reserves all disk space that the quotas of owner and token leave; `limit`: none is left. h->who
 * must be set. quota_release() may be called in any case.
 */
int quota_hold(struct service *s, struct disk_hold *h, struct err *err);
void quota_release(struct service *s, struct disk_hold *h);

/* ---- ending.c ---- */

/* Takes ownership of the driver's machine and waits for its end. */
void live_attach(struct live *l, struct machine *m);

/*
 * Ends the machine for a reason; `done` (may be NULL) is called when nothing is left. A machine
 * that is already ending keeps its first reason.
 */
void live_end(struct live *l, const char *reason, service_done_fn *done, void *arg);
void ending_free(struct ending *e);
/* Its first process was killed: it returns to its last durable step, stopped. */
bool live_falls(const struct live *l);
/* Called by the tick: retries an end that failed. */
void live_end_again(struct live *l, uint64_t now_ms);

/* ---- risks.c ---- */

enum { RISKS_SIZE = 640 };
/* True if the machine has private data, untrusted content and network access at once. */
bool risks_find(struct live *l, char ret[RISKS_SIZE]);
/* The same; a new risk is written to the machine's row and the journal, and sent as an event. */
bool risks_note(struct live *l, char ret[RISKS_SIZE]);

/* ---- service.c ---- */

/* For operations that the daemon itself starts: logs a failure. */
void ignore_machine(void *arg, const struct machine_view *view, const struct err *err);

/* Delay after this many failures: short at first, at most half a minute. */
uint64_t back_off_ms(unsigned tries);

/* ---- create.c ---- */

/* The limits of a row that are not defaults of its kind. */
struct machine_limits row_limits(const struct conf *conf, const struct machine_row *row);

/* ---- trim.c ---- */

/* Called by the tick: deletes old data, a piece at a time. */
void trim_look(struct service *s, uint64_t now_ms);

/* ---- room.c ---- */

/* Called by the tick: checks the free space of the store's disk, and warns. */
void room_look(struct service *s);
bool room_is_scarce(const struct store_room *room);

/* ---- adopt.c ---- */
/* Fails if the list of machines cannot be read completely: then nothing is changed. */
int adopt_all(struct service *s, struct err *err);
/*
 * For a machine taken over from another store. `done` is called once it is reached, or after a
 * while.
 */
void adopt_taken(struct live *l, service_machine_fn *done, void *arg);
/* Called by the tick: retries machines that were not reached. */
void adopt_again(struct service *s, uint64_t now_ms);
void adopt_look(struct live *l, uint64_t now_ms);
/* The connection is back: asks again for what was not heard. */
void adopt_back(struct live *l);
