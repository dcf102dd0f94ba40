/*
 * The table of a server of files: every file that the kernel of a vm knows or has open, by its
 * path. A copy of the vm has the same kernel, and its server begins with the same table.
 *
 * A table comes from another server, over a file of the store, so nothing in it is believed: every
 * size is checked, and paths are resolved inside the tree. A number whose path leads to nothing, or
 * to a file of another type, stays taken and answers ESTALE.
 */
#pragma once

#include "spawn/fuse/inner.h"

enum { TABLE_BYTES_MAX = 64 << 20, TABLE_PATH_MAX = 4096 };

/* What follows in the bytes of a table: the fixed part of an entry, then its path. */
struct table_head {
    char magic[16];
    uint64_t generation;
    uint32_t nodes, handles; /* how many entries follow */
    uint32_t pending;        /* bytes of requests that were not answered, after the entries */
    uint32_t unused;
};

struct table_node {
    uint32_t id, type;
    uint64_t lookups, generation;
    int64_t changed_s;
    uint32_t changed_ns;
    uint32_t path; /* its length; 0: the file has no path any more */
};

struct table_handle {
    uint32_t id, is_dir;
    uint32_t flags; /* of open() */
    uint32_t path;
};

struct table_reader {
    const uint8_t *at;
    size_t left;
    struct table_head head;
    uint32_t last; /* number of the entry before */
};

/*
 * Pure: reads a table of any bytes. False: it is not a table. The next functions return 1 and an
 * entry with its path, 0 after the last one, and -1 if the bytes are wrong. Numbers grow.
 */
bool table_begin(struct table_reader *r, const uint8_t *bytes, size_t size);
int table_next_node(struct table_reader *r, struct table_node *ret, char path[TABLE_PATH_MAX]);
int table_next_handle(struct table_reader *r, struct table_handle *ret, char path[TABLE_PATH_MAX]);
/* After all entries: the requests, which begin at *ret. False: more or fewer bytes follow. */
bool table_end(const struct table_reader *r, const uint8_t **ret, size_t *ret_size);

/*
 * Writes the table to the start of a file. pending: requests that the server has received, but not
 * answered. *ret_lost: how many files were deleted while they were open. -errno.
 */
int fuse_table_write(const struct fuse_server *s, int fd, const uint8_t *pending, size_t size,
                     uint32_t *ret_lost);

/*
 * Fills the tables of a new server, which knows only its root, from a file. *ret_size bytes of
 * requests are copied to `pending`. -errno.
 */
int fuse_table_read(struct fuse_server *s, int fd, uint8_t *pending, size_t room, size_t *ret_size);
