#include "spawn/fuse/table.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/defer.h"
#include "base/fdio.h"

static const char magic[16] = "carrel files 1\n";

enum { KEPT_FLAGS = O_ACCMODE | O_APPEND | O_DSYNC | O_SYNC };

/* ---- reading bytes ---- */

static bool table_take(struct table_reader *r, void *ret, size_t size) {
    if (r->left < size)
        return false;
    memcpy(ret, r->at, size);
    r->at += size;
    r->left -= size;
    return true;
}

bool table_begin(struct table_reader *r, const uint8_t *bytes, size_t size) {
    *r = (struct table_reader){.at = bytes, .left = size};
    return size <= TABLE_BYTES_MAX && table_take(r, &r->head, sizeof(r->head)) &&
           memcmp(r->head.magic, magic, sizeof(magic)) == 0 && r->head.nodes <= NODES_MAX &&
           r->head.handles <= NODES_MAX && r->head.pending <= size;
}

/* A path is absolute and has no NUL byte; an empty one is allowed. */
static bool table_take_path(struct table_reader *r, uint32_t size, char path[TABLE_PATH_MAX]) {
    if (size >= TABLE_PATH_MAX || !table_take(r, path, size))
        return false;
    path[size] = '\0';
    return strlen(path) == size && (size == 0 || path[0] == '/');
}

static bool table_grows(struct table_reader *r, uint32_t id) {
    bool grows = id > r->last && id < NODES_MAX;
    r->last = id;
    return grows;
}

int table_next_node(struct table_reader *r, struct table_node *ret, char path[TABLE_PATH_MAX]) {
    if (r->head.nodes == 0) {
        r->last = 0;
        return 0;
    }
    r->head.nodes--;
    return table_take(r, ret, sizeof(*ret)) && table_take_path(r, ret->path, path) &&
                   table_grows(r, ret->id)
               ? 1
               : -1;
}

int table_next_handle(struct table_reader *r, struct table_handle *ret, char path[TABLE_PATH_MAX]) {
    if (r->head.handles == 0)
        return 0;
    r->head.handles--;
    return table_take(r, ret, sizeof(*ret)) && table_take_path(r, ret->path, path) &&
                   table_grows(r, ret->id)
               ? 1
               : -1;
}

bool table_end(const struct table_reader *r, const uint8_t **ret, size_t *ret_size) {
    if (r->head.nodes || r->head.handles || r->left != r->head.pending)
        return false;
    *ret = r->at;
    *ret_size = r->left;
    return true;
}

/* ---- writing ---- */

/* The length of the path of a descriptor; 0: it has none. The root of the tree is that of the
 * process. */
static uint32_t table_path(int fd, char path[TABLE_PATH_MAX]) {
    struct statx st;
    ssize_t n = readlink(fd_path(fd).text, path, TABLE_PATH_MAX);
    bool is_there = n > 0 && n < TABLE_PATH_MAX && path[0] == '/' &&
                    statx(fd, "", AT_EMPTY_PATH, STATX_NLINK, &st) == 0 && st.stx_nlink > 0;
    return is_there ? (uint32_t)n : 0;
}

static bool table_put_nodes(const struct nodes *n, struct buf *to, struct table_head *head,
                            uint32_t *lost) {
    char path[TABLE_PATH_MAX];
    for (uint32_t i = 1; i < n->end; i++) {
        const struct node *node = &n->slots[i];
        bool is_lost = node->fd < 0 && node->lookups > 0; /* by an earlier copy of the vm */
        if (node->fd < 0 && !is_lost)
            continue;
        const struct table_node e = {.id = i,
                                     .type = node->type,
                                     .lookups = node->lookups,
                                     .generation = node->generation,
                                     .changed_s = node->changed.tv_sec,
                                     .changed_ns = node->changed.tv_nsec,
                                     .path = is_lost ? 0 : table_path(node->fd, path)};
        *lost += e.path == 0;
        head->nodes++;
        if (!buf_add(to, &e, sizeof(e)) || !buf_add(to, path, e.path))
            return false;
    }
    return true;
}

static bool table_put_handles(const struct handles *h, struct buf *to, struct table_head *head) {
    char path[TABLE_PATH_MAX];
    for (uint32_t i = 1; i < h->end; i++) {
        int fd = h->slots[i].fd, flags = fd < 0 ? 0 : fcntl(fd, F_GETFL);
        if (fd < 0 && !h->slots[i].is_lost)
            continue;
        const struct table_handle e = {.id = i,
                                       .is_dir = h->slots[i].is_dir,
                                       .flags = (uint32_t)(flags & KEPT_FLAGS),
                                       .path = fd < 0 ? 0 : table_path(fd, path)};
        head->handles++;
        if (!buf_add(to, &e, sizeof(e)) || !buf_add(to, path, e.path))
            return false;
    }
    return true;
}

int fuse_table_write(const struct fuse_server *s, int fd, const uint8_t *pending, size_t size,
                     uint32_t *ret_lost) {
    struct buf text DEFER(buf_done) = BUF(TABLE_BYTES_MAX);
    struct table_head head = {.generation = s->nodes.generation, .pending = (uint32_t)size};
    memcpy(head.magic, magic, sizeof(magic));
    *ret_lost = 0;
    if (!buf_add(&text, &head, sizeof(head)) ||
        !table_put_nodes(&s->nodes, &text, &head, ret_lost) ||
        !table_put_handles(&s->handles, &text, &head) || !buf_add(&text, pending, size))
        return -EFBIG;
    memcpy(text.data, &head, sizeof(head));
    if (ftruncate(fd, 0) < 0 || lseek(fd, 0, SEEK_SET) < 0)
        return -errno;
    return write_all(fd, text.data, text.len);
}

/* ---- filling a server ---- */

/* Only what a lookup can lead to: type and mount are those of the tree as it is now. */
static void table_restore_node(struct fuse_server *s, const struct table_node *e,
                               const char *path) {
    struct statx st = {0};
    int fd DEFER_CLOSE = e->path ? open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC) : -1;
    bool is_same = fd >= 0 &&
                   statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_MNT_ID, &st) == 0 &&
                   (st.stx_mode & S_IFMT) == e->type;
    const struct node like = {.type = e->type,
                              .lookups = e->lookups,
                              .generation = e->generation,
                              .changed = {.tv_sec = e->changed_s, .tv_nsec = e->changed_ns}};
    nodes_restore(&s->nodes, e->id, is_same ? TAKE_FD(fd) : -1, &st, &like);
}

static int table_restore_handle(struct fuse_server *s, const struct table_handle *e,
                                const char *path) {
    int flags = e->is_dir ? O_RDONLY | O_DIRECTORY : (int)(e->flags & KEPT_FLAGS) | O_NONBLOCK;
    struct stat st;
    int fd DEFER_CLOSE = -1;
    /* As in fuse_open(): no file but a regular one is opened. */
    int at DEFER_CLOSE = e->path ? open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC) : -1;
    bool fits =
        at >= 0 && fstat(at, &st) == 0 && (st.st_mode & S_IFMT) == (e->is_dir ? S_IFDIR : S_IFREG);
    if (fits)
        fd = open(fd_path(at).text, flags | O_CLOEXEC);
    return handles_restore(&s->handles, e->id, TAKE_FD(fd), e->is_dir);
}

static int table_fill(struct fuse_server *s, struct table_reader *r) {
    static char path[TABLE_PATH_MAX];
    struct table_node node;
    struct table_handle handle;
    int more, done = 0;
    while ((more = table_next_node(r, &node, path)) > 0)
        table_restore_node(s, &node, path);
    nodes_restored(&s->nodes, r->head.generation);
    while (more == 0 && done == 0 && (more = table_next_handle(r, &handle, path)) > 0) {
        done = table_restore_handle(s, &handle, path);
        more = 0;
    }
    handles_restored(&s->handles);
    return more < 0 ? -EBADMSG : done;
}

int fuse_table_read(struct fuse_server *s, int fd, uint8_t *pending, size_t room,
                    size_t *ret_size) {
    struct table_reader r;
    struct stat st;
    const uint8_t *rest;
    if (fstat(fd, &st) < 0 || st.st_size < 1 || st.st_size > TABLE_BYTES_MAX)
        return -EBADMSG;
    size_t size = (size_t)st.st_size;
    const uint8_t *bytes = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED)
        return -errno;
    int done = table_begin(&r, bytes, size) ? table_fill(s, &r) : -EBADMSG;
    if (done == 0 && (!table_end(&r, &rest, ret_size) || *ret_size > room))
        done = -EBADMSG;
    if (done == 0)
        memcpy(pending, rest, *ret_size);
    munmap((void *)bytes, size);
    return done;
}
