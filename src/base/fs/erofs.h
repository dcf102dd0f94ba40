/*
 * Super block, inodes and directory entries of the erofs images that Carrel writes and mounts.
 * image/erofs.h writes complete images.
 *
 * Blocks have 4 KiB, no incompatible feature is used, and the super block contains the image's id.
 * Only files that pass erofs_file_is_ours() may be mounted.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    EROFS_BLOCK = 4096,
    EROFS_SLOT = 32,        /* an inode starts at its number times this */
    EROFS_HEAD_AT = 1024,   /* offset of the super block */
    EROFS_HEAD_BYTES = 128, /* size of the super block; the first inode may follow it */
    EROFS_INODE_BYTES = 64, /* size of an inode in its long form */
    EROFS_EMPTY_BYTES = EROFS_BLOCK,
};

/* Where the last, incomplete block of the data is: in a block of its own, or after the inode. */
enum erofs_layout { EROFS_PLAIN = 0, EROFS_INLINE = 2 };

struct erofs_head {
    uint16_t root;  /* number of the root's inode */
    uint64_t nodes; /* number of inodes */
    uint32_t blocks;
};

struct erofs_inode {
    enum erofs_layout layout;
    size_t attributes; /* bytes of extended attributes after the inode; 0, or 12 + 4n */
    uint16_t mode;
    uint64_t size;
    uint32_t block; /* number of the first block of its data */
    uint32_t number, uid, gid, links;
    int64_t mtime;
};

/* Writes the super block (the head) of the image with this id. */
void erofs_put_head(uint8_t head[EROFS_HEAD_BYTES], const struct erofs_head *h, const char *id);
void erofs_put_inode(uint8_t to[EROFS_INODE_BYTES], const struct erofs_inode *n);
/* Writes one entry of a directory block. The names follow all entries; name_at is the offset. */
enum { EROFS_ENTRY_BYTES = 12 };
void erofs_put_entry(uint8_t to[EROFS_ENTRY_BYTES], uint64_t node, size_t name_at, unsigned mode);

/* True if `head` is the super block that Carrel writes for this image id and this file size. */
bool erofs_is_ours(const uint8_t head[EROFS_HEAD_BYTES], const char *id, uint64_t file_bytes);

/* True if the file has that super block, belongs to our user, is not writable by others and has
 * only one name (no hard links). */
bool erofs_file_is_ours(int file, const char *id);

/* Writes a complete filesystem with one empty directory, to test whether the kernel mounts it. */
void erofs_put_empty(uint8_t to[EROFS_EMPTY_BYTES], const char *id);
