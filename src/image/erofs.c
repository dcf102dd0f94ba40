#include "image/erofs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/defer.h"
#include "base/fs/erofs.h"
#include "base/map.h"
#include "image/cost.h"

enum {
    PIECE = 64 * EROFS_BLOCK,
    NAME_MAX_BYTES = 255,
    ATTRIBUTES_HEAD = 12,    /* bytes of the header in front of an inode's attributes */
    ATTRIBUTES_MAX = 262140, /* largest size of the attributes that an inode can record */
    NONE = 0,                /* no node: 0 is the root, which is never a child */
};

#define TEXTS_MAX ((size_t)1 << 30) /* bytes of names, link targets and attributes of a tree */
#define BLOCKS_MAX ((uint64_t)1 << 32)

struct node {
    size_t name, target, attributes; /* offsets in `texts`; target: of a symbolic link */
    uint32_t attribute_bytes;
    uint32_t mode, uid, gid, links;
    int64_t mtime;
    uint64_t size; /* bytes of the node's data */
    uint64_t at;   /* offset of its inode in the erofs file, in bytes */
    uint32_t block;
    bool is_inline; /* the last bytes of its data follow its inode */
    uint32_t twin;  /* hard link: the node that holds the inode; NONE: this one */
    uint32_t parent, next, child, last_child; /* indexes of nodes, or NONE */
};

/* A file with several names (hard links): later names refer to its node. */
struct linked {
    uint32_t node;
    char path[];
};

struct tree {
    struct node *v;
    size_t count, size;
    struct buf texts;
    struct map links;                    /* path -> struct linked */
    uint32_t above[IMAGE_DEPTH_MAX + 2]; /* nodes of the directories on the current path */
    struct image_ids ids;
    struct report *report;
    int out;
    uint64_t blocks;
    size_t at;      /* second walk: index of the next node */
    uint64_t bytes; /* bytes written so far */
    uint8_t *piece;
};

static void tree_done(struct tree *t) {
    struct linked *l;
    for (size_t at = 0; (l = map_next(&t->links, &at));)
        free(l);
    map_done(&t->links);
    buf_done(&t->texts);
    free(t->v);
    free(t->piece);
}

static int too_large(struct err *err) {
    return err_set(err, ERR_LIMIT,
                   "the image is too large for an erofs file (the form that the kernel mounts)");
}

/* ---- first walk: collect nodes ---- */

static struct node *node_new(struct tree *t, struct err *err) {
    if (t->count == t->size) {
        size_t size = t->size ? 2 * t->size : 1024;
        struct node *more = reallocarray(t->v, size, sizeof(*more));
        if (!more) {
            err_set(err, ERR_LIMIT, "out of memory");
            return NULL;
        }
        t->v = more;
        t->size = size;
    }
    t->v[t->count] = (struct node){.links = 1};
    return &t->v[t->count++];
}

/* Stores a string with its NUL and returns its offset. */
static int keep_text(struct tree *t, const char *text, size_t *ret, struct err *err) {
    *ret = t->texts.len;
    return buf_add(&t->texts, text, strlen(text) + 1) ? 0 : too_large(err);
}

static const char *text_at(const struct tree *t, size_t at) {
    return t->texts.data + at;
}

/* Returns erofs' number of the attribute's namespace, and moves *name behind the namespace. */
static unsigned prefix_of(const char **name) {
    bool user = strncmp(*name, "user.", 5) == 0;
    *name += strlen(user ? "user." : "security.");
    return user ? 1 : 6;
}

static int keep_attribute(void *arg, const char *name, const void *value, size_t size,
                          struct err *err) {
    static const uint8_t zero[ATTRIBUTES_HEAD];
    struct tree *t = arg;
    struct node *n = &t->v[t->count - 1];
    uint8_t prefix = (uint8_t)prefix_of(&name);
    size_t len = strlen(name), before = t->texts.len;
    const uint8_t head[] = {(uint8_t)len, prefix, (uint8_t)size, (uint8_t)(size >> 8)};
    bool fits = size <= UINT16_MAX && len <= NAME_MAX_BYTES;
    if (fits && !n->attribute_bytes) {
        n->attributes = t->texts.len;
        fits = buf_add(&t->texts, zero, sizeof(zero));
    }
    if (!fits || !buf_add(&t->texts, head, sizeof(head)) || !buf_add(&t->texts, name, len) ||
        !buf_add(&t->texts, value, size) ||
        !buf_add(&t->texts, zero, -(sizeof(head) + len + size) & 3))
        return too_large(err);
    n->attribute_bytes += (uint32_t)(t->texts.len - before);
    return n->attribute_bytes <= ATTRIBUTES_MAX ? 0 : too_large(err);
}

static int note_linked(struct tree *t, const struct walk_entry *e, struct err *err) {
    struct linked *l = malloc(sizeof(*l) + strlen(e->path) + 1);
    if (!l)
        return err_set(err, ERR_LIMIT, "out of memory");
    l->node = (uint32_t)(t->count - 1);
    memcpy(l->path, e->path, strlen(e->path) + 1);
    map_put(&t->links, l->path, l);
    return 0;
}

static unsigned depth_of(const char *path) {
    unsigned n = *path != '\0';
    for (; *path; path++)
        n += *path == '/';
    return n;
}

/* Adds the newest node to the children of its parent, which keep the order of the walk. */
static void join_parent(struct tree *t, const char *path) {
    uint32_t self = (uint32_t)(t->count - 1);
    unsigned depth = depth_of(path);
    t->above[depth] = self;
    if (depth == 0)
        return;
    struct node *parent = &t->v[t->above[depth - 1]];
    t->v[self].parent = t->above[depth - 1];
    if (parent->child)
        t->v[parent->last_child].next = self;
    else
        parent->child = self;
    parent->last_child = self;
    if (S_ISDIR(t->v[self].mode))
        parent->links++;
}

static int collect(void *arg, const struct walk_entry *e, struct err *err) {
    struct tree *t = arg;
    struct node *n = node_new(t, err);
    if (!n || keep_text(t, image_path_last(e->path), &n->name, err) < 0)
        return -1;
    n->mode = e->mode;
    n->uid = e->uid;
    n->gid = e->gid;
    n->mtime = e->mtime;
    n->size = e->target ? strlen(e->target) : e->size;
    n->links += S_ISDIR(e->mode);
    if (e->target && keep_text(t, e->target, &n->target, err) < 0)
        return -1;
    if (e->twin) {
        const struct linked *l = map_get(&t->links, e->twin);
        if (!l)
            return err_set(err, ERR_INTERNAL, "'/%.120s' is a hard link to an unknown file",
                           e->path);
        n->twin = l->node;
        t->v[l->node].links++;
    } else if ((e->linked && note_linked(t, e, err) < 0) ||
               image_attributes(e, keep_attribute, t, err) < 0) {
        return -1;
    }
    join_parent(t, e->path);
    return 0;
}

/* ---- directories ---- */

struct entry {
    const char *name;
    uint32_t node;
};

struct entries {
    struct entry *v;
    size_t count;
};

static void entries_done(struct entries *e) {
    free(e->v);
}

static int erofs_by_name(const void *a, const void *b) {
    return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

/* Entries are sorted by name, because the kernel finds them by binary search. */
static int list_entries(const struct tree *t, uint32_t dir, struct entries *ret) {
    size_t count = 2;
    for (uint32_t c = t->v[dir].child; c; c = t->v[c].next)
        count++;
    if (!(ret->v = reallocarray(NULL, count, sizeof(*ret->v))))
        return -ENOMEM;
    ret->v[ret->count++] = (struct entry){".", dir};
    ret->v[ret->count++] = (struct entry){"..", t->v[dir].parent};
    for (uint32_t c = t->v[dir].child; c; c = t->v[c].next)
        ret->v[ret->count++] =
            (struct entry){text_at(t, t->v[c].name), t->v[c].twin ? t->v[c].twin : c};
    qsort(ret->v, ret->count, sizeof(*ret->v), erofs_by_name);
    return 0;
}

/* Returns how many entries from `first` on fit into one block, and the bytes they take. */
static size_t fill_block(const struct entries *e, size_t first, size_t *ret_bytes) {
    size_t n = first;
    *ret_bytes = 0;
    for (; n < e->count; n++) {
        size_t more = EROFS_ENTRY_BYTES + strlen(e->v[n].name);
        if (*ret_bytes + more > EROFS_BLOCK)
            break;
        *ret_bytes += more;
    }
    return n - first;
}

static int measure_dir(struct tree *t, uint32_t dir) {
    struct entries e DEFER(entries_done) = {0};
    int r = list_entries(t, dir, &e);
    uint64_t size = 0;
    for (size_t at = 0; r == 0 && at < e.count;) {
        size_t bytes, n = fill_block(&e, at, &bytes);
        at += n;
        size += at < e.count ? EROFS_BLOCK : bytes;
    }
    t->v[dir].size = size;
    return r;
}

/* Writes the entries to one block of a directory. The bytes after the last name are zero. */
static void put_block(const struct tree *t, const struct entries *e, size_t first, size_t count,
                      uint8_t to[EROFS_BLOCK]) {
    size_t name_at = count * EROFS_ENTRY_BYTES;
    memset(to, 0, EROFS_BLOCK);
    for (size_t i = 0; i < count; i++) {
        const struct entry *x = &e->v[first + i];
        size_t len = strlen(x->name);
        erofs_put_entry(to + i * EROFS_ENTRY_BYTES, t->v[x->node].at / EROFS_SLOT, name_at,
                        t->v[x->node].mode);
        memcpy(to + name_at, x->name, len);
        name_at += len;
    }
}

/* ---- layout ---- */

static uint64_t round_up(uint64_t n, uint64_t to) {
    return (n + to - 1) / to * to;
}

/* An inode, its attributes and, if it fits, the tail of its data must be in one block. */
static uint64_t place_inode(struct node *n, uint64_t at) {
    uint64_t own = EROFS_INODE_BYTES + n->attribute_bytes, tail = n->size % EROFS_BLOCK;
    n->is_inline = tail && own + tail <= EROFS_BLOCK;
    uint64_t whole = own + (n->is_inline ? tail : 0);
    uint64_t together = whole <= EROFS_BLOCK ? whole : EROFS_INODE_BYTES;
    if (at % EROFS_BLOCK + together > EROFS_BLOCK)
        at = round_up(at, EROFS_BLOCK);
    n->at = at;
    return round_up(at + whole, EROFS_SLOT);
}

static uint64_t blocks_of(const struct node *n) {
    return n->is_inline ? n->size / EROFS_BLOCK : round_up(n->size, EROFS_BLOCK) / EROFS_BLOCK;
}

/* Assigns offsets: first to all inodes, then to all data. */
static int lay_out(struct tree *t, struct err *err) {
    uint64_t at = EROFS_HEAD_AT + EROFS_HEAD_BYTES;
    for (size_t i = 0; i < t->count; i++) {
        struct node *n = &t->v[i];
        if (S_ISDIR(n->mode) && measure_dir(t, (uint32_t)i) < 0)
            return err_set(err, ERR_LIMIT, "out of memory");
        if (!n->twin)
            at = place_inode(n, at);
    }
    t->blocks = round_up(at, EROFS_BLOCK) / EROFS_BLOCK;
    for (size_t i = 0; i < t->count; i++) {
        struct node *n = &t->v[i];
        if (n->twin)
            continue;
        n->block = (uint32_t)t->blocks;
        t->blocks += blocks_of(n);
        if (t->blocks >= BLOCKS_MAX)
            return too_large(err);
    }
    return 0;
}

/* ---- writing ---- */

static int erofs_put_bytes(const struct tree *t, const void *bytes, size_t n, uint64_t at,
                           struct err *err) {
    for (size_t done = 0; done < n;) {
        ssize_t w = pwrite(t->out, (const char *)bytes + done, n - done, (off_t)(at + done));
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0)
            return err_sys(err, "cannot write the erofs file (mountable form) of the image");
        done += (size_t)w;
    }
    return 0;
}

/* tail: the last bytes of the node's data; read only if the node is inline. */
static int put_node(const struct tree *t, uint32_t number, const void *tail, struct err *err) {
    const struct node *n = &t->v[number];
    size_t tail_bytes = n->is_inline ? n->size % EROFS_BLOCK : 0;
    size_t own = EROFS_INODE_BYTES + n->attribute_bytes;
    uint8_t *bytes DEFER_FREE = malloc(own + tail_bytes);
    if (!bytes)
        return err_set(err, ERR_LIMIT, "out of memory");
    erofs_put_inode(bytes, &(struct erofs_inode){
                               .layout = n->is_inline ? EROFS_INLINE : EROFS_PLAIN,
                               .attributes = n->attribute_bytes,
                               .mode = (uint16_t)n->mode,
                               .size = n->size,
                               .block = n->block,
                               .number = number + 1,
                               .uid = n->uid,
                               .gid = n->gid,
                               .links = n->links,
                               .mtime = n->mtime,
                           });
    if (n->attribute_bytes)
        memcpy(bytes + EROFS_INODE_BYTES, text_at(t, n->attributes), n->attribute_bytes);
    if (tail_bytes)
        memcpy(bytes + own, tail, tail_bytes);
    return erofs_put_bytes(t, bytes, own + tail_bytes, n->at, err);
}

static int put_dir(struct tree *t, uint32_t dir, struct err *err) {
    struct entries e DEFER(entries_done) = {0};
    const struct node *n = &t->v[dir];
    uint64_t at = (uint64_t)n->block * EROFS_BLOCK;
    if (list_entries(t, dir, &e) < 0)
        return err_set(err, ERR_LIMIT, "out of memory");
    for (size_t i = 0; i < e.count; at += EROFS_BLOCK) {
        size_t bytes, count = fill_block(&e, i, &bytes);
        put_block(t, &e, i, count, t->piece);
        i += count;
        if ((i < e.count || !n->is_inline) &&
            erofs_put_bytes(t, t->piece, EROFS_BLOCK, at, err) < 0)
            return -1;
    }
    return put_node(t, dir, t->piece, err);
}

static int put_link(struct tree *t, uint32_t number, struct err *err) {
    const struct node *n = &t->v[number];
    const char *target = text_at(t, n->target);
    if (!n->is_inline &&
        erofs_put_bytes(t, target, (size_t)n->size, (uint64_t)n->block * EROFS_BLOCK, err) < 0)
        return -1;
    return put_node(t, number, target, err);
}

static int read_piece(const struct walk_entry *e, uint8_t *to, size_t n, struct err *err) {
    for (size_t done = 0; done < n;) {
        ssize_t got = read(e->fd, to + done, n - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? err_sys(err, "cannot read file '/%.120s'", e->path)
                           : err_set(err, ERR_BUSY, "file '/%.120s' changed while it was read",
                                     e->path);
        done += (size_t)got;
    }
    return 0;
}

/* Pieces that contain only zeros are not written, so the erofs file takes no disk space for them.
 */
static int erofs_put_file(struct tree *t, uint32_t number, const struct walk_entry *e,
                          struct err *err) {
    const struct node *n = &t->v[number];
    uint64_t beside = n->is_inline ? n->size % EROFS_BLOCK : 0, apart = n->size - beside;
    uint64_t at = (uint64_t)n->block * EROFS_BLOCK;
    for (uint64_t done = 0; done < apart;) {
        size_t piece = apart - done < PIECE ? (size_t)(apart - done) : PIECE;
        if (read_piece(e, t->piece, piece, err) < 0 ||
            (!cost_is_hole(t->piece, piece) &&
             erofs_put_bytes(t, t->piece, piece, at + done, err) < 0))
            return -1;
        done += piece;
        report_progress(t->report, number, t->bytes += piece);
    }
    if (beside && read_piece(e, t->piece, beside, err) < 0)
        return -1;
    return put_node(t, number, t->piece, err);
}

/* The second walk must find the same entries in the same order, else the tree was changed. */
static int write_entry(void *arg, const struct walk_entry *e, struct err *err) {
    struct tree *t = arg;
    uint32_t number = (uint32_t)t->at++;
    const struct node *n = number < t->count ? &t->v[number] : NULL;
    if (!n || n->mode != e->mode || strcmp(text_at(t, n->name), image_path_last(e->path)) != 0 ||
        (S_ISREG(n->mode) && n->size != e->size) || !n->twin != !e->twin)
        return err_set(err, ERR_BUSY, "path '/%.120s' changed while it was read", e->path);
    if (n->twin)
        return 0;
    switch (n->mode & S_IFMT) {
    case S_IFDIR:
        return put_dir(t, number, err);
    case S_IFREG:
        return erofs_put_file(t, number, e, err);
    case S_IFLNK:
        return put_link(t, number, err);
    default:
        return put_node(t, number, NULL, err);
    }
}

static int write_erofs_head(const struct tree *t, const char *id, struct err *err) {
    uint8_t head[EROFS_HEAD_BYTES];
    const struct erofs_head h = {.root = (uint16_t)(t->v[0].at / EROFS_SLOT),
                                 .nodes = t->count,
                                 .blocks = (uint32_t)t->blocks};
    erofs_put_head(head, &h, id);
    return erofs_put_bytes(t, head, sizeof(head), EROFS_HEAD_AT, err);
}

int image_erofs(int out, int root, struct image_ids ids, const char *id, struct report *report,
                struct err *err) {
    struct tree *t DEFER_FREE = calloc(1, sizeof(*t));
    struct walk w = {.root = root, .usr = -1, .ids = ids, .fn = collect, .arg = t};
    if (!t || !(t->piece = malloc(PIECE)))
        return err_set(err, ERR_LIMIT, "out of memory");
    t->texts = BUF(TEXTS_MAX);
    t->ids = ids;
    t->report = report;
    t->out = out;
    int r = image_walk(&w, err);
    if (r == 0)
        r = lay_out(t, err);
    if (r == 0 && ftruncate(out, (off_t)(t->blocks * EROFS_BLOCK)) < 0)
        r = err_sys(err, "cannot allocate the erofs file (mountable form) of the image");
    w.fn = write_entry;
    if (r == 0)
        r = image_walk(&w, err);
    if (r == 0)
        r = write_erofs_head(t, id, err);
    tree_done(t);
    return r;
}
