/* Property: the parts of a form are the same however its bytes are cut. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "api/e2b/multipart.h"
#include "base/defer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t mix(uint64_t hash, const char *s, size_t n) {
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ (uint8_t)s[i]) * 0x100000001b3ull;
    return hash;
}

/* Takes all events that the bytes so far hold. False: no more bytes are wanted. */
static bool take_events(struct multipart *m, uint64_t *hash) {
    struct http_text data = {0};
    struct err err;
    for (;;) {
        int event = multipart_next(m, &data, &err);
        if (event == MULTIPART_MORE)
            return true;
        if (event == MULTIPART_DATA) {
            assert(data.n > 0 && data.n <= MULTIPART_DATA_MAX);
            assert(data.s >= m->in.data && data.s + data.n <= m->in.data + m->in.len);
            *hash = mix(*hash, data.s, data.n);
            continue;
        }
        *hash = *hash * 31 + (uint64_t)(event + 2);
        if (event == MULTIPART_PART) {
            *hash = mix(*hash, m->part_name, strlen(m->part_name));
            *hash = mix(*hash, m->file_name, strlen(m->file_name)) + m->has_file_name;
        }
        if (event == MULTIPART_END || event < 0)
            return false;
    }
}

static uint64_t run(const char *bytes, size_t n, size_t step) {
    struct multipart m DEFER(multipart_done);
    struct err err;
    uint64_t hash = 0;
    bool more = true;
    assert(multipart_init(&m, HTTP_TEXT("multipart/form-data; boundary=\"b\""), &err) == 0);
    for (size_t i = 0; more && i < n; i += step) {
        size_t piece = step < n - i ? step : n - i;
        if (!buf_add(&m.in, bytes + i, piece))
            return 0;
        more = take_events(&m, &hash);
    }
    return hash;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct multipart m;
    struct err err;
    if (size == 0 || size > 1 << 19)
        return 0;
    const char *bytes = (const char *)data + 1;
    assert(run(bytes, size - 1, size) == run(bytes, size - 1, data[0] % 19 + 1));
    if (multipart_init(&m, (struct http_text){bytes, size - 1}, &err) == 0)
        assert(m.delimiter_len > 4 && m.delimiter_len < sizeof(m.delimiter));
    multipart_done(&m);
    return 0;
}
