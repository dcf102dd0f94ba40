/*
 * tar archives, one header at a time, as pure functions over blocks of 512 bytes.
 *
 * Writes ustar, with a pax header for values that ustar cannot hold (long names, sizes
 * from 8 GiB). Reads both, the GNU forms of both, and old V7. Times are whole seconds.
 * Entries that Carrel does not create (devices, FIFOs, sparse files) are TAR_OTHER.
 * An archive is not trusted: names have a maximal length and no NUL, but the caller
 * must check them for everything else, such as "..".
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TAR_BLOCK 512u
#define TAR_NAME_MAX 4095u
#define TAR_META_MAX (32u << 10) /* bytes of one pax header */
#define TAR_HEAD_MAX (2 * TAR_BLOCK + 17 * TAR_BLOCK)

enum tar_kind {
    TAR_FILE,
    TAR_DIR,
    TAR_SYMLINK,
    TAR_HARDLINK, /* `target` is the path of an earlier entry */
    TAR_OTHER,
};

struct tar_entry {
    enum tar_kind kind;
    uint32_t mode; /* permission bits */
    uint32_t uid;
    uint32_t gid;
    uint64_t size; /* bytes of contents that follow, padded to a block; at most INT64_MAX */
    int64_t mtime; /* seconds */
    char path[TAR_NAME_MAX + 1];
    char target[TAR_NAME_MAX + 1];
};

/*
 * Writes the header blocks of an entry and returns the number of bytes. The caller writes
 * the contents, their padding and, at the end of the archive, two blocks of zeros.
 */
size_t tar_put(uint8_t to[TAR_HEAD_MAX], const struct tar_entry *e);

/* Returns the number of zeros that pad contents of this size. */
uint32_t tar_padding(uint64_t size);

/* The state of a reader; zero it at the start of an archive. */
struct tar_reader {
    uint64_t meta_left; /* bytes still missing of an extended header, which precedes its entry */
    uint32_t meta_len;
    char meta_type;
    bool has_path, has_target, has_size, has_mtime, is_sparse;
    uint64_t size;
    int64_t mtime;
    char path[TAR_NAME_MAX + 1];
    char target[TAR_NAME_MAX + 1];
    uint8_t meta[TAR_META_MAX + TAR_BLOCK];
};

enum tar_step {
    TAR_BAD = -1,
    TAR_MORE,  /* call again with the next block */
    TAR_ENTRY, /* *ret is an entry; skip its contents and padding, then continue */
    TAR_END,
};
enum tar_step tar_next(struct tar_reader *r, const uint8_t block[TAR_BLOCK], struct tar_entry *ret);
