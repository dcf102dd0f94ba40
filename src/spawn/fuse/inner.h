/* What the operations of the server share. */
#pragma once

#include "spawn/fuse/nodes.h"
#include "spawn/fuse/request.h"

/* For how long the kernel of the vm believes what it was told: the host may change files, too. */
enum { FUSE_BELIEF_SECONDS = 1 };

struct fuse_server {
    struct nodes nodes;
    struct handles handles;
    uint8_t *answer; /* head of the answer and FUSE_DATA_MAX bytes */
};

/* The body of the answer being made: FUSE_DATA_MAX bytes. */
static inline void *fuse_body(struct fuse_server *s) {
    return s->answer + sizeof(struct fuse_out_header);
}

/* A path of a descriptor, relative to the working directory of the server. */
struct fd_path {
    char text[16];
};

struct fd_path fd_path(int fd);

/* An operation returns the size of its body, or -errno. */
typedef int fuse_op(struct fuse_server *s, const struct fuse_request *r);

/* Looks an entry up and writes what the kernel is to know of it. */
int fuse_enter(struct fuse_server *s, const struct node *dir, const char *name,
               struct fuse_entry_out *ret);
void fuse_fill_attr(const struct statx *st, struct fuse_attr *ret);

/* Acts as the user who asks, so that new files belong to him; then as root again. */
int fuse_become(const struct fuse_in_header *head);
void fuse_return(void);

fuse_op fuse_lookup, fuse_getattr, fuse_setattr, fuse_readlink, fuse_symlink, fuse_mknod,
    fuse_mkdir, fuse_unlink, fuse_rmdir, fuse_rename, fuse_rename2, fuse_link, fuse_statfs,
    fuse_setxattr, fuse_getxattr, fuse_listxattr, fuse_removexattr;
fuse_op fuse_open, fuse_read, fuse_write, fuse_release, fuse_fsync, fuse_opendir, fuse_readdir,
    fuse_releasedir, fuse_fsyncdir, fuse_create, fuse_fallocate, fuse_readdirplus, fuse_lseek,
    fuse_copy;
