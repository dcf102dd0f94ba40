/* Destination and owner of files that a Dockerfile copies, as they are in the machine. */
#pragma once

#include <limits.h>

#include "cli/client.h"

/* Where a copy goes. */
struct build_place {
    char dir[PATH_MAX];      /* directory that files are unpacked in */
    char name[NAME_MAX + 1]; /* name of a single file; empty: files keep their names */
    bool exists;             /* the directory exists */
};

/* `into`: the destination is a directory, also if it does not exist yet. */
int build_place_find(struct client *c, const char *machine, const char *path, bool into,
                     struct build_place *ret, struct err *err);

struct build_owner {
    uint32_t uid, gid;
};

/* Reads USER[:GROUP], names of the machine or numbers. */
int build_owner_find(struct client *c, const char *machine, const char *text,
                     struct build_owner *ret, struct err *err);
int build_owner_give(struct client *c, const char *machine, const char *dir, const char *name,
                     const struct build_owner *owner, struct err *err);
/* Creates the directory if it does not exist; `owner` NULL: for root. */
int build_place_make(struct client *c, const char *machine, const struct build_place *p,
                     const struct build_owner *owner, struct err *err);
/* Creates a directory and its parents, for root. */
int build_mkdir(struct client *c, const char *machine, const char *path, struct err *err);
