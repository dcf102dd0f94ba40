/*
 * The inside of the service: what its files share about itself and each live machine. Only for
 * src/service. State of one subfolder alone is not here but in its inner.h.
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

/* How far a machine that another daemon made is known. One of our own making is heard at once. */
struct reach {
    bool heard;         /* its commands are known */
    bool calling;       /* it is being adopted, or asked for its commands */
    bool awaited;       /* the daemon is not ready before it was heard, or a while has passed */
    bool between_roots; /* perhaps: it was taken over, and nobody knows what was done to it last */
    unsigned tries;
    size_t unknown;    /* commands of it that were added: its guest may tell of any number */
    uint64_t again_ms; /* when to try again; 0: not before something happens */
    uint64_t since_ms;
    char why[200];            /* it is not */
    service_machine_fn *told; /* who took it over, and waits for it; NULL: nobody */
    void *told_arg;
};

/* A machine that has not ended. In the table from the moment its row is written. */
struct live {
    struct service *service;
    struct machine_row row;
    struct machine *machine; /* NULL while it is made or adopted */
    uint32_t watched;        /* paths, by inotify: a new root would leave them behind */
    uint32_t open;           /* terminals and streams that are followed */
    bool changing;           /* a verb on the whole machine is under way */
    bool drifted;
    uint64_t disk_bytes; /* that are its own, when it was last looked at */
    uint32_t refs;
    struct reach reach;
    struct ending *ending; /* how it ends, once it does */
    uint64_t expires_ms;   /* when its lifetime is over, on the clock of boot_ms(); 0: never */
    struct idle_state idle;
    uint64_t idle_check_ms;   /* when to look again */
    struct commit_lane lane;  /* what was done to it and is not written down */
    bool dormant;             /* it was found again without a box, and waits to be resumed */
    char *cwd;                /* of commands: a granted directory, or NULL */
    struct live_image *image; /* what it starts from; NULL: the host's */
    struct gate_machine *gate;
    /* What each folder keeps of it for itself: the struct is in the folder's inner.h. */
    struct live_execs *execs;
    struct live_steps *steps;
    struct live_net *net;
    struct live_grants *grants;
    struct {
        bool unsaved; /* its policy says so, but not yet the store, or not for all sharers */
        bool untold;  /* nor the journal */
        bool joining; /* on its way to those who share with it, some of whom lead back */
    } taint;          /* service/taint.h */
    struct http_server *model_server; /* NULL: it never asked a model */
    bool releasing;   /* it is idle, and looked at whether it holds anything of its own */
    struct texts env; /* of the row, as pairs; points into env_json */
    void *env_json;
};

/* Disk that an image in the making may take, so that nobody else gets it meanwhile. */
struct disk_hold {
    struct disk_hold *next;
    const struct caller *who;
    uint64_t bytes; /* 0: there is no quota */
};

struct service {
    struct loop *loop;
    struct store *store;
    struct commits *commits;
    const struct conf *conf;
    const struct place *place;
    const struct machine_driver *driver; /* of boxes; further kinds add a table here */
    struct machine_host *host;
    /* What each folder keeps for itself: the struct is in the folder's inner.h. */
    struct service_execs *execs;
    struct service_steps *steps;
    struct service_grants *grants;
    struct service_images *images;
    struct service_models *models;
    struct service_net *net;
    struct service_review *review;
    struct map machines; /* id -> struct live */
    struct loop_timer *tick;
    struct trimming *trimming; /* what is old is being forgotten */
    uint64_t trim_again_ms, changesets_look_ms;
    struct event_watch *watches, *walk;
    uint32_t watch_ids;
    char last_owner[STORE_NAME_SIZE]; /* who asked last; empty: nobody yet */
    uid_t last_uid;
    struct loop_call events_call; /* tells the watchers, once what they read is committed */
    uint64_t hits[HIT_COUNT];     /* enum limit_hit */
    loop_fn *ready;
    void (*broken)(const struct err *why);
    void *ready_arg;
    size_t adopting;       /* machines that did not answer yet */
    struct map strays;     /* id -> struct stray: boxes that are left alone */
    struct id_list wanted; /* machines that have not ended, until they are adopted */
    bool listed;           /* what the host has is known, and what nobody wants removed */
    bool listing;          /* that is being asked */
    unsigned list_tries;
    uint64_t list_again_ms;
    struct disk_hold *holds;
    bool store_full, store_scarce; /* as it was told last; room.c */
    bool unsigned_told;            /* the journal could not be signed, and that was logged */
};

/* ---- write.c: what is written down about a verb ---- */

/*
 * Before the effect: who (NULL: the daemon itself) wants which verb on what. A verb whose intent
 * cannot be written is not done.
 */
int note_intent(struct service *s, const struct caller *who, const struct journal_record *what,
                uint64_t *ret_seq, struct err *err);
/* After it. A result that cannot be written is logged: the effect is there already. */
void note_result(struct service *s, const struct caller *who, const struct journal_record *what,
                 uint64_t intent, const struct err *failed);

/* What most verbs on a whole machine say. */
struct journal_record verb_record(const char *verb, const struct live *l);

/*
 * Keeps an event, and tells the watchers once the stack has unwound: in a transaction it is there
 * only if that is committed. json: an object or NULL.
 */
void events_tell(void *service);
int event_put(struct service *s, const char *owner, const char *machine, const char *type,
              const char *json, struct err *err);
/* The same, logged when it fails. */
void event_tell(struct service *s, const char *owner, const char *machine, const char *type,
                const char *json);

/* ---- who may (auth.c) ---- */

bool may_see(const struct caller *who, const char *owner);

/* ---- live.c: what a living machine is ---- */

struct live *live_new(struct service *s, struct machine_row *row); /* takes the row's texts */
void live_ref(struct live *l);
void live_unref(struct live *l);
/* Another may begin, unless it ends: that is the last one. */
void live_verb_over(struct live *l);
void live_view(const struct live *l, struct machine_view *ret);
void machine_row_view(const struct machine_row *row, struct machine_view *ret); /* one that ended */

/* Who its commands run as; NULL: as on the host's image. */
const struct exec_defaults *live_defaults(const struct live *l);

/* Its lifetime ends so long from now; 0: never. */
void live_set_lifetime(struct live *l, uint64_t left_ms);
/* At least 1; 0: it has none. */
uint64_t live_time_left(const struct live *l);
/* Its lifetime ended at least so long ago; a negative time: it is about to. */
bool live_is_over(const struct live *l, int64_t ago_ms);

/* A machine that this caller may see, if it is fit for what is wanted of it. */
enum live_need { LIVE_ANY, LIVE_RUNNING, LIVE_UP /* running or paused */ };
struct live *live_find(struct service *s, const struct caller *who, const char *ref,
                       enum live_need need, struct err *err);

/* Variables of its commands, in one write of its row; a value of NULL: it goes. */
struct env_change {
    const char *name, *value;
};
int live_set_env(struct live *l, const struct env_change *changes, size_t n, struct err *err);
/* For a write that is rolled back: what they were, and as they were. */
char *live_env_copy(const struct live *l);
void live_put_env(struct live *l, char *text); /* takes it */

struct live *live_by_id(struct service *s, const struct caller *who, const char *id);
/* Also one that has ended: `gone` says more than `not_found`. */
int live_row_find(struct service *s, const struct caller *who, const char *ref,
                  struct machine_row *ret, struct err *err);
/* `busy`, and in which state it is. */
int live_state_error(const struct live *l, struct err *err);

/* ---- machines.c ---- */

/* The number of the last row of a page: from 1 to max. */
int list_cursor(const char *text, uint64_t max, uint64_t *ret, struct err *err);

/* ---- quota.c ---- */

/* before: NULL for a new machine. A quota that is set needs every machine to have that limit. */
int quota_check(struct service *s, const struct caller *who, const struct machine_row *before,
                const struct machine_row *row, struct err *err);

/*
 * Holds all the disk that the quotas of an owner and its token leave; `limit`: nothing is left.
 * h->who is set; quota_release() may be called in any case.
 */
int quota_hold(struct service *s, struct disk_hold *h, struct err *err);
void quota_release(struct service *s, struct disk_hold *h);

/* ---- ending.c ---- */

/* Takes the driver's machine over and listens for its end. */
void live_attach(struct live *l, struct machine *m);

/*
 * The machine goes, for a reason; `done` (may be NULL) when nothing is left of it. One that is
 * ending already keeps its first reason, and everybody is told when it is over.
 */
void live_end(struct live *l, const char *reason, service_done_fn *done, void *arg);
void ending_free(struct ending *e);
/* Its first process was killed, and it will be stopped as its last durable step. */
bool live_falls(const struct live *l);
/* From the tick: an end that failed is tried again. */
void live_end_again(struct live *l, uint64_t now_ms);

/* ---- risks.c ---- */

enum { RISKS_SIZE = 640 };
/* True: the machine has private data, texts of strangers and a way out at once. */
bool risks_find(struct live *l, char ret[RISKS_SIZE]);
/* The same; a new risk is written to the machine's row and the journal, and is told as an event. */
bool risks_note(struct live *l, char ret[RISKS_SIZE]);

/* ---- service.c ---- */

/* For verbs the daemon itself asks for: logs what failed. */
void ignore_machine(void *arg, const struct machine_view *view, const struct err *err);

/* When to try again after so many failures: sooner at first, at most every half minute. */
uint64_t back_off_ms(unsigned tries);

/* ---- create.c ---- */

/* Limits of a row that are more than its kind's own. */
struct machine_limits row_limits(const struct conf *conf, const struct machine_row *row);

/* ---- trim.c ---- */

/* From the tick: forgets what is old, a piece at a time. */
void trim_look(struct service *s, uint64_t now_ms);

/* ---- room.c ---- */

/* From the tick: looks at the room on the store's disk, and warns. */
void room_look(struct service *s);
bool room_is_scarce(const struct store_room *room);

/* ---- adopt.c ---- */
/* Fails when the list of machines cannot be read whole: then nothing is touched. */
int adopt_all(struct service *s, struct err *err);
/* One that was taken over from another store; done when it was reached, or after a while. */
void adopt_taken(struct live *l, service_machine_fn *done, void *arg);
/* From the tick: what was not reached or not heard is tried again when its time has come. */
void adopt_again(struct service *s, uint64_t now_ms);
void adopt_look(struct live *l, uint64_t now_ms);
/* The connection is there again: what was not heard before it broke is asked again. */
void adopt_back(struct live *l);
