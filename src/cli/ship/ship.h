/*
 * Functions that all kinds of shipping share: the change set, and the records for the journal.
 *
 * Nothing is written to the target before the owner has agreed and the journal has the intent.
 */
#pragma once

#include "cli/client.h"
#include "cli/options.h"
#include "review/parcel.h"
#include "review/slices.h"

struct ship_options {
    struct option_list only, hunks;
    const char *comment, *patch, *volume, *target;
    bool yes, pick, mirror, undo, uncommitted, stat, list, all, json, help;
};

struct ship {
    const struct ship_options *options;
    struct client *client;
    json_t *set;       /* the change set as the daemon describes it */
    char target[4096]; /* path of the target directory, without links */
    int dir;           /* target directory; -1: none, only show the changes */
    struct parcel parcel;
    struct baseline base;
    bool cow;         /* a volume of mode cow: only its changes are shipped */
    bool among;       /* one of several change sets, so --only may match only another one */
    size_t left;      /* files that were not replaced, because the owner had changed them */
    json_t *database; /* the changes in a database when it was frozen; NULL: not a database */
    json_t **told;    /* --json: receives the result; NULL: print the result */
};

/* Frees everything except the client. */
void ship_done(struct ship *s);

/* Finds or freezes the change set. word: MACHINE, MACHINE:PATH, or the id of a change set. */
int ship_find_set(struct ship *s, const char *word, struct err *err);
/* A directory of a machine to freeze as a change set. */
struct ship_from {
    const char *machine;
    const char *path;  /* NULL: /outbox */
    const char *slice; /* path of the grant that it belongs to; NULL: the same path */
    bool changes_only; /* freeze only what the machine changed, if that is known */
};
int ship_freeze(struct ship *s, const struct ship_from *from, struct err *err);
/* Downloads and maps the archive of the change set, and checks its hash. */
int ship_fetch(struct ship *s, char **ret, size_t *ret_size, struct err *err);
/* A record for the journal. */
struct ship_words {
    const char *action; /* ship, shipped, undo, undone */
    const char *hash;   /* SHA-256 of the list of changes, with hashes and paths */
    const char *now;    /* state of the files now, their new baseline; or NULL */
    long files;
    long long intent; /* shipped, undone: number of the record of ship, undo */
};
/* Writes the record to the journal, on disk. ret_record receives its number. */
int ship_note(struct ship *s, const struct ship_words *w, long long *ret_record, struct err *err);

/*
 * Compares a grant or a change set with its directory, shows the changes, and ships them with
 * --yes. word: as for ship_find_set(). Returns the exit status, or -1.
 */
int ship_review(struct ship *s, const char *word, struct err *err);
/*
 * Opens the target directory. s->target receives the path of what was opened, so a link that is
 * changed meanwhile cannot lead elsewhere than --target says.
 */
int ship_open(struct ship *s, const char *dir, struct err *err);

/*
 * Shows the commits of a repository, and with --yes fetches them into branch carrel/MACHINE or
 * writes them as a patch. Returns 1 if neither the change set nor the target is a granted
 * repository.
 */
int ship_repo(struct ship *s, const char *word, struct err *err);
/* Restores the branch. Returns 1 if no branch was shipped from this change set. */
int ship_repo_undo(struct ship *s, const char *id, struct err *err);

/* Ships the changes in the volume --volume of a machine. dir NULL: refused, with the reason. */
int ship_volume(struct ship *s, const char *machine, const char *dir, struct err *err);

/* ---- ship_pick.c ---- */

/* Replaces the new text by the owner's file with only the hunks `words` (1,4-6) applied. */
int ship_take_hunks(const struct ship *s, struct parcel_item *i, const char *words,
                    struct err *err);
/* Asks for each wanted file which part of it is shipped. */
int ship_pick(struct ship *s, struct err *err);

/* ---- ship_list.c ---- */

/* Lists the change sets that wait for a decision, or with --all also the others. machine NULL: of
 * all machines. */
int ship_list_none(const struct ship *s);
int ship_list(struct ship *s, const char *machine, struct err *err);

/* ---- ship_return.c ---- */

/* Continues the newest run of the machine, with the comment as its next message. */
int ship_send_back(struct ship *s, const char *word, struct err *err);

/* ---- ship_db.c: a change set of a database, which is one file ---- */

/* Reads the changes of a database. Call it before the parcel (the list of changed files) is
 * opened. It does nothing if the change set is not a database. */
int ship_db_prepare(struct ship *s, struct err *err);
/* Refuses a database that another process has open on this host; drops a change without effect. */
void ship_db_judge(struct ship *s);
/* Refuses to undo a database that another process has open. Call it before an undo. */
int ship_db_check(const struct ship *s, struct err *err);
