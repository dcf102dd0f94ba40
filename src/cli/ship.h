/* What the ways of shipping share: the change set, and what the journal is told. */
#pragma once

#include "cli/client.h"
#include "cli/options.h"
#include "cli/parcel.h"

struct ship_options {
    struct option_list only, hunks;
    const char *comment;
    bool yes, mirror, undo, stat, json, help;
};

struct ship {
    const struct ship_options *options;
    struct client client;
    json_t *set; /* the change set as the daemon tells it */
    char target[4096];
    int dir;
    struct parcel parcel;
};

/* MACHINE, MACHINE:PATH, or the id of one that is frozen. */
int ship_find_set(struct ship *s, const char *word, struct err *err);
/* The archive, mapped; its hash is what the daemon said. */
int ship_fetch(struct ship *s, char **ret, size_t *ret_size, struct err *err);
/* ship, shipped, undo, undone: on the disk when this returns. */
int ship_note(struct ship *s, const char *action, const char *hash, long files, long long intent,
              long long *ret_record, struct err *err);

/*
 * If the target is a repository that the machine was handed: its commits, looked at, and with --yes
 * fetched into the branch carrel/MACHINE. 1: it is none; else as the command.
 */
int ship_repo(struct ship *s, const char *machine, struct err *err);
