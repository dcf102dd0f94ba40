/*
 * Functions that all kinds of shipping share: the change set, and the records for the journal.
 *
 * Nothing is written to the target before the owner has agreed and the journal has the intent.
 */
#pragma once

#include "cli/client.h"
#include "cli/options.h"
#include "review/parcel.h"

struct ship_options {
    struct option_list only, hunks;
    const char *comment, *patch;
    bool yes, mirror, undo, stat, json, help;
};

struct ship {
    const struct ship_options *options;
    struct client *client;
    json_t *set; /* the change set as the daemon tells it */
    char target[4096];
    int dir; /* -1: it is only looked at, beside nothing */
    struct parcel parcel;
    struct baseline base;
    bool among;       /* one of several: what --only names may be in another */
    size_t left;      /* alone: their owner's work, seen only when they were to take their place */
    json_t *database; /* of one: what differs in it, as it was frozen; or NULL */
    json_t **told;    /* with --json: what was looked at, instead of printing it; NULL: print it */
};

/* All but the client. */
void ship_done(struct ship *s);

/* MACHINE, MACHINE:PATH, or the id of one that is frozen. */
int ship_find_set(struct ship *s, const char *word, struct err *err);
/* A directory of the machine, NULL: /outbox; slice: what it is the work on, NULL: the same. */
int ship_freeze(struct ship *s, const char *machine, const char *path, const char *slice,
                struct err *err);
/* The archive, mapped; its hash is what the daemon said. */
int ship_fetch(struct ship *s, char **ret, size_t *ret_size, struct err *err);
/* What the journal is told. */
struct ship_words {
    const char *action; /* ship, shipped, undo, undone */
    const char *hash;   /* of the list of changes, hashes and paths */
    const char *now;    /* what the files are now, as a baseline; or NULL */
    long files;
    long long intent; /* of shipped and undone */
};
/* On the disk when this returns. */
int ship_note(struct ship *s, const struct ship_words *w, long long *ret_record, struct err *err);

/*
 * What was handed over, or frozen, beside the directory it belongs to: shown, and with --yes let
 * out. word: as ship_find_set(). The exit status, or -1.
 */
int ship_review(struct ship *s, const char *word, struct err *err);
/* The directory that it is meant for. */
int ship_open(struct ship *s, const char *dir, struct err *err);

/*
 * If the change set is of a repository, or the target is one that the machine was handed: its
 * commits, looked at, and with --yes fetched into the branch carrel/MACHINE, or written as a patch.
 * 1: it is none; else 0 or -1.
 */
int ship_repo(struct ship *s, const char *word, struct err *err);
/* Takes the branch back. 1: it was none that was shipped so. */
int ship_repo_undo(struct ship *s, const char *id, struct err *err);

/* ---- ship_return.c ---- */

/* The newest run of the machine goes on, with the comment as its next message. */
int ship_send_back(struct ship *s, const char *word, struct err *err);

/* ---- ship_db.c: a change set of a database, which is one file ---- */

/* Before the parcel is opened; of another change set nothing is done. */
int ship_db_prepare(struct ship *s, struct err *err);
/* Then: one that somebody has open on the owner's side is refused, and one that says the same is
 * no change. */
void ship_db_judge(struct ship *s);
/* Before it is taken back. */
int ship_db_check(const struct ship *s, struct err *err);
