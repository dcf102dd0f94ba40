/* Property: a pack that parses is written again as it was. Its frames open or are refused. */
#include <assert.h>
#include <string.h>

#include "base/defer.h"
#include "packs/packfile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A frame as the maker wants it, with bytes that are compressed already. */
static void copy_frame(const struct packfile *p, const struct packfile_part *part,
                       struct packfile_maker *to) {
    struct packfile_frame f DEFER(packfile_frame_done) = packfile_frame_begin();
    static const uint8_t zeros[CUT_MAX];
    struct packfile_chunk c;
    for (uint32_t i = 0; i < part->count; i++) {
        packfile_chunk_at(p, part->first + i, &c);
        assert(packfile_frame_add(&f, zeros, c.size, c.hash, NULL) == 0);
    }
    assert(f.raw.len == part->raw_size);
    f.stored.max = PACKFILE_MAX;
    assert(buf_add(&f.stored, part->stored, part->stored_size));
    assert(packfile_add(to, &f, NULL) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t raw[PACKFILE_FRAME_MAX];
    struct packfile p;
    struct packfile_part part = {.count = 0};
    struct packfile_maker again DEFER(packfile_done) = packfile_begin();
    struct buf out DEFER(buf_done) = BUF(PACKFILE_MAX + 1);
    if (packfile_read(data, size, &p, NULL) < 0 || size >= PACKFILE_FULL)
        return 0;
    while (packfile_next(&p, &part)) {
        packfile_open(&p, &part, raw, NULL);
        copy_frame(&p, &part, &again);
    }
    assert(packfile_end(&again, &out, NULL) == 0);
    assert(out.len == size && memcmp(out.data, data, size) == 0);
    return 0;
}
