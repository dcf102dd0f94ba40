#include "base/wire/changes.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PARTS = 4, NUMBERS = 14 };

/*
 * The head of a record; the bytes of the parts follow. Both ends run on one host, so the byte order
 * is that of the host.
 */
struct head {
    uint32_t type;
    uint32_t lengths[PARTS];
    uint32_t pad;
    uint64_t numbers[NUMBERS];
};

static void numbers_of(const struct changes_record *r, uint64_t n[NUMBERS]) {
    const struct change *c = &r->change;
    if (r->type == CHANGES_CHANGE) {
        const uint64_t all[NUMBERS] = {
            c->kind,        c->content,       c->before.mode, c->before.uid, c->before.gid,
            c->before.size, c->after.mode,    c->after.uid,   c->after.gid,  c->after.size,
            c->lines_added, c->lines_removed, c->own};
        memcpy(n, all, sizeof(all));
    } else if (r->type == CHANGES_END) {
        const uint64_t all[NUMBERS] = {r->end.added,      r->end.modified, r->end.deleted,
                                       r->end.read_bytes, r->end.cut,      r->end.looked};
        memcpy(n, all, sizeof(all));
    } else {
        const uint64_t all[NUMBERS] = {r->size.layer, r->size.files, r->size.bytes};
        memcpy(n, all, sizeof(all));
    }
}

bool changes_write(struct buf *out, const struct changes_record *r) {
    struct head h = {.type = r->type};
    struct bytes parts[PARTS] = {{0}};
    size_t len = out->len;
    numbers_of(r, h.numbers);
    if (r->type == CHANGES_CHANGE) {
        const struct bytes all[PARTS] = {r->change.path, r->change.target_before,
                                         r->change.target_after, r->change.diff};
        memcpy(parts, all, sizeof(all));
    }
    for (int i = 0; i < PARTS; i++)
        h.lengths[i] = (uint32_t)parts[i].n;
    bool ok = buf_add(out, &h, sizeof(h));
    for (int i = 0; ok && i < PARTS; i++)
        ok = parts[i].n == 0 || buf_add(out, parts[i].s, parts[i].n);
    if (!ok && out->data)
        out->data[out->len = len] = '\0';
    return ok;
}

/* ---- reading ---- */

static bool has_no(const struct bytes *b, char c) {
    return b->n == 0 || !memchr(b->s, c, b->n);
}

static bool is_path(const struct bytes *b) {
    return b->n > 0 && b->n <= CHANGES_PATH_MAX && b->s[0] != '/' && has_no(b, '\0');
}

static bool is_target(const struct bytes *b) {
    return b->n <= CHANGES_PATH_MAX && has_no(b, '\0');
}

/* True if all numbers fit into 32 bits, as the fields they came from do. */
static bool are_small(const uint64_t *n, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (n[i] > UINT32_MAX)
            return false;
    return true;
}

static bool sides_fit(const struct change *c) {
    bool was = c->before.mode != 0, is = c->after.mode != 0;
    return c->kind == CHANGE_ADDED     ? !was && is
           : c->kind == CHANGE_DELETED ? was && !is
                                       : was && is;
}

static bool read_change(const uint64_t n[NUMBERS], const struct bytes parts[PARTS],
                        struct change *ret) {
    if (n[0] == 0 || n[0] >= CHANGE_KINDS || n[1] >= CONTENT_KINDS || !are_small(n + 2, 3) ||
        !are_small(n + 6, 3) || n[12] > 1)
        return false;
    *ret = (struct change){
        .kind = (enum change_kind)n[0],
        .content = (enum change_content)n[1],
        .before = {(uint32_t)n[2], (uint32_t)n[3], (uint32_t)n[4], n[5]},
        .after = {(uint32_t)n[6], (uint32_t)n[7], (uint32_t)n[8], n[9]},
        .lines_added = n[10],
        .lines_removed = n[11],
        .own = n[12] == 1,
        .path = parts[0],
        .target_before = parts[1],
        .target_after = parts[2],
        .diff = parts[3],
    };
    return sides_fit(ret) && is_path(&ret->path) && is_target(&ret->target_before) &&
           is_target(&ret->target_after) && ret->diff.n <= CHANGES_DIFF_MAX;
}

static bool read_numbers(const struct head *h, const struct bytes parts[PARTS],
                         struct changes_record *ret) {
    const uint64_t *n = h->numbers;
    *ret = (struct changes_record){.type = (enum changes_type)h->type};
    switch (h->type) {
    case CHANGES_CHANGE:
        return read_change(n, parts, &ret->change);
    case CHANGES_END:
        ret->end = (struct changes_end){n[0], n[1], n[2], n[3], (enum changes_cut)n[4], n[5]};
        return n[4] < CUT_KINDS;
    case CHANGES_SIZE:
        ret->size = (struct layer_size){(uint32_t)n[0], n[1], n[2]};
        return are_small(n, 1);
    default:
        return false;
    }
}

int changes_read(const char **at, const char *end, struct changes_record *ret) {
    struct head h;
    struct bytes parts[PARTS];
    if (*at == end)
        return 0;
    if ((size_t)(end - *at) < sizeof(h))
        return -1;
    memcpy(&h, *at, sizeof(h));
    const char *s = *at + sizeof(h);
    for (int i = 0; i < PARTS; i++) {
        if (h.lengths[i] > (size_t)(end - s) || (h.type != CHANGES_CHANGE && h.lengths[i]))
            return -1;
        parts[i] = (struct bytes){s, h.lengths[i]};
        s += h.lengths[i];
    }
    if (h.pad || !read_numbers(&h, parts, ret))
        return -1;
    *at = s;
    return 1;
}

/* ---- whole answers ---- */

/* Counts the changes up to CHANGES_END; false: the records are malformed or incomplete. */
static bool count_changes(const struct buf *records, size_t *ret, struct changes_end *ret_end) {
    const char *at = records->data, *end = at + records->len;
    struct changes_record r = {.type = CHANGES_CHANGE};
    *ret = 0;
    while (records->len && changes_read(&at, end, &r) == 1 && r.type == CHANGES_CHANGE)
        ++*ret;
    *ret_end = r.end;
    return r.type == CHANGES_END && at == end;
}

bool change_list_take(struct buf *records, struct change_list *ret) {
    struct change_list list = {0};
    struct changes_record r;
    size_t count;
    if (!count_changes(records, &count, &list.end))
        return false;
    list.v = calloc(count + 1, sizeof(*list.v));
    if (!list.v)
        return false;
    const char *end = records->data + records->len;
    list.bytes = buf_take(records);
    for (const char *at = list.bytes; list.count < count && changes_read(&at, end, &r) == 1;)
        list.v[list.count++] = r.change;
    *ret = list;
    return true;
}

void change_list_done(struct change_list *list) {
    free(list->bytes);
    free(list->v);
    *list = (struct change_list){0};
}

/* ---- names ---- */

const char *change_kind_name(enum change_kind kind) {
    static const char *const names[CHANGE_KINDS] = {NULL, "added", "modified", "deleted"};
    return names[kind];
}

const char *change_content_name(enum change_content content) {
    static const char *const names[CONTENT_KINDS] = {NULL,    "text", "binary",
                                                     "large", "cut",  "unreadable"};
    return names[content];
}

const char *changes_cut_name(enum changes_cut cut) {
    static const char *const names[CUT_KINDS] = {NULL, "entries", "looked", "time", "depth"};
    return names[cut];
}

const char *change_type_name(uint32_t mode) {
    static const struct {
        uint32_t type;
        const char *name;
    } rows[] = {{S_IFREG, "file"},  {S_IFDIR, "directory"}, {S_IFLNK, "symlink"},
                {S_IFIFO, "fifo"},  {S_IFSOCK, "socket"},   {S_IFCHR, "device"},
                {S_IFBLK, "device"}};
    for (size_t i = 0; mode && i < sizeof(rows) / sizeof(*rows); i++)
        if ((mode & S_IFMT) == rows[i].type)
            return rows[i].name;
    return NULL;
}
