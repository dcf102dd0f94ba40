/*
 * Properties: every prefix of a first packet gives "more" or the final verdict; what is read names
 * a user and a database; an offer that is passed on is one, offers something, and nothing that is
 * bound to TLS.
 */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/defer.h"
#include "gate/pg_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look_at_first(const uint8_t *data, size_t size) {
    struct pg_startup whole, part;
    enum pg_first v = pg_first_read(data, size, &whole);
    if (v == PG_STARTUP) {
        assert(whole.size <= size && whole.user[0] && whole.database[0]);
        assert((const uint8_t *)strchr(whole.user, '\0') < data + whole.size);
        assert((const uint8_t *)strchr(whole.database, '\0') < data + whole.size);
    }
    if (v == PG_CANCEL)
        assert(whole.key.n >= 8 && pg_key_equal(&whole.key, &whole.key));
    for (size_t n = 0; n < size; n++) {
        enum pg_first w = pg_first_read(data, n, &part);
        assert(w == PG_MORE || w == v);
    }
}

static void look_at_message(const uint8_t *data, size_t size) {
    struct buf out DEFER(buf_done) = BUF(2 * PG_GREETING_MAX);
    struct pg_message m, again;
    struct pg_key key = {0};
    if (pg_message_read(data, size, &m) <= 0)
        return;
    assert(m.size <= size && m.body + m.n == data + m.size);
    assert(pg_key_read(&m, &key) == (key.n > 0));
    if (!pg_offers_ways(&m) || !pg_put_ways(&m, &out))
        return;
    assert(pg_message_read((const uint8_t *)out.data, out.len, &again) == 1);
    assert(again.size == out.len && pg_offers_ways(&again));
    const char *way = (const char *)again.body + 4;
    assert(*way);
    for (; *way; way += strlen(way) + 1)
        assert(strlen(way) < 5 || strcmp(way + strlen(way) - 5, "-PLUS") != 0);
    assert((const uint8_t *)way + 1 == again.body + again.n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    look_at_first(data, size);
    look_at_message(data, size);
    return 0;
}
