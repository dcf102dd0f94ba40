/*
 * The format of a manifest: the files of one tree, in the order of a walk, and the packs that have
 * their contents. Its SHA-256 names it. docs/internals/packs.md has it byte by byte. Pure.
 *
 * A tree has exactly one manifest. The reader accepts no other bytes: each entry has the next
 * possible name, and chunks are numbered in the order of their first use. The manifest of a backup
 * (`shared`) has packs of earlier backups too: some of their chunks are not used, in any order.
 */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/sha256.h"
#include "packs/bytes.h"

enum {
    MANIFEST_MAX = 256 << 20, /* bytes */
    MANIFEST_ENTRIES_MAX = 2000000,
    MANIFEST_PACKS_MAX = 1 << 16,
    MANIFEST_DEPTH_MAX = 128,
    MANIFEST_NAME_MAX = 255,
    MANIFEST_PATH_MAX = 4095, /* also of the target of a link */
    MANIFEST_ATTRIBUTES_MAX = 64,
    MANIFEST_VALUE_MAX = 64 << 10, /* all values of attributes of an entry */
    MANIFEST_ID_MAX = 65535,       /* user and group */
};

enum manifest_type {
    MANIFEST_DIR = 1,
    MANIFEST_FILE,
    MANIFEST_SYMLINK,
    MANIFEST_HARDLINK, /* another name of an earlier file */
    MANIFEST_PIPE,
    MANIFEST_WHITEOUT, /* hides a name of the tree below */
};

/* Fields that a type does not have are 0. Texts do not end with NUL. */
struct manifest_entry {
    enum manifest_type type;
    unsigned depth;   /* 0: the root, which has no name; its entries have 1 */
    const char *name; /* last part of the path */
    size_t name_len;
    uint32_t mode; /* permissions, without the type */
    uint32_t uid, gid;
    int64_t mtime; /* seconds */
    uint32_t attribute_count;
    struct bytes attributes; /* see manifest_attribute_next() */
    uint64_t size;           /* of a file */
    const uint8_t *chunks;   /* of a file, see manifest_chunk(), or NULL */
    uint32_t chunk_count;
    const char *target; /* of a symbolic link */
    size_t target_len;
    uint32_t twin; /* of a hard link: number of the entry that is the file */
};

/* ---- reading ---- */

struct manifest {
    const uint8_t *packs;
    uint32_t pack_count, entry_count, chunk_count;
    struct bytes entries;
    bool shared; /* of a backup */
};

/* Checks every byte. The result points into `bytes`. */
int manifest_read(const void *bytes, size_t n, struct manifest *ret, struct err *err);
/* The name of a pack, and the number of its chunks. */
uint32_t manifest_pack(const struct manifest *m, uint32_t i, uint8_t ret_hash[SHA256_BYTES]);
/* Takes the next entry out of *entries, which starts as a copy of m->entries. False at the end. */
bool manifest_next(struct bytes *entries, struct manifest_entry *ret);
/* Number of a chunk, counted over all packs of the manifest. */
uint32_t manifest_chunk(const struct manifest_entry *e, uint32_t i);

struct manifest_attribute {
    const char *name;
    size_t name_len;
    const uint8_t *value;
    size_t size;
};
/* Takes the next attribute out of *attributes, a copy of e->attributes. False at the end. */
bool manifest_attribute_next(struct bytes *attributes, struct manifest_attribute *ret);

/* ---- writing ---- */

struct manifest_maker {
    struct buf packs, entries;
    uint32_t pack_count, entry_count;
    bool shared; /* of a backup */
};

struct manifest_maker manifest_begin(void);
void manifest_done(struct manifest_maker *m);
int manifest_add_pack(struct manifest_maker *m, const uint8_t hash[SHA256_BYTES], uint32_t chunks,
                      struct err *err);
int manifest_add(struct manifest_maker *m, const struct manifest_entry *e, struct err *err);
/* Adds an attribute to the bytes of struct manifest_entry.attributes. Sorted by name. */
int manifest_put_attribute(struct buf *to, const struct manifest_attribute *a, struct err *err);
/* Writes the manifest. Fails if manifest_read() would not accept it. */
int manifest_end(const struct manifest_maker *m, struct buf *ret, struct err *err);
