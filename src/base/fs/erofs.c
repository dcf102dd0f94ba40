#include "base/fs/erofs.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sha256.h"
#include "base/wire/little.h"

enum { MAGIC = 0xe0f5e1e2u, BLOCK_BITS = 12, COMPAT_MTIME = 2, LONG_FORM = 1, MARK_BYTES = 16 };

/* Offsets in the super block. Bytes of other fields are zero. */
enum {
    AT_MAGIC = 0,
    AT_COMPAT = 8,
    AT_BLOCK_BITS = 12,
    AT_ROOT = 14,
    AT_NODES = 16,
    AT_BLOCKS = 36,
    AT_MARK = 48,
};

/* Makes the UUID of the super block from the id of the image, so that builds are reproducible. */
static void mark_of(const char *id, uint8_t ret[MARK_BYTES]) {
    uint8_t hash[SHA256_BYTES];
    struct sha256 sum;
    sha256_init(&sum);
    sha256_add(&sum, id, strlen(id));
    sha256_end(&sum, hash);
    memcpy(ret, hash, MARK_BYTES);
}

void erofs_put_head(uint8_t head[EROFS_HEAD_BYTES], const struct erofs_head *h, const char *id) {
    memset(head, 0, EROFS_HEAD_BYTES);
    little_put(head + AT_MAGIC, MAGIC, 4);
    little_put(head + AT_COMPAT, COMPAT_MTIME, 4);
    head[AT_BLOCK_BITS] = BLOCK_BITS;
    little_put(head + AT_ROOT, h->root, 2);
    little_put(head + AT_NODES, h->nodes, 8);
    little_put(head + AT_BLOCKS, h->blocks, 4);
    mark_of(id, head + AT_MARK);
}

void erofs_put_inode(uint8_t to[EROFS_INODE_BYTES], const struct erofs_inode *n) {
    memset(to, 0, EROFS_INODE_BYTES);
    little_put(to, LONG_FORM | (uint64_t)n->layout << 1, 2);
    little_put(to + 2, n->attributes ? (n->attributes - 12) / 4 + 1 : 0, 2);
    little_put(to + 4, n->mode, 2);
    little_put(to + 8, n->size, 8);
    little_put(to + 16, n->block, 4);
    little_put(to + 20, n->number, 4);
    little_put(to + 24, n->uid, 4);
    little_put(to + 28, n->gid, 4);
    little_put(to + 32, (uint64_t)n->mtime, 8);
    little_put(to + 44, n->links, 4);
}

static unsigned erofs_kind_of(unsigned mode) {
    switch (mode & S_IFMT) {
    case S_IFREG:
        return 1;
    case S_IFDIR:
        return 2;
    case S_IFIFO:
        return 5;
    default:
        return 7; /* a symbolic link: an image has no other types */
    }
}

void erofs_put_entry(uint8_t to[EROFS_ENTRY_BYTES], uint64_t node, size_t name_at, unsigned mode) {
    little_put(to, node, 8);
    little_put(to + 8, name_at, 2);
    to[10] = (uint8_t)erofs_kind_of(mode);
    to[11] = 0;
}

bool erofs_is_ours(const uint8_t head[EROFS_HEAD_BYTES], const char *id, uint64_t file_bytes) {
    uint8_t wanted[EROFS_HEAD_BYTES];
    const struct erofs_head h = {.root = (uint16_t)little_get(head + AT_ROOT, 2),
                                 .nodes = little_get(head + AT_NODES, 8),
                                 .blocks = (uint32_t)(file_bytes / EROFS_BLOCK)};
    erofs_put_head(wanted, &h, id);
    return file_bytes > 0 && file_bytes == (uint64_t)h.blocks * EROFS_BLOCK &&
           memcmp(head, wanted, EROFS_HEAD_BYTES) == 0;
}

bool erofs_file_is_ours(int file, const char *id) {
    uint8_t head[EROFS_HEAD_BYTES];
    struct stat st;
    return fstat(file, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
           !(st.st_mode & (S_IWGRP | S_IWOTH)) && st.st_nlink == 1 &&
           pread(file, head, sizeof(head), EROFS_HEAD_AT) == (ssize_t)sizeof(head) &&
           erofs_is_ours(head, id, (uint64_t)st.st_size);
}

void erofs_put_empty(uint8_t to[EROFS_EMPTY_BYTES], const char *id) {
    enum { ROOT_AT = EROFS_HEAD_AT + EROFS_HEAD_BYTES, NAMES_AT = 2 * EROFS_ENTRY_BYTES };
    const uint16_t root = ROOT_AT / EROFS_SLOT;
    uint8_t *entries = to + ROOT_AT + EROFS_INODE_BYTES;
    memset(to, 0, EROFS_EMPTY_BYTES);
    erofs_put_head(to + EROFS_HEAD_AT, &(struct erofs_head){root, 1, 1}, id);
    erofs_put_inode(to + ROOT_AT, &(struct erofs_inode){.layout = EROFS_INLINE,
                                                        .mode = S_IFDIR | 0755,
                                                        .size = NAMES_AT + 3,
                                                        .number = 1,
                                                        .links = 2});
    erofs_put_entry(entries, root, NAMES_AT, S_IFDIR);
    erofs_put_entry(entries + EROFS_ENTRY_BYTES, root, NAMES_AT + 1, S_IFDIR);
    memcpy(entries + NAMES_AT, "...", 3); /* the names "." and ".." without a separator */
}
