/*
 * Entries of the file system as E2B describes them. An entry of a symlink has the type and mode of
 * its target, so it takes more than one message to the machine.
 */
#pragma once

#include "api/e2b/envd_inner.h"

struct entry {
    char *path;    /* absolute, not resolved */
    char *target;  /* where a symlink leads at last, or where that ends; NULL: not a symlink */
    uint32_t type; /* S_IFMT of the target; 0: there is none */
    uint32_t mode, own_mode; /* of the target, and of the entry itself */
    uint32_t uid, gid;
    uint64_t size, mtime_ns;
    uint64_t atime_ns, ctime_ns; /* 0: not known */
    json_t *metadata;            /* NULL: none */
};

void entry_done(struct entry *e);
/* Takes over the path. */
void entry_set(struct entry *e, char *path, const struct msg_entry *m);
/* Writes the object; name: NULL in an array. */
void entry_put(struct jot *j, const char *name, const struct envd_call *c, const struct entry *e);

/* The same for the files of a volume: times, the owner as a number, and a symlink as itself. */
typedef void entry_put_fn(struct jot *j, const struct envd_call *c, const struct entry *e);
entry_put_fn entry_put_stat;
/* Answers with the entries below a directory; 0: only those in it. put: NULL as ListDir does it. */
void entries_list(struct envd_call *c, const char *path, uint64_t depth, entry_put_fn *put);

/* Looks where a symlink leads. `done` is called at once for other entries. */
void entry_resolve(struct envd_call *c, struct entry *e, void (*done)(void *arg), void *arg);

/* Adds what a MSG_META says of the entry. */
void entry_label(struct entry *e, const struct msg_meta *m);

/* Finds one entry. e: valid during the call of `done`; NULL: *err says why not. */
typedef void entry_fn(void *arg, const struct entry *e, const struct err *err);
void entry_find(struct envd_call *c, const char *path, entry_fn *done, void *arg);

/*
 * Makes a directory and its parents, which belong to the user of the call. It is not an error if it
 * is there already. The path must stay valid.
 */
void dirs_make(struct envd_call *c, const char *path,
               void (*done)(void *arg, const struct err *err), void *arg);
