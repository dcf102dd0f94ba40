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
    EROFS_SLOT = 32,        /* inodes lie at multiples of it, and are numbered so */
    EROFS_HEAD_AT = 1024,   /* the super block */
    EROFS_HEAD_BYTES = 128, /* the first inode can follow */
    EROFS_INODE_BYTES = 64, /* of the long form */
    EROFS_EMPTY_BYTES = EROFS_BLOCK,
};

enum erofs_layout { EROFS_PLAIN = 0, EROFS_INLINE = 2 }; /* where the end of the data lies */

struct erofs_head {
    uint16_t root;  /* the root's inode */
    uint64_t nodes; /* inodes */
    uint32_t blocks;
};

struct erofs_inode {
    enum erofs_layout layout;
    size_t attributes; /* bytes of them behind it; 0 or a multiple of 4 from 12 on */
    uint16_t mode;
    uint64_t size;
    uint32_t block; /* where its data begins */
    uint32_t number, uid, gid, links;
    int64_t mtime;
};

/* The block that the head is in, but for what lies before and behind it. */
void erofs_put_head(uint8_t head[EROFS_HEAD_BYTES], const struct erofs_head *h, const char *id);
void erofs_put_inode(uint8_t to[EROFS_INODE_BYTES], const struct erofs_inode *n);
/* One entry of a directory's block: the names follow the entries. */
enum { EROFS_ENTRY_BYTES = 12 };
void erofs_put_entry(uint8_t to[EROFS_ENTRY_BYTES], uint64_t node, size_t name_at, unsigned mode);

/* Is it the head of a filesystem of ours, of the image with that id, and in a file of that size? */
bool erofs_is_ours(const uint8_t head[EROFS_HEAD_BYTES], const char *id, uint64_t file_bytes);

/* Is that such a file, our user's own, which nobody else may write to and that has no other name?
 */
bool erofs_file_is_ours(int file, const char *id);

/* A whole filesystem of one empty directory, to try whether a kernel mounts it. */
void erofs_put_empty(uint8_t to[EROFS_EMPTY_BYTES], const char *id);
