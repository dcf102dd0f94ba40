/*
 * COPY of a Dockerfile: collects files of the build's directory and sends them to the daemon.
 *
 * Files are read twice, for the key of the step and for the copy. A file that changed in between
 * fails the build, because a step is found again by its key. No path leads out of the directory.
 */
#pragma once

#include "base/arena.h"
#include "base/sha256.h"
#include "base/tar.h"
#include "cli/client.h"
#include "cli/image/dockerignore.h"
#include "cli/image/recipe.h"

enum { BUILD_COPY_ENTRIES_MAX = 200000, BUILD_COPY_DEPTH_MAX = 100 };

struct build_copy_entry {
    const char *source; /* path in the build's directory */
    const char *name;   /* path below the destination */
    const char *target; /* of a symbolic link */
    enum tar_kind kind;
    uint32_t mode;
    uint64_t size;
    int64_t mtime;
    bool is_source; /* named by the instruction itself, so links in its path are followed */
    uint8_t hash[SHA256_BYTES];
};

struct build_copy {
    struct arena arena;
    struct build_copy_entry *entries;
    size_t count;
    size_t sources; /* number of files and directories that the instruction names */
    bool has_dir;   /* one of them is a directory */
};

/* Finds and hashes the files of the line; adds names, modes and contents to `key`. */
int build_copy_collect(struct build_copy *c, int dir, const struct dockerignore *ignore,
                       const struct recipe_line *l, struct sha256 *key, struct err *err);
/* Sends the files as a tar to `target`, a route of the API. chmod: octal mode, or NULL. */
int build_copy_send(const struct build_copy *c, int dir, struct client *client, const char *target,
                    const char *chmod, struct err *err);
/* Sends a tar with one file of these bytes. */
int build_copy_send_bytes(struct client *client, const char *target, const struct buf *bytes,
                          mode_t mode, struct err *err);
void build_copy_done(struct build_copy *c);
