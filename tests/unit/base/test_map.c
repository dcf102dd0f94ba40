/* The map, and the hash that spreads its keys. */
#include "tests/unit/unit.h"

#include "base/map.h"
#include "base/siphash.h"

/* As its authors give them: key 00 01 … 0f, messages that begin 00 01 02 …. */
static void the_hash_is_siphash(void **state) {
    (void)state;
    static const struct {
        size_t size;
        uint64_t hash;
    } known[] = {
        {0, 0x726fdb47dd0e0e31}, {1, 0x74f839c593dc67fd},  {2, 0x0d6c8009d9a94f5a},
        {8, 0x93f5f5799a932462}, {15, 0xa129ca6149be45e5},
    };
    static const uint8_t bytes[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    struct siphash_key key = {{0x0706050403020100, 0x0f0e0d0c0b0a0908}};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        assert_int_equal(siphash(&key, bytes, known[i].size), known[i].hash);
    assert_int_equal(siphash(siphash_own_key(), "a", 1), siphash(siphash_own_key(), "a", 1));
    assert_int_not_equal(siphash(siphash_own_key(), "a", 1), siphash(&key, "a", 1));
}

enum { MANY = 5000 };

static void what_is_put_is_found_until_it_is_taken(void **state) {
    (void)state;
    static char keys[MANY][8];
    struct map m = {0};
    assert_null(map_get(&m, "0"));
    assert_null(map_take(&m, "0"));
    for (int i = 0; i < MANY; i++) {
        snprintf(keys[i], sizeof(keys[i]), "%d", i);
        map_put(&m, keys[i], keys[i]);
    }
    assert_int_equal(m.count, MANY);
    for (int i = 0; i < MANY; i += 2)
        assert_ptr_equal(map_take(&m, keys[i]), keys[i]);
    assert_int_equal(m.count, MANY / 2);
    for (int i = 0; i < MANY; i++)
        assert_ptr_equal(map_get(&m, keys[i]), i % 2 ? keys[i] : NULL);
    map_put(&m, keys[1], keys[3]);
    assert_ptr_equal(map_get(&m, keys[1]), keys[3]);
    assert_int_equal(m.count, MANY / 2);
    map_done(&m);
}

/* As those who empty a map do. */
static void each_is_met_once_also_when_taken_meanwhile(void **state) {
    (void)state;
    static char keys[MANY][8];
    struct map m = {0};
    char *key;
    int met = 0;
    for (int i = 0; i < MANY; i++) {
        snprintf(keys[i], sizeof(keys[i]), "%d", i);
        map_put(&m, keys[i], keys[i]);
    }
    for (size_t at = 0; (key = map_next(&m, &at)); met++)
        assert_ptr_equal(map_take(&m, key), key);
    assert_int_equal(met, MANY);
    assert_int_equal(m.count, 0);
    map_done(&m);
}

UNIT_MAIN(cmocka_unit_test(the_hash_is_siphash),
          cmocka_unit_test(what_is_put_is_found_until_it_is_taken),
          cmocka_unit_test(each_is_met_once_also_when_taken_meanwhile))
