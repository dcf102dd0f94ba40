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
#include "service/tool_counts.h"
#include "store/execs.h"
#include "store/journal.h"
#include "store/machines.h"

struct exec_defaults;
struct live_calls;
struct live_execs;
struct live_grants;
struct live_image;
struct live_net;
struct live_steps;
struct ending;
struct rest_wait;
struct trimming;
struct event_watch;
struct service_execs;
struct service_grants;
struct service_images;
struct service_models;
struct service_net;
struct service_review;
struct service_steps;
struct service_timers;
struct service_backups;
struct service_volumes;

/* Progress of adopting a machine of an earlier daemon. A new machine is `heard` at once. */
struct reach {
    bool heard;         /* the commands of the machine are known */
    bool calling;       /* adoption or a query is in progress */
    bool awaited;       /* the start of the daemon waits for this machine, for a limited time */
    bool between_roots; /* taken over from another store: its last step may be unfinished */
    unsigned tries;
    size_t unknown; /* commands added that were not in the store: a guest may report any number */
    uint64_t again_ms; /* time of the next try; 0: wait for an event */
    uint64_t since_ms;
    char why[200];            /* why the machine is not reached */
    service_machine_fn *told; /* callback of the request that took it over, or NULL */
    void *told_arg;
};

/* A machine that has not ended. It is in service.machines as soon as its row is written. */
struct live {
    struct service *service;
    struct machine_row row;
    struct machine *machine; /* NULL while it is created or adopted */
    uint32_t watched;        /* paths watched with inotify, which a new root would invalidate */
    uint32_t open;           /* terminals and streams with a client */
    bool changing;           /* an operation on the whole machine is in progress */
    bool drifted;
    bool unhealthy;      /* at the last check (health/health.h) */
    uint64_t kills_seen; /* processes killed for memory until then */
    uint64_t disk_bytes; /* disk space of its own, as last measured */
    uint32_t refs;
    struct reach reach;
    struct ending *ending; /* set once the machine is ending */
    uint64_t expires_ms;   /* when its ttl ends, by boot_ms(); 0: never */
    struct idle_state idle;
    uint64_t idle_check_ms;  /* time of the next check for idleness */
    struct commit_lane lane; /* commits that wait to be saved */
    bool dormant;            /* has no box; waits to be resumed */
    bool ephemeral;          /* its box ends with this daemon at the latest */
    bool unwritten;          /* it runs, but its row still says that it is being created */
    bool resting;            /* a pause or stop is in progress */
    bool left_box;           /* a box that the daemon before should have ended is being ended */
    char paused_why[200];    /* why it was paused in memory; empty: not known (pause.h) */
    bool dozing;             /* it falls asleep: asleep.c uses this and the next four */
    bool doze_asked;         /* the host was asked to end the box */
    uint64_t unused_ms;      /* when it was last seen in use */
    uint64_t doze_again_ms;  /* time of the next try after a failure */
    struct loop_call doze_call;
    struct rest_wait *rest; /* requests that wait for the end of an operation (rest.h) */
    struct loop_call rest_call;
    char *cwd; /* start directory (grants/start_dir.c); NULL: home, or that of the image */
    struct live_image *image; /* its image; NULL: the host's */
    struct gate_machine *gate;
    /* State of each folder; the structs are in inner.h of the folder. */
    struct live_calls *calls; /* NULL: no program in the machine has called yet */
    struct live_execs *execs;
    struct live_steps *steps;
    struct live_net *net;
    struct live_grants *grants;
    struct {
        bool unsaved; /* the taint is not yet in the store or in all sharing machines */
        bool untold;  /* the taint is not in the journal yet */
        bool joining; /* taint_join() is in progress: prevents recursion */
    } taint;          /* service/taint.h */
    struct http_server *model_server; /* NULL: it never used a model */
    bool releasing;                   /* idle, and being checked for changed files */
    struct texts env;                 /* environment of the row as pairs; points into env_json */
    void *env_json;
    struct tool_counts tool_calls;
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
    bool leaving; /* the daemon ends, and its clients may come again to the next one */
    const struct machine_driver *driver; /* driver of boxes, the only kind of machine */
    struct machine_host *host;
    /* State of each folder; the structs are in inner.h of the folder. */
    struct service_execs *execs;
    struct service_steps *steps;
    struct service_grants *grants;
    struct service_images *images;
    struct service_models *models;
    struct service_net *net;
    struct service_review *review;
    struct service_timers *timers;
    struct service_volumes *volumes;
    struct service_backups *backups;
    struct map machines;            /* id -> struct live */
    struct console *console;        /* keys of browsers (console/console.h) */
    struct orders *orders;          /* shipments asked for in the console (console/orders.h) */
    struct map tickets;             /* hash -> struct ticket (tickets.h) */
    char address[128], socket[128]; /* where clients reach the API */
    struct loop_timer *tick;
    struct trimming *trimming; /* set while old data is deleted */
    uint64_t trim_again_ms, changesets_look_ms;
    struct desktop_act *desktops; /* operations on desktops, in progress (desktop/desktop.c) */
    struct desktop_watch *desktop_watches; /* viewers of desktops (desktop/watch.c) */
    struct event_watch *watches, *walk;
    uint32_t watch_ids;
    char last_owner[STORE_NAME_SIZE]; /* owner of the last caller; empty: none yet */
    uid_t last_uid;
    struct loop_call events_call; /* notifies watchers after the commit */
    uint64_t hits[HIT_COUNT];     /* enum limit_hit */
    loop_fn *ready;
    void (*broken)(const struct err *why);
    void *ready_arg;
    size_t dozing;         /* machines that fall asleep */
    size_t adopting;       /* number of machines that the start still waits for */
    struct map strays;     /* id -> struct stray: boxes that this daemon must not touch */
    struct id_list wanted; /* machines that have not ended, until they are adopted */
    bool listed;           /* the boxes of the host are known, and unwanted ones removed */
    bool listing;          /* the host is being asked for its boxes */
    unsigned list_tries;
    uint64_t list_again_ms;
    struct disk_hold *holds;
    bool store_full, store_scarce; /* last reported state of the disk (room.c) */
    bool unsigned_told;            /* the failure to sign the journal was logged */
    struct tool_counts tool_calls;
};

/* ---- write.c: journal and events ---- */

/*
 * Writes the intent of an operation to the journal, before the operation. If that fails, the
 * operation must not be done. who: NULL for the daemon itself.
 */
int note_intent(struct service *s, const struct caller *who, const struct journal_record *what,
                uint64_t *ret_seq, struct err *err);
/*
 * Writes the result of an operation to the journal, after the operation. If that fails, it only
 * logs an error, because the operation is already done.
 */
void note_result(struct service *s, const struct caller *who, const struct journal_record *what,
                 uint64_t intent, const struct err *failed);

/* Returns a journal record with the fields that most operations on a machine need. */
struct journal_record verb_record(const char *verb, const struct live *l);

/*
 * event_put() stores an event. events_tell() notifies watchers later, from the loop; an event of a
 * transaction is seen only after its commit. json: an object or NULL.
 */
void events_tell(void *service);
int event_put(struct service *s, const char *owner, const char *machine, const char *type,
              const char *json, struct err *err);
/* Like event_put(), but a failure is only logged. */
void event_tell(struct service *s, const char *owner, const char *machine, const char *type,
                const char *json);

/* ---- auth.c ---- */

bool may_see(const struct caller *who, const char *owner);

/* ---- live.c: machines that have not ended ---- */

struct live *live_new(struct service *s, struct machine_row *row); /* takes the row's texts */
void live_ref(struct live *l);
void live_unref(struct live *l);
/*
 * Writes to the row that the machine runs, in the caller's transaction, which clears l->unwritten
 * after its commit.
 */
int live_put_running(struct live *l, struct err *err);
/* Ends an operation and allows the next one, unless the machine is ending. */
void live_verb_over(struct live *l);
void live_view(const struct live *l, struct machine_view *ret);
/* Fills the view of an ended machine. */
void machine_row_view(const struct machine_row *row, struct machine_view *ret);

/* Returns the defaults of commands from the image; NULL: the machine uses the host's image. */
const struct exec_defaults *live_defaults(const struct live *l);
/* Where commands of a machine other than a cell start. */
const char *live_start_dir(const struct live *l);
/* The user that commands of the machine run as, who owns files that are copied to it. */
void live_user(const struct live *l, uint32_t *ret_uid, uint32_t *ret_gid);

/* Sets the time until the ttl ends; 0: never. */
void live_set_lifetime(struct live *l, uint64_t left_ms);
/* The time after which the box itself ends; 0: never. The daemon alone pauses machines. */
uint64_t live_deadline(const struct machine_row *row, uint64_t left_ms);
/* Milliseconds until the ttl ends, at least 1; 0: no ttl. */
uint64_t live_time_left(const struct live *l);
/* True if the ttl ended at least `ago_ms` ago; negative: if it ends within -ago_ms. */
bool live_is_over(const struct live *l, int64_t ago_ms);

/* Finds a machine that the caller may see and that is in the required state. */
enum live_need { LIVE_ANY, LIVE_RUNNING, LIVE_UP /* running or paused */ };
struct live *live_find(struct service *s, const struct caller *who, const char *ref,
                       enum live_need need, struct err *err);

/* live_set_env() changes environment variables of commands in one write. value NULL: unset. */
struct env_change {
    const char *name, *value;
};
int live_set_env(struct live *l, const struct env_change *changes, size_t n, struct err *err);
/*
 * live_env_copy() saves the environment before a write; live_put_env() restores it after a
 * rollback.
 */
char *live_env_copy(const struct live *l);
void live_put_env(struct live *l, char *text); /* takes text */

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

/*
 * Checks the quotas of owner and token. before: NULL for a new machine. If a quota is set, every
 * machine must have a limit of that kind.
 */
int quota_check(struct service *s, const struct caller *who, const struct machine_row *before,
                const struct machine_row *row, struct err *err);

/*
 * Reserves all disk space that the quotas of owner and token leave; fails with ERR_LIMIT if none is
 * left. h->who must be set. quota_release() may be called in any case.
 */
int quota_hold(struct service *s, struct disk_hold *h, struct err *err);
/* Reserves h->bytes, or fails with ERR_LIMIT. h->who and h->bytes must be set. */
int quota_reserve(struct service *s, struct disk_hold *h, struct err *err);
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
/* True if the machine's first process was killed and it is becoming stopped at its durable step. */
bool live_falls(const struct live *l);
/* Called by the tick: retries an end that failed. */
void live_end_again(struct live *l, uint64_t now_ms);

/* ---- risks.c ---- */

enum { RISKS_SIZE = 640 };
/* True if the machine has private data, untrusted content and network access at once. */
bool risks_find(struct live *l, char ret[RISKS_SIZE]);
/*
 * Like risks_find(), after a change; a risk that is gone is taken out of the machine's row, and a
 * new one is also written to the machine's row and the journal, and sent as
 * an event.
 */
bool risks_note(struct live *l, char ret[RISKS_SIZE]);

/* ---- service.c ---- */

/* The `done` of operations that the daemon itself starts: logs a failure. */
void ignore_machine(void *arg, const struct machine_view *view, const struct err *err);

/* Returns the delay after this many failures: short at first, at most half a minute. */
uint64_t back_off_ms(unsigned tries);

/* ---- create.c ---- */

/* Returns the limits of a row that are not defaults; 0 for a default. */
struct machine_limits row_limits(const struct conf *conf, const struct machine_row *row);

/* ---- trim.c ---- */

/* Called by the tick: deletes old data, a piece at a time. */
void trim_look(struct service *s, uint64_t now_ms);

/* ---- room.c ---- */

/* Called by the tick: checks the free space of the store's disk, and warns. */
void room_look(struct service *s);
bool room_is_scarce(const struct store_room *room);

/* ---- adopt.c ---- */
/*
 * Adopts all machines of the store. If their list cannot be read completely, it fails and changes
 * nothing.
 */
int adopt_all(struct service *s, struct err *err);
/*
 * Adopts a machine taken over from another store. `done` is called once the machine is reached, or
 * after a few seconds.
 */
void adopt_taken(struct live *l, service_machine_fn *done, void *arg);
/* Called by the tick: retries machines that were not reached. */
void adopt_again(struct service *s, uint64_t now_ms);
void adopt_look(struct live *l, uint64_t now_ms);
/* Call it when the guest is connected again: asks for the commands if they are not known yet. */
void adopt_back(struct live *l);
