/* Property: of any record of a backup before, the next backup makes a manifest that can be read. */
#include <assert.h>
#include <string.h>

#include "base/defer.h"
#include "image/known.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SEEN_MAX = 64 };

/* The first bytes name the rest, so that inputs get past the hash. */
static void add_head(struct buf *to, const uint8_t *data, size_t size) {
    struct sha256 sum;
    uint8_t hash[SHA256_BYTES];
    sha256_init(&sum);
    sha256_add(&sum, data, size);
    sha256_end(&sum, hash);
    assert(buf_add(to, "CRLKNOW\1", 8) && buf_add(to, hash, sizeof(hash)));
    assert(!size || buf_add(to, data, size));
}

/* A machine whose root has one file, which is the first file of the record. */
static void add_file(struct manifest_maker *m, struct known *k, const struct known_file *f,
                     uint64_t size) {
    const struct manifest_entry root = {.type = MANIFEST_DIR, .mode = 0755};
    const struct manifest_entry file = {.type = MANIFEST_FILE,
                                        .depth = 1,
                                        .name = "f",
                                        .name_len = 1,
                                        .size = size,
                                        .chunks = f->chunks,
                                        .chunk_count = f->chunk_count};
    assert(manifest_add(m, &root, NULL) == 0 && manifest_add(m, &file, NULL) == 0);
    assert(known_add_file(k, &(struct known_stamp){.inode = 1}, NULL) == 0);
}

static void use(struct known *k) {
    struct manifest_maker m DEFER(manifest_done) = manifest_begin();
    struct buf text DEFER(buf_done) = BUF(MANIFEST_MAX + 1),
                    record DEFER(buf_done) = BUF(KNOWN_MAX);
    struct known again DEFER(known_done) = known_begin();
    struct manifest_entry e;
    uint8_t hash[SHA256_BYTES];
    for (uint32_t i = 0; i < known_count(k) && i < SEEN_MAX; i++)
        known_chunk(k, i, hash);
    const struct known_file *f = NULL;
    size_t at = 0;
    f = map_next(&k->files, &at);
    uint64_t size = 0;
    for (struct bytes left = k->manifest.entries; f && manifest_next(&left, &e);)
        if (e.type == MANIFEST_FILE && e.chunks == f->chunks)
            size = e.size;
    if (!f)
        return;
    add_file(&m, k, f, size);
    assert(known_end(k, &m, &text, &record, NULL) == 0);
    assert(known_read(&again, record.data, record.len, NULL) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct buf bytes DEFER(buf_done) = BUF(KNOWN_MAX);
    struct known k DEFER(known_done) = known_begin();
    add_head(&bytes, data, size);
    if (known_read(&k, bytes.data, bytes.len, NULL) == 0)
        use(&k);
    return 0;
}
