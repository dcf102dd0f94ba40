/*
 * Reads the requests that the kernel of a vm sends to the server of its files (FUSE, linux/fuse.h).
 *
 * Pure. The kernel of a vm belongs to whoever is root inside, so nothing about a request is
 * believed: a request that is read has its whole fixed part, and its names end within its bytes and
 * lead to nothing but an entry of one directory.
 */
#pragma once

#include <linux/fuse.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    FUSE_DATA_MAX = 256 << 10, /* bytes of one read or write */
    FUSE_REQUEST_MAX = FUSE_DATA_MAX + 8192,
};

struct fuse_request {
    struct fuse_in_header head;
    union {
        struct fuse_init_in init;
        struct fuse_forget_in forget;
        struct fuse_batch_forget_in forgets;
        struct fuse_getattr_in getattr;
        struct fuse_setattr_in setattr;
        struct fuse_mknod_in mknod;
        struct fuse_mkdir_in mkdir;
        struct fuse_rename_in rename;
        struct fuse_rename2_in rename2;
        struct fuse_link_in link;
        struct fuse_open_in open;
        struct fuse_create_in create;
        struct fuse_release_in release;
        struct fuse_fsync_in fsync;
        struct fuse_read_in read;
        struct fuse_write_in write;
        struct fuse_getxattr_in getxattr;
        struct {
            uint32_t size, flags;
        } setxattr; /* as long as FUSE_SETXATTR_EXT is not agreed on */
        struct fuse_fallocate_in fallocate;
        struct fuse_lseek_in lseek;
        struct fuse_copy_file_range_in copy;
    } in;
    const char *name, *second; /* NULL: there is none */
    const uint8_t *data;       /* what follows fixed part and names */
    size_t size;
};

/*
 * The size of the request whose first bytes these are; 0: more bytes are needed to know; -1: no
 * request has this size, and the stream cannot be followed any more.
 */
long fuse_request_size(const uint8_t *bytes, size_t have);

/*
 * Reads a request of the size that fuse_request_size() says. 0, or an error for its sender:
 * -ENOSYS for an operation that is not served, -EINVAL for a wrong request. The header is set in
 * every case. The result points into the bytes.
 */
int fuse_request_read(const uint8_t *bytes, size_t size, struct fuse_request *ret);
