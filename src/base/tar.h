/*
 * tar archives, one header at a time, as pure functions over blocks of 512 bytes.
 *
 * Written: ustar, with a pax header before what ustar cannot say (long names, sizes
 * from 8 GiB). Read: those, the GNU forms of both, and old V7. Whole seconds only.
 * What a reader of ours cannot make (devices, FIFOs, sparse files) is TAR_OTHER.
 * An archive is hostile: names are bounded and free of NUL, and nothing else is
 * promised about them.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TAR_BLOCK 512u
#define TAR_NAME_MAX 4095u
#define TAR_META_MAX (32u << 10) /* of one pax header */
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
 * The header blocks of an entry; contents and their padding are the caller's. Returns
 * the number of bytes. An archive ends with two blocks of zeros.
 */
size_t tar_put(uint8_t to[TAR_HEAD_MAX], const struct tar_entry *e);

/* How many zeros pad so many bytes of contents. */
uint32_t tar_padding(uint64_t size);

/* Zeroed: at the start of an archive. */
struct tar_reader {
    uint64_t meta_left; /* of a header's contents, which come before the entry it is about */
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
    TAR_MORE,  /* give it the next block */
    TAR_ENTRY, /* *ret; take its contents and padding off the stream, then go on */
    TAR_END,
};
enum tar_step tar_next(struct tar_reader *r, const uint8_t block[TAR_BLOCK], struct tar_entry *ret);
