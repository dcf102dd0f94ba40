/*
 * What a backup of a machine leaves for the next one: its manifest, the inodes and times of its
 * files, and the hashes of the chunks in its packs. With it, the next backup reads only files that
 * changed and writes only chunks that are new. docs/internals/packs.md has the bytes. Pure.
 *
 * Inodes and times of layers come from the kernel: a box cannot give a changed file the time at
 * which another inode was made.
 */
#pragma once

#include "base/map.h"
#include "packs/manifest.h"
#include "packs/packfile.h"

enum { KNOWN_MAX = 1 << 30 }; /* bytes of the whole record */

/* Numbers that together change with the contents of a file. */
struct known_stamp {
    uint64_t inode;
    int64_t born_ns, modified_ns, changed_ns;
};

struct known_file {
    const uint8_t *chunks; /* numbers, as in the manifest */
    uint32_t chunk_count;
    char key[];
};

struct known {
    struct manifest manifest; /* of the backup before */
    const uint8_t *chunks;    /* hash and size of each chunk in it */
    uint32_t *starts;         /* for each pack the number of its first chunk */
    bool *sparse;             /* packs of which the backup uses little: no more of it is used */
    struct map files;         /* struct known_file, by stamp and size */
    struct buf stamps, fresh; /* of the new backup: stamps of its files, hashes of new chunks */
};

struct known known_begin(void);
void known_done(struct known *k);
/* Reads the record of the backup before, which must stay. A damaged one is refused. */
int known_read(struct known *k, const void *bytes, size_t n, struct err *err);

/* Number of chunks of the backup before. New chunks have the numbers from this one on. */
uint32_t known_count(const struct known *k);
/* The hash of one of them. False: it is in a pack that the new backup leaves. */
bool known_chunk(const struct known *k, uint32_t number, uint8_t ret_hash[SHA256_BYTES]);

/* NULL: the file is new or changed. */
const struct known_file *known_find(const struct known *k, const struct known_stamp *stamp,
                                    uint64_t size);
/* Call these for each file of the manifest, and for each new chunk, in order. */
int known_add_file(struct known *k, const struct known_stamp *stamp, struct err *err);
int known_add_chunk(struct known *k, const uint8_t hash[SHA256_BYTES], size_t size,
                    struct err *err);

/*
 * Ends a manifest that has only the new packs: adds the older packs that it uses, and numbers all
 * chunks anew. *ret is the manifest, *ret_record what the next backup reads.
 */
int known_end(struct known *k, struct manifest_maker *m, struct buf *ret, struct buf *ret_record,
              struct err *err);
