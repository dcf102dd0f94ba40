#include "packs/manifest.h"

#include <assert.h>
#include <string.h>

#include "base/defer.h"
#include "packs/cut.h"

/* A byte with the version of the format follows. */
static const uint8_t magic[7] = {'C', 'R', 'L', 'T', 'R', 'E', 'E'};
enum { VERSION_OWN = 1, VERSION_SHARED };

enum {
    PACK_ROW = SHA256_BYTES + 4,
    ENTRY_MIN = 3, /* bytes of the smallest entry: type, depth, length of the name */
};

static int manifest_refuse(struct err *err, const char *why) {
    return err_set(err, ERR_INVALID, "the manifest is damaged: %s", why);
}

/* ---- entries ---- */

static void manifest_take_text(struct bytes *b, unsigned size, const char **ret, size_t *ret_len) {
    size_t n = (size_t)bytes_take_number(b, size);
    const uint8_t *at = bytes_take(b, n);
    *ret = at ? (const char *)at : "";
    *ret_len = at ? n : 0;
}

bool manifest_attribute_next(struct bytes *attributes, struct manifest_attribute *ret) {
    if (!attributes->left)
        return false;
    const char *value;
    manifest_take_text(attributes, 1, &ret->name, &ret->name_len);
    manifest_take_text(attributes, 4, &value, &ret->size);
    ret->value = (const uint8_t *)value;
    return !attributes->failed;
}

static void manifest_take_attributes(struct bytes *b, struct manifest_entry *e) {
    struct manifest_attribute a;
    e->attribute_count = (uint32_t)bytes_take_number(b, 1);
    struct bytes from = *b;
    for (uint32_t i = 0; i < e->attribute_count && !b->failed; i++)
        b->failed = !manifest_attribute_next(b, &a);
    from.left -= b->failed ? from.left : b->left;
    e->attributes = from;
}

static void manifest_take_file(struct bytes *b, struct manifest_entry *e) {
    manifest_take_attributes(b, e);
    e->size = bytes_take_number(b, 8);
    e->chunk_count = (uint32_t)bytes_take_number(b, 4);
    e->chunks = e->chunk_count ? bytes_take(b, 4 * (size_t)e->chunk_count) : NULL;
}

/* Reads an entry without judging it. b->failed: the entry is cut off. */
static void manifest_take_entry(struct bytes *b, struct manifest_entry *e) {
    *e = (struct manifest_entry){.type = (enum manifest_type)bytes_take_number(b, 1)};
    e->depth = (unsigned)bytes_take_number(b, 1);
    manifest_take_text(b, 1, &e->name, &e->name_len);
    if (e->type == MANIFEST_HARDLINK)
        e->twin = (uint32_t)bytes_take_number(b, 4);
    if (e->type == MANIFEST_HARDLINK || e->type == MANIFEST_WHITEOUT)
        return;
    e->mode = (uint32_t)bytes_take_number(b, 2);
    e->uid = (uint32_t)bytes_take_number(b, 2);
    e->gid = (uint32_t)bytes_take_number(b, 2);
    e->mtime = (int64_t)bytes_take_number(b, 8);
    if (e->type == MANIFEST_FILE)
        manifest_take_file(b, e);
    else if (e->type == MANIFEST_SYMLINK)
        manifest_take_text(b, 2, &e->target, &e->target_len);
}

bool manifest_next(struct bytes *entries, struct manifest_entry *ret) {
    if (!entries->left)
        return false;
    manifest_take_entry(entries, ret);
    return !entries->failed;
}

uint32_t manifest_chunk(const struct manifest_entry *e, uint32_t i) {
    assert(i < e->chunk_count);
    return (uint32_t)bytes_number(e->chunks + 4 * (size_t)i, 4);
}

uint32_t manifest_pack(const struct manifest *m, uint32_t i, uint8_t ret_hash[SHA256_BYTES]) {
    const uint8_t *row = m->packs + (size_t)i * PACK_ROW;
    assert(i < m->pack_count);
    memcpy(ret_hash, row, SHA256_BYTES);
    return (uint32_t)bytes_number(row + SHA256_BYTES, 4);
}

/* ---- checks ---- */

/* A directory on the path to the current entry. */
struct manifest_dir {
    const char *last; /* name of its latest entry; NULL: none yet */
    size_t last_len, path_len;
};

struct checking {
    struct manifest_dir dirs[MANIFEST_DEPTH_MAX + 1];
    unsigned depth;   /* entries of depth 1 to this one may follow */
    uint8_t *is_file; /* for each entry so far */
    uint32_t number;  /* of the current entry */
    uint32_t chunks;  /* chunks that were used so far */
};

/* Compares two texts by their bytes. */
static int manifest_order(const char *a, size_t n, const char *b, size_t m) {
    int order = memcmp(a, b, n < m ? n : m);
    return order ? order : n < m ? -1 : n > m;
}

static bool manifest_is_name(const char *name, size_t n) {
    return n && !memchr(name, '/', n) && !memchr(name, '\0', n) && !(n == 1 && name[0] == '.') &&
           !(n == 2 && name[0] == '.' && name[1] == '.');
}

static int manifest_check_place(struct checking *c, const struct manifest_entry *e,
                                struct err *err) {
    if (c->number == 0)
        return e->type == MANIFEST_DIR && !e->depth && !e->name_len
                   ? 0
                   : manifest_refuse(err, "its first entry is not the root");
    if (!e->depth || e->depth > c->depth)
        return manifest_refuse(err, "an entry is in no directory");
    if (e->depth > MANIFEST_DEPTH_MAX)
        return manifest_refuse(err, "its directories are too deep");
    if (!manifest_is_name(e->name, e->name_len))
        return manifest_refuse(err, "an entry has an impossible name");
    struct manifest_dir *d = &c->dirs[e->depth - 1];
    if (d->last && manifest_order(d->last, d->last_len, e->name, e->name_len) >= 0)
        return manifest_refuse(err, "its names are repeated or not sorted");
    if (d->path_len + 1 + e->name_len > MANIFEST_PATH_MAX)
        return manifest_refuse(err, "a path is too long");
    d->last = e->name;
    d->last_len = e->name_len;
    return 0;
}

static int manifest_check_kind(const struct checking *c, const struct manifest_entry *e,
                               struct err *err) {
    if (e->type < MANIFEST_DIR || e->type > MANIFEST_WHITEOUT)
        return manifest_refuse(err, "an entry has an unknown type");
    if (e->mode > 07777)
        return manifest_refuse(err, "an entry has an impossible mode");
    if (e->type == MANIFEST_HARDLINK && (e->twin >= c->number || !c->is_file[e->twin]))
        return manifest_refuse(err, "a hard link does not lead to an earlier file");
    if (e->type == MANIFEST_SYMLINK && (!e->target_len || e->target_len > MANIFEST_PATH_MAX ||
                                        memchr(e->target, '\0', e->target_len)))
        return manifest_refuse(err, "a symbolic link has an impossible target");
    return 0;
}

static bool attribute_starts(const struct manifest_attribute *a, const char *text) {
    return a->name_len > strlen(text) && memcmp(a->name, text, strlen(text)) == 0;
}

/* Only attributes that an image can have: none that overlayfs or the host acts on. */
static bool attribute_is_allowed(const struct manifest_attribute *a) {
    static const char capability[] = "security.capability";
    return (attribute_starts(a, "user.") && !attribute_starts(a, "user.overlay.")) ||
           (a->name_len == strlen(capability) && memcmp(a->name, capability, a->name_len) == 0);
}

static int manifest_check_attributes(const struct manifest_entry *e, struct err *err) {
    struct bytes left = e->attributes;
    struct manifest_attribute a, last = {.name = NULL};
    size_t total = 0;
    if (e->attribute_count > MANIFEST_ATTRIBUTES_MAX)
        return manifest_refuse(err, "an entry has too many attributes");
    for (; manifest_attribute_next(&left, &a); last = a) {
        if (!attribute_is_allowed(&a) || memchr(a.name, '\0', a.name_len))
            return manifest_refuse(err, "an attribute is not allowed");
        if (last.name && manifest_order(last.name, last.name_len, a.name, a.name_len) >= 0)
            return manifest_refuse(err, "its attributes are repeated or not sorted");
        if ((total += a.size) > MANIFEST_VALUE_MAX)
            return manifest_refuse(err, "the attributes of an entry are too large");
    }
    return 0;
}

/* A chunk is new, and then has the next number, or was used before. */
static int manifest_check_chunks(struct checking *c, const struct manifest *m,
                                 const struct manifest_entry *e, struct err *err) {
    if ((e->size == 0) != (e->chunk_count == 0) || e->chunk_count > e->size ||
        e->size > (uint64_t)e->chunk_count * CUT_MAX)
        return manifest_refuse(err, "the size of a file does not fit its chunks");
    for (uint32_t i = 0; i < e->chunk_count; i++) {
        uint32_t n = manifest_chunk(e, i);
        if ((n > c->chunks && !m->shared) || n >= m->chunk_count)
            return manifest_refuse(err, "a chunk has a number out of order");
        c->chunks += n == c->chunks;
    }
    return 0;
}

static int manifest_check_entry(struct checking *c, const struct manifest *m,
                                const struct manifest_entry *e, struct err *err) {
    if (manifest_check_place(c, e, err) < 0 || manifest_check_kind(c, e, err) < 0 ||
        manifest_check_attributes(e, err) < 0 || manifest_check_chunks(c, m, e, err) < 0)
        return -1;
    c->is_file[c->number++] = e->type == MANIFEST_FILE;
    c->depth = e->depth;
    if (e->type != MANIFEST_DIR)
        return 0;
    size_t above = e->depth ? c->dirs[e->depth - 1].path_len : 0;
    c->dirs[e->depth] = (struct manifest_dir){.path_len = e->depth ? above + 1 + e->name_len : 0};
    c->depth = e->depth + 1;
    return 0;
}

static int manifest_check_packs(struct manifest *m, struct err *err) {
    uint64_t chunks = 0;
    for (uint32_t i = 0; i < m->pack_count; i++) {
        uint8_t hash[SHA256_BYTES];
        uint32_t count = manifest_pack(m, i, hash);
        chunks += count;
        if (!count || chunks > UINT32_MAX)
            return manifest_refuse(err, "a pack has an impossible number of chunks");
    }
    m->chunk_count = (uint32_t)chunks;
    return 0;
}

static int manifest_check_all(const struct manifest *m, struct err *err) {
    uint8_t *is_file DEFER_FREE = calloc(m->entry_count, 1);
    struct checking *c DEFER_FREE = calloc(1, sizeof(*c));
    struct bytes left = m->entries;
    struct manifest_entry e;
    if (!is_file || !c)
        return err_set(err, ERR_LIMIT, "out of memory");
    c->is_file = is_file;
    while (c->number < m->entry_count) {
        if (!manifest_next(&left, &e))
            return manifest_refuse(err, "an entry is cut off");
        if (manifest_check_entry(c, m, &e, err) < 0)
            return -1;
    }
    if (left.left)
        return manifest_refuse(err, "bytes follow the last entry");
    return !m->shared && c->chunks != m->chunk_count ? manifest_refuse(err, "a chunk is in no file")
                                                     : 0;
}

int manifest_read(const void *bytes, size_t n, struct manifest *ret, struct err *err) {
    struct bytes b = {.at = bytes, .left = n};
    struct manifest m = {.pack_count = 0};
    if (n > MANIFEST_MAX)
        return err_set(err, ERR_LIMIT, "the manifest is larger than %d MiB", MANIFEST_MAX >> 20);
    const uint8_t *start = bytes_take(&b, sizeof(magic));
    uint64_t version = bytes_take_number(&b, 1);
    if (!start || b.failed || memcmp(start, magic, sizeof(magic)) != 0)
        return err_set(err, ERR_INVALID, "the file is not a manifest");
    if (version != VERSION_OWN && version != VERSION_SHARED)
        return err_set(err, ERR_UNSUPPORTED,
                       "the manifest has version %d, but only versions %d and %d are known",
                       (int)version, VERSION_OWN, VERSION_SHARED);
    m.shared = version == VERSION_SHARED;
    m.pack_count = (uint32_t)bytes_take_number(&b, 4);
    m.entry_count = (uint32_t)bytes_take_number(&b, 4);
    if (m.pack_count > MANIFEST_PACKS_MAX || m.entry_count > MANIFEST_ENTRIES_MAX)
        return err_set(err, ERR_LIMIT, "the manifest has too many packs or entries");
    m.packs = bytes_take(&b, (size_t)m.pack_count * PACK_ROW);
    m.entries = b;
    /* So a short manifest cannot ask for much memory. */
    if (b.failed || !m.entry_count || m.entry_count > b.left / ENTRY_MIN)
        return manifest_refuse(err, "its number of packs or entries is impossible");
    if (manifest_check_packs(&m, err) < 0 || manifest_check_all(&m, err) < 0)
        return -1;
    *ret = m;
    return 0;
}

/* ---- writing ---- */

struct manifest_maker manifest_begin(void) {
    return (struct manifest_maker){.packs = BUF(MANIFEST_MAX), .entries = BUF(MANIFEST_MAX)};
}

void manifest_done(struct manifest_maker *m) {
    buf_done(&m->packs);
    buf_done(&m->entries);
}

static int manifest_too_large(struct err *err) {
    return err_set(err, ERR_LIMIT, "cannot write a manifest of more than %d MiB",
                   MANIFEST_MAX >> 20);
}

static bool manifest_put_text(struct buf *to, unsigned size, const char *text, size_t n) {
    return n >> 8 * size == 0 && bytes_put_number(to, n, size) && (!n || buf_add(to, text, n));
}

int manifest_add_pack(struct manifest_maker *m, const uint8_t hash[SHA256_BYTES], uint32_t chunks,
                      struct err *err) {
    if (!buf_add(&m->packs, hash, SHA256_BYTES) || !bytes_put_number(&m->packs, chunks, 4))
        return manifest_too_large(err);
    m->pack_count++;
    return 0;
}

int manifest_put_attribute(struct buf *to, const struct manifest_attribute *a, struct err *err) {
    return manifest_put_text(to, 1, a->name, a->name_len) &&
                   manifest_put_text(to, 4, (const char *)a->value, a->size)
               ? 0
               : manifest_too_large(err);
}

static bool manifest_put_file(struct buf *to, const struct manifest_entry *e) {
    return bytes_put_number(to, e->attribute_count, 1) &&
           (!e->attributes.left || buf_add(to, e->attributes.at, e->attributes.left)) &&
           bytes_put_number(to, e->size, 8) && bytes_put_number(to, e->chunk_count, 4) &&
           (!e->chunk_count || buf_add(to, e->chunks, 4 * (size_t)e->chunk_count));
}

static bool manifest_put_entry(struct buf *to, const struct manifest_entry *e) {
    if (!bytes_put_number(to, e->type, 1) || !bytes_put_number(to, e->depth, 1) ||
        !manifest_put_text(to, 1, e->name, e->name_len))
        return false;
    if (e->type == MANIFEST_HARDLINK)
        return bytes_put_number(to, e->twin, 4);
    if (e->type == MANIFEST_WHITEOUT)
        return true;
    return bytes_put_number(to, e->mode, 2) && bytes_put_number(to, e->uid, 2) &&
           bytes_put_number(to, e->gid, 2) && bytes_put_number(to, (uint64_t)e->mtime, 8) &&
           (e->type != MANIFEST_FILE || manifest_put_file(to, e)) &&
           (e->type != MANIFEST_SYMLINK || manifest_put_text(to, 2, e->target, e->target_len));
}

int manifest_add(struct manifest_maker *m, const struct manifest_entry *e, struct err *err) {
    if (e->uid > MANIFEST_ID_MAX || e->gid > MANIFEST_ID_MAX || e->mode > 07777 || e->depth > 255)
        return err_set(err, ERR_INVALID,
                       "a file has an owner, mode or depth that a manifest cannot have");
    if (!manifest_put_entry(&m->entries, e))
        return manifest_too_large(err);
    m->entry_count++;
    return 0;
}

int manifest_end(const struct manifest_maker *m, struct buf *ret, struct err *err) {
    struct manifest own;
    bool fits = buf_add(ret, magic, sizeof(magic)) &&
                bytes_put_number(ret, m->shared ? VERSION_SHARED : VERSION_OWN, 1) &&
                bytes_put_number(ret, m->pack_count, 4) &&
                bytes_put_number(ret, m->entry_count, 4) &&
                (!m->packs.len || buf_add(ret, m->packs.data, m->packs.len)) &&
                (!m->entries.len || buf_add(ret, m->entries.data, m->entries.len));
    return fits ? manifest_read(ret->data, ret->len, &own, err) : manifest_too_large(err);
}
