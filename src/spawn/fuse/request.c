#include "spawn/fuse/request.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

enum names {
    NO_NAME,
    ENTRY,         /* of a directory */
    TWO_ENTRIES,   /* rename */
    ENTRY_AND_ANY, /* symbolic link: its name and where it leads */
    ATTRIBUTE,     /* name of an extended attribute */
};

#define IN(field) sizeof(((struct fuse_request *)0)->in.field)

/* One row for each operation. Others are answered with ENOSYS: their kernel then does without. */
static const struct shape {
    bool is_served;
    uint8_t fixed; /* bytes after the header */
    uint8_t names;
} shapes[] = {
    [FUSE_LOOKUP] = {true, 0, ENTRY},
    [FUSE_FORGET] = {true, IN(forget), NO_NAME},
    [FUSE_GETATTR] = {true, IN(getattr), NO_NAME},
    [FUSE_SETATTR] = {true, IN(setattr), NO_NAME},
    [FUSE_READLINK] = {true, 0, NO_NAME},
    [FUSE_SYMLINK] = {true, 0, ENTRY_AND_ANY},
    [FUSE_MKNOD] = {true, IN(mknod), ENTRY},
    [FUSE_MKDIR] = {true, IN(mkdir), ENTRY},
    [FUSE_UNLINK] = {true, 0, ENTRY},
    [FUSE_RMDIR] = {true, 0, ENTRY},
    [FUSE_RENAME] = {true, IN(rename), TWO_ENTRIES},
    [FUSE_LINK] = {true, IN(link), ENTRY},
    [FUSE_OPEN] = {true, IN(open), NO_NAME},
    [FUSE_READ] = {true, IN(read), NO_NAME},
    [FUSE_WRITE] = {true, IN(write), NO_NAME},
    [FUSE_STATFS] = {true, 0, NO_NAME},
    [FUSE_RELEASE] = {true, IN(release), NO_NAME},
    [FUSE_FSYNC] = {true, IN(fsync), NO_NAME},
    [FUSE_SETXATTR] = {true, IN(setxattr), ATTRIBUTE},
    [FUSE_GETXATTR] = {true, IN(getxattr), ATTRIBUTE},
    [FUSE_LISTXATTR] = {true, IN(getxattr), NO_NAME},
    [FUSE_REMOVEXATTR] = {true, 0, ATTRIBUTE},
    [FUSE_INIT] = {true, 16, NO_NAME}, /* older kernels end here */
    [FUSE_OPENDIR] = {true, IN(open), NO_NAME},
    [FUSE_READDIR] = {true, IN(read), NO_NAME},
    [FUSE_RELEASEDIR] = {true, IN(release), NO_NAME},
    [FUSE_FSYNCDIR] = {true, IN(fsync), NO_NAME},
    [FUSE_CREATE] = {true, IN(create), ENTRY},
    [FUSE_INTERRUPT] = {true, 0, NO_NAME},
    [FUSE_DESTROY] = {true, 0, NO_NAME},
    [FUSE_BATCH_FORGET] = {true, IN(forgets), NO_NAME},
    [FUSE_FALLOCATE] = {true, IN(fallocate), NO_NAME},
    [FUSE_READDIRPLUS] = {true, IN(read), NO_NAME},
    [FUSE_RENAME2] = {true, IN(rename2), TWO_ENTRIES},
    [FUSE_LSEEK] = {true, IN(lseek), NO_NAME},
    [FUSE_COPY_FILE_RANGE] = {true, IN(copy), NO_NAME},
};

long fuse_request_size(const uint8_t *bytes, size_t have) {
    uint32_t size;
    if (have < sizeof(size))
        return 0;
    memcpy(&size, bytes, sizeof(size));
    return size < sizeof(struct fuse_in_header) || size > FUSE_REQUEST_MAX ? -1 : (long)size;
}

/* Takes text that ends with NUL. NULL: there is none. */
static const char *request_text(struct fuse_request *r, size_t max) {
    const uint8_t *end = r->size ? memchr(r->data, '\0', r->size) : NULL;
    const char *text = (const char *)r->data;
    if (!end || end == r->data || (size_t)(end - r->data) > max)
        return NULL;
    r->size -= (size_t)(end + 1 - r->data);
    r->data = end + 1;
    return text;
}

static const char *request_entry(struct fuse_request *r) {
    const char *name = request_text(r, NAME_MAX);
    bool leads_away =
        !name || strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
    return leads_away ? NULL : name;
}

static bool request_names(struct fuse_request *r, enum names names) {
    if (names == NO_NAME)
        return true;
    r->name = names == ATTRIBUTE ? request_text(r, XATTR_NAME_MAX) : request_entry(r);
    if (names == TWO_ENTRIES)
        r->second = request_entry(r);
    if (names == ENTRY_AND_ANY)
        r->second = request_text(r, PATH_MAX - 1);
    return r->name && (r->second || (names != TWO_ENTRIES && names != ENTRY_AND_ANY));
}

int fuse_request_read(const uint8_t *bytes, size_t size, struct fuse_request *ret) {
    *ret = (struct fuse_request){.name = NULL};
    memcpy(&ret->head, bytes, sizeof(ret->head));
    uint32_t op = ret->head.opcode;
    if (op >= sizeof(shapes) / sizeof(*shapes) || !shapes[op].is_served)
        return -ENOSYS;
    ret->data = bytes + sizeof(ret->head);
    ret->size = size - sizeof(ret->head);
    if (ret->size < shapes[op].fixed)
        return -EINVAL;
    memcpy(&ret->in, ret->data, shapes[op].fixed);
    ret->data += shapes[op].fixed;
    ret->size -= shapes[op].fixed;
    return request_names(ret, shapes[op].names) ? 0 : -EINVAL;
}
