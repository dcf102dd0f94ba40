/*
 * Rows of machines: the wanted state. The spawner knows what really exists.
 *
 * Strings in a row that was read belong to the row (machine_row_done()); rows passed in are only
 * read.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/capability.h"
#include "base/sha256.h"
#include "store/db.h"
#include "store/owners.h"

/* The numbers are stored in the database. MACHINE_STATE_LAST is the largest one. */
enum machine_state {
    MACHINE_CREATING = 1, /* not acknowledged to the client yet: deleted after a crash */
    MACHINE_RUNNING,
    MACHINE_PAUSED,
    MACHINE_STOPPED, /* no process; its files are kept */
    MACHINE_ENDING,  /* its end is decided, but parts may still exist */
    MACHINE_ENDED,
    MACHINE_STATE_LAST = MACHINE_ENDED,
};

/*
 * Who put a machine into its state. It decides for whom a paused or stopped machine wakes
 * (service/rest.h).
 */
enum state_by {
    STATE_BY_OTHER, /* not known, or nobody: a new machine, or the host restarted */
    STATE_BY_IDLE,  /* the idle timeout */
    STATE_BY_OWNER,
    STATE_BY_ADMIN, /* an administrator who does not own the machine */
    STATE_BY_LAST = STATE_BY_ADMIN,
};

/* IDLE_RELEASE ends a machine that has no changes of its own, and stops any other. */
enum idle_action {
    IDLE_PAUSE = 1,
    IDLE_STOP,
    IDLE_DESTROY,
    IDLE_RELEASE,
    IDLE_ACTION_LAST = IDLE_RELEASE,
};
/* TTL_PAUSE: at the end of its ttl a machine is paused, and has no ttl from then on. */
enum ttl_action { TTL_DESTROY, TTL_PAUSE, TTL_ACTION_LAST = TTL_PAUSE };
enum step_policy { STEPS_MANUAL = 1, STEPS_EVERY, STEPS_RISKY, STEP_POLICY_LAST = STEPS_RISKY };

/* Return the name of a number, such as "running"; NULL for an unknown number. */
const char *machine_state_name(enum machine_state state);
const char *state_by_name(enum state_by by); /* NULL for STATE_BY_OTHER */
const char *idle_action_name(enum idle_action action);
const char *step_policy_name(enum step_policy policy);
const char *ttl_action_name(enum ttl_action action);
/* Return the number of a name. ERR_INVALID names the unknown text and the allowed names. */
int machine_state_parse(const char *name, enum machine_state *ret, struct err *err);
int idle_action_parse(const char *name, enum idle_action *ret, struct err *err);
int step_policy_parse(const char *name, enum step_policy *ret, struct err *err);

struct machine_row {
    char id[ID_SIZE];
    char owner[STORE_NAME_SIZE]; /* must be in the table of owners */
    char token[ID_SIZE];         /* id of the API token that created the machine; empty: none */
    char name[STORE_NAME_SIZE];  /* unique among the owner's live machines; or empty */
    char kind[16];               /* "box", "cell" or "vm" */
    char image[STORE_NAME_SIZE];
    enum machine_state state;
    enum state_by state_by;
    int64_t created_ms; /* times are in milliseconds since 1970; 0: not yet */
    int64_t ended_ms;
    char end_reason[STORE_REASON_SIZE];
    uint64_t mem_bytes;
    uint64_t cpu_milli;
    uint64_t pids;
    uint64_t disk_bytes;
    uint64_t fuel;                   /* cell: limit of each command; box: 0 */
    uint64_t fuel_rate;              /* cell: limit of fuel per second of each command; 0: none */
    char allowed[CAPABILITIES_SIZE]; /* cell: capabilities of its programs, such as "log,args" */
    uint64_t ttl_ms;                 /* total lifetime from created_ms; 0: no limit */
    uint64_t idle_ms;                /* 0: never idle */
    enum idle_action idle_action;
    enum step_policy steps;
    uint64_t incarnation; /* identifies the guest (process 1) of the machine; 0: not known yet */
    char key[STORE_KEY_SIZE];           /* idempotency key of the request, or empty */
    uint8_t request_hash[SHA256_BYTES]; /* hash of the body of that request */
    uint32_t on_ttl;                    /* enum ttl_action */
    uint64_t token_generation;          /* raised to revoke the tokens of the machine */
    char *metadata;                     /* one JSON object; NULL: {} */
    char *env;                          /* one JSON object; NULL: {} */
    char *warnings;                     /* warnings from the creation of the machine; NULL: none */
};

/* Sets row->on_ttl. */
int on_ttl_parse(const char *name, struct machine_row *row, struct err *err);

struct machine_list {
    struct machine_row *rows;
    size_t count;
    size_t damaged; /* rows that could not be read, and are left out */
    uint64_t last;  /* number of the last row, damaged or not */
};

/* A field that is NULL, 0 or empty matches all machines. */
struct machine_filter {
    const char *owner;
    const char *name;
    const char *kind;
    const char *meta_key; /* with meta_value: the metadata has this key with this value */
    const char *meta_value;
    unsigned states; /* a bit 1 << state for each wanted state; 0: all that have not ended */
    uint64_t before; /* for the next page: `last` of the previous page; 0: start with the newest */
    size_t limit;    /* 1 to STORE_PAGE_MAX; 0: 100 */
};
#define MACHINE_STATES_ALL 0x7eu

void machine_row_done(struct machine_row *row);
void machine_list_done(struct machine_list *list);

/*
 * Adds a machine, unless the owner used row->key (an idempotency key) before. Then the same
 * request hash puts the id of the earlier machine into ret_existing; another hash is ERR_INVALID.
 * Otherwise ret_existing is empty. ERR_EXISTS: the name is taken. ERR_NOT_FOUND: unknown owner.
 */
int store_machine_add(struct store *s, const struct machine_row *row, char ret_existing[ID_SIZE],
                      struct err *err);

/*
 * Returns 1 and the id of the machine that the owner created with this idempotency key; 0: none.
 * ERR_INVALID: the key was used for a request with another hash.
 */
int store_machine_by_key(struct store *s, const char *owner, const char *key,
                         const uint8_t hash[SHA256_BYTES], char ret_id[ID_SIZE], struct err *err);

int store_machine_get(struct store *s, const char *id, struct machine_row *ret, struct err *err);

/*
 * Finds a machine by id, by name among the owner's live machines, or by the first characters of an
 * id, at least 3. owner NULL: of any owner. ERR_NOT_FOUND, or ERR_INVALID if several match.
 */
int store_machine_find(struct store *s, const char *owner, const char *text,
                       struct machine_row *ret, struct err *err);

/* Lists machines, the last added first. A damaged row is skipped and counted. */
int store_machine_list(struct store *s, const struct machine_filter *filter,
                       struct machine_list *ret, struct err *err);

/* Writes all members of the row except id, owner, token, image, created_ms, key and hash. */
int store_machine_update(struct store *s, const struct machine_row *row, struct err *err);

/* These two functions write only these columns: cheap, for frequent calls. */
int store_machine_set_state(struct store *s, const char *id, enum machine_state state,
                            enum state_by by, struct err *err);
int store_machine_set_running(struct store *s, const char *id, uint64_t incarnation,
                              struct err *err);
/* Writes row->token_generation, which store_machine_update() leaves alone. */
int store_machine_set_tokens(struct store *s, const char *id, uint64_t generation, struct err *err);
/* Frees the idempotency key: repeating the request creates a new machine. */
int store_machine_unkey(struct store *s, const char *id, struct err *err);
/* Sets the state MACHINE_ENDED, the time and the reason of the end. */
int store_machine_end(struct store *s, const char *id, int64_t ended_ms, const char *reason,
                      struct err *err);

/*
 * Lists the ids of machines that ended before a time, oldest first, at most STORE_PAGE_MAX.
 * store_machine_trim() with the same arguments deletes their rows and those of their commands. Call
 * both until none is left.
 */
struct id_list {
    char (*ids)[ID_SIZE];
    size_t count;
};
int store_machine_old(struct store *s, int64_t ended_before_ms, size_t most, struct id_list *ret,
                      struct err *err);
/* Lists the ids of all machines that have not ended, also if the rest of the row is damaged. */
int store_machine_ids(struct store *s, struct id_list *ret, struct err *err);
void id_list_done(struct id_list *list);
int store_machine_trim(struct store *s, int64_t ended_before_ms, size_t most, size_t *ret_count,
                       struct err *err);

/*
 * Sums up what the machines and images of an owner (token NULL) or of a token use. Ended machines
 * use nothing, and stopped ones no CPU and memory. lifetime_ms stays 0.
 */
int store_quota_used(struct store *s, const char *owner, const char *token, struct quota *ret,
                     struct err *err);

/* Counts machines by state: counts[enum machine_state]. owner NULL: of all owners. */
int store_machine_counts(struct store *s, const char *owner, uint64_t counts[MACHINE_ENDED + 1],
                         struct err *err);
