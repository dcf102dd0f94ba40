/* Property: a manifest that parses is written again as it was, and no name leaves the tree. */
#include <assert.h>
#include <string.h>

#include "base/defer.h"
#include "packs/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void copy_packs(const struct manifest *m, struct manifest_maker *to) {
    for (uint32_t i = 0; i < m->pack_count; i++) {
        uint8_t hash[SHA256_BYTES];
        uint32_t chunks = manifest_pack(m, i, hash);
        assert(manifest_add_pack(to, hash, chunks, NULL) == 0);
    }
}

static void copy_entry(const struct manifest_entry *from, struct manifest_maker *to) {
    struct buf text DEFER(buf_done) = BUF(MANIFEST_MAX);
    struct manifest_entry e = *from;
    struct manifest_attribute a;
    struct bytes left = from->attributes;
    uint32_t count = 0;
    for (; manifest_attribute_next(&left, &a); count++)
        assert(manifest_put_attribute(&text, &a, NULL) == 0);
    assert(count == from->attribute_count && !left.failed);
    e.attributes = (struct bytes){.at = (const uint8_t *)text.data, .left = text.len};
    assert(!memchr(e.name, '/', e.name_len) && !(e.name_len == 2 && memcmp(e.name, "..", 2) == 0));
    assert(manifest_add(to, &e, NULL) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct manifest m;
    struct manifest_entry e;
    struct manifest_maker again DEFER(manifest_done) = manifest_begin();
    struct buf out DEFER(buf_done) = BUF(MANIFEST_MAX + 1);
    if (manifest_read(data, size, &m, NULL) < 0)
        return 0;
    again.shared = m.shared;
    copy_packs(&m, &again);
    for (struct bytes left = m.entries; manifest_next(&left, &e);)
        copy_entry(&e, &again);
    assert(manifest_end(&again, &out, NULL) == 0);
    assert(out.len == size && memcmp(out.data, data, size) == 0);
    return 0;
}
