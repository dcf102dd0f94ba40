#include "image/known.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/defer.h"

/* The last byte is the version. */
static const uint8_t magic[8] = {'C', 'R', 'L', 'K', 'N', 'O', 'W', 1};

enum {
    HEAD = 8 + SHA256_BYTES, /* magic, hash of all that follows */
    STAMP_ROW = 32,
    CHUNK_ROW = SHA256_BYTES + 4,
    KEY_SIZE = 5 * 17,
    SPARSE_PART = 4, /* a pack is left when less than a quarter of its contents is used */
};

struct known known_begin(void) {
    return (struct known){.stamps = BUF(KNOWN_MAX), .fresh = BUF(KNOWN_MAX)};
}

void known_done(struct known *k) {
    struct known_file *f;
    for (size_t at = 0; (f = map_next(&k->files, &at));)
        free(f);
    map_done(&k->files);
    buf_done(&k->stamps);
    buf_done(&k->fresh);
    free(k->starts);
    free(k->sparse);
}

static int known_refuse(struct err *err) {
    return err_set(err, ERR_INVALID, "the record of the backup before is damaged");
}

static void known_key(const struct known_stamp *s, uint64_t size, char ret[KEY_SIZE]) {
    snprintf(ret, KEY_SIZE, "%" PRIx64 ".%" PRIx64 ".%" PRIx64 ".%" PRIx64 ".%" PRIx64, s->inode,
             (uint64_t)s->born_ns, (uint64_t)s->modified_ns, (uint64_t)s->changed_ns, size);
}

/* ---- the backup before ---- */

static uint32_t known_pack_of(const struct known *k, uint32_t chunk) {
    uint32_t low = 0, high = k->manifest.pack_count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (k->starts[middle] <= chunk)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static uint32_t known_size(const struct known *k, uint32_t chunk) {
    return (uint32_t)bytes_number(k->chunks + (size_t)chunk * CHUNK_ROW + SHA256_BYTES, 4);
}

static uint32_t known_end_of(const struct known *k, uint32_t pack) {
    return pack + 1 < k->manifest.pack_count ? k->starts[pack + 1] : k->manifest.chunk_count;
}

/* Finds the packs of which the backup uses little. used: for each chunk. */
static void known_judge(struct known *k, const bool *used) {
    for (uint32_t p = 0; p < k->manifest.pack_count; p++) {
        uint64_t all = 0, some = 0;
        for (uint32_t i = k->starts[p]; i < known_end_of(k, p); i++) {
            all += known_size(k, i);
            some += used[i] ? known_size(k, i) : 0;
        }
        k->sparse[p] = some * SPARSE_PART < all;
    }
}

static int known_prepare(struct known *k, struct err *err) {
    bool *used DEFER_FREE = calloc((size_t)k->manifest.chunk_count + 1, 1);
    struct manifest_entry e;
    uint32_t chunks = 0;
    k->starts = calloc((size_t)k->manifest.pack_count + 1, sizeof(*k->starts));
    k->sparse = calloc((size_t)k->manifest.pack_count + 1, sizeof(*k->sparse));
    if (!used || !k->starts || !k->sparse)
        return err_set(err, ERR_LIMIT, "out of memory");
    for (uint32_t i = 0; i < k->manifest.pack_count; i++) {
        uint8_t hash[SHA256_BYTES];
        k->starts[i] = chunks;
        chunks += manifest_pack(&k->manifest, i, hash);
    }
    for (struct bytes left = k->manifest.entries; manifest_next(&left, &e);)
        for (uint32_t i = 0; i < e.chunk_count; i++)
            used[manifest_chunk(&e, i)] = true;
    known_judge(k, used);
    return 0;
}

static bool known_is_usable(const struct known *k, const struct manifest_entry *e) {
    for (uint32_t i = 0; i < e->chunk_count; i++)
        if (k->sparse[known_pack_of(k, manifest_chunk(e, i))])
            return false;
    return true;
}

static int known_keep(struct known *k, const struct manifest_entry *e, const uint8_t *row,
                      struct err *err) {
    struct known_file *f = malloc(sizeof(*f) + KEY_SIZE);
    const struct known_stamp stamp = {bytes_number(row, 8), (int64_t)bytes_number(row + 8, 8),
                                      (int64_t)bytes_number(row + 16, 8),
                                      (int64_t)bytes_number(row + 24, 8)};
    if (!f)
        return err_set(err, ERR_LIMIT, "out of memory");
    *f = (struct known_file){.chunks = e->chunks, .chunk_count = e->chunk_count};
    known_key(&stamp, e->size, f->key);
    if (map_get(&k->files, f->key))
        free(f);
    else
        map_put(&k->files, f->key, f);
    return 0;
}

static void known_hash(const void *bytes, size_t n, uint8_t ret[SHA256_BYTES]) {
    struct sha256 sum;
    sha256_init(&sum);
    sha256_add(&sum, bytes, n);
    sha256_end(&sum, ret);
}

int known_read(struct known *k, const void *bytes, size_t n, struct err *err) {
    struct bytes b = {.at = bytes, .left = n};
    struct manifest_entry e;
    uint8_t hash[SHA256_BYTES];
    const uint8_t *start = bytes_take(&b, HEAD);
    if (!start || memcmp(start, magic, sizeof(magic)) != 0)
        return known_refuse(err);
    known_hash(b.at, b.left, hash);
    if (memcmp(hash, start + sizeof(magic), SHA256_BYTES) != 0)
        return known_refuse(err);
    uint64_t size = bytes_take_number(&b, 8), files = 0;
    const uint8_t *text = size > b.left ? NULL : bytes_take(&b, (size_t)size);
    if (!text || manifest_read(text, (size_t)size, &k->manifest, err) < 0)
        return known_refuse(err);
    for (struct bytes left = k->manifest.entries; manifest_next(&left, &e);)
        files += e.type == MANIFEST_FILE;
    const uint8_t *stamps = bytes_take(&b, (size_t)files * STAMP_ROW);
    k->chunks = bytes_take(&b, (size_t)k->manifest.chunk_count * CHUNK_ROW);
    if (b.failed || b.left || known_prepare(k, err) < 0)
        return known_refuse(err);
    for (struct bytes left = k->manifest.entries; manifest_next(&left, &e);) {
        if (e.type != MANIFEST_FILE)
            continue;
        if (known_is_usable(k, &e) && known_keep(k, &e, stamps, err) < 0)
            return -1;
        stamps += STAMP_ROW;
    }
    return 0;
}

uint32_t known_count(const struct known *k) {
    return k->manifest.chunk_count;
}

bool known_chunk(const struct known *k, uint32_t number, uint8_t ret_hash[SHA256_BYTES]) {
    memcpy(ret_hash, k->chunks + (size_t)number * CHUNK_ROW, SHA256_BYTES);
    return !k->sparse[known_pack_of(k, number)];
}

const struct known_file *known_find(const struct known *k, const struct known_stamp *stamp,
                                    uint64_t size) {
    char key[KEY_SIZE];
    known_key(stamp, size, key);
    return map_get(&k->files, key);
}

/* ---- the new backup ---- */

static int known_too_large(struct err *err) {
    return err_set(err, ERR_LIMIT, "the machine has too many files for a backup");
}

int known_add_file(struct known *k, const struct known_stamp *s, struct err *err) {
    return bytes_put_number(&k->stamps, s->inode, 8) &&
                   bytes_put_number(&k->stamps, (uint64_t)s->born_ns, 8) &&
                   bytes_put_number(&k->stamps, (uint64_t)s->modified_ns, 8) &&
                   bytes_put_number(&k->stamps, (uint64_t)s->changed_ns, 8)
               ? 0
               : known_too_large(err);
}

int known_add_chunk(struct known *k, const uint8_t hash[SHA256_BYTES], size_t size,
                    struct err *err) {
    return buf_add(&k->fresh, hash, SHA256_BYTES) && bytes_put_number(&k->fresh, size, 4)
               ? 0
               : known_too_large(err);
}

/* Adds the older packs that entries use. Sets moved[i]: the new number of the first chunk of pack
 * i, and *rows: the hashes and sizes of their chunks. Returns the number of chunks, or -1. */
static int64_t known_take_packs(const struct known *k, const struct manifest_maker *from,
                                struct manifest_maker *to, uint32_t *moved, struct buf *rows,
                                struct err *err) {
    struct bytes left = {.at = (const uint8_t *)from->entries.data, .left = from->entries.len};
    bool *used DEFER_FREE = calloc((size_t)k->manifest.pack_count + 1, 1);
    struct manifest_entry e;
    uint32_t chunks = 0;
    if (!used)
        return err_set(err, ERR_LIMIT, "out of memory");
    while (manifest_next(&left, &e))
        for (uint32_t i = 0; i < e.chunk_count; i++)
            if (manifest_chunk(&e, i) < k->manifest.chunk_count)
                used[known_pack_of(k, manifest_chunk(&e, i))] = true;
    for (uint32_t p = 0; p < k->manifest.pack_count; p++) {
        uint8_t hash[SHA256_BYTES];
        uint32_t count = manifest_pack(&k->manifest, p, hash);
        if (!used[p])
            continue;
        moved[p] = chunks;
        chunks += count;
        if (manifest_add_pack(to, hash, count, err) < 0 ||
            !buf_add(rows, k->chunks + (size_t)k->starts[p] * CHUNK_ROW, (size_t)count * CHUNK_ROW))
            return known_too_large(err);
    }
    return chunks;
}

/* Gives the chunks in the entries their final numbers. first: the number of the first new one. */
static void known_number(const struct known *k, struct manifest_maker *m, const uint32_t *moved,
                         uint32_t first) {
    struct bytes left = {.at = (const uint8_t *)m->entries.data, .left = m->entries.len};
    struct manifest_entry e;
    while (manifest_next(&left, &e)) {
        uint8_t *entries = (uint8_t *)m->entries.data;
        uint8_t *at = e.chunk_count ? entries + (e.chunks - entries) : NULL;
        for (uint32_t i = 0; i < e.chunk_count; i++) {
            uint32_t old = manifest_chunk(&e, i), pack = 0;
            bool is_known = old < k->manifest.chunk_count;
            if (is_known)
                pack = known_pack_of(k, old);
            little_put(at + 4 * (size_t)i,
                       is_known ? moved[pack] + (old - k->starts[pack])
                                : first + (old - k->manifest.chunk_count),
                       4);
        }
    }
}

int known_end(struct known *k, struct manifest_maker *m, struct buf *ret, struct buf *ret_record,
              struct err *err) {
    struct manifest_maker all DEFER(manifest_done) = manifest_begin();
    struct buf rows DEFER(buf_done) = BUF(KNOWN_MAX);
    uint32_t *moved DEFER_FREE = calloc((size_t)k->manifest.pack_count + 1, sizeof(*moved));
    if (!moved)
        return err_set(err, ERR_LIMIT, "out of memory");
    int64_t first = known_take_packs(k, m, &all, moved, &rows, err);
    if (first < 0)
        return -1;
    known_number(k, m, moved, (uint32_t)first);
    if ((m->packs.len && !buf_add(&all.packs, m->packs.data, m->packs.len)) ||
        (m->entries.len && !buf_add(&all.entries, m->entries.data, m->entries.len)))
        return known_too_large(err);
    all.pack_count += m->pack_count;
    all.entry_count = m->entry_count;
    all.shared = true;
    if (manifest_end(&all, ret, err) < 0)
        return -1;
    uint8_t hash[SHA256_BYTES] = {0};
    if (!buf_add(ret_record, magic, sizeof(magic)) || !buf_add(ret_record, hash, sizeof(hash)) ||
        !bytes_put_number(ret_record, ret->len, 8) || !buf_add(ret_record, ret->data, ret->len) ||
        (k->stamps.len && !buf_add(ret_record, k->stamps.data, k->stamps.len)) ||
        (rows.len && !buf_add(ret_record, rows.data, rows.len)) ||
        (k->fresh.len && !buf_add(ret_record, k->fresh.data, k->fresh.len)))
        return known_too_large(err);
    known_hash(ret_record->data + HEAD, ret_record->len - HEAD, hash);
    memcpy(ret_record->data + sizeof(magic), hash, sizeof(hash));
    return 0;
}
