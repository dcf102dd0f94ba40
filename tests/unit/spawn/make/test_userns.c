#include "tests/unit/unit.h"

#include <string.h>

#include "spawn/make/userns.h"

/* Where an id on disk appears; -1: nowhere. And that no two ids share a place. */
static int64_t seen(const struct id_list *ids, uint32_t id) {
    int64_t at = -1;
    for (unsigned i = 0; i < ids->count; i++)
        if (id >= ids->list[i].inside && id - ids->list[i].inside < ids->list[i].count) {
            assert_int_equal(at, -1);
            at = (int64_t)ids->list[i].outside + (id - ids->list[i].inside);
        }
    return at;
}

static void one_to_one(const struct id_list *ids) {
    for (unsigned i = 0; i < ids->count; i++)
        for (unsigned k = 0; k < i; k++) {
            const struct id_extent *a = &ids->list[i], *b = &ids->list[k];
            assert_true(a->outside + a->count <= b->outside || b->outside + b->count <= a->outside);
            assert_true((uint64_t)a->inside + a->count <= b->inside ||
                        (uint64_t)b->inside + b->count <= a->inside);
        }
}

static void the_owner_becomes_user_whatever_its_number(void **state) {
    (void)state;
    static const uint32_t owners[] = {0,     1,     999,   1000,  1001,
                                      30000, 65534, 65535, 65536, 4000000000u};
    for (size_t i = 0; i < sizeof(owners) / sizeof(*owners); i++) {
        struct id_list ids = id_list_swap(owners[i], 700000);
        assert_true(ids.count <= ID_EXTENTS);
        one_to_one(&ids);
        assert_int_equal(seen(&ids, owners[i]), 701000);
        if (owners[i] < SLOT_IDS)
            assert_int_equal(seen(&ids, 1000), 700000 + owners[i]);
        else
            assert_int_equal(seen(&ids, 1000), -1);
        assert_int_equal(seen(&ids, 77), 700077);
        assert_int_equal(seen(&ids, 40000), 740000);
    }
}

static void shared_ids_make_user_the_caller(void **state) {
    (void)state;
    struct id_map map = id_map_shared(1), nest = id_map_nest(1);
    one_to_one(&map.uids);
    one_to_one(&nest.uids);
    static const uint32_t ids[] = {0, 1, 999, 1000, 1001, 65535};
    for (size_t i = 0; i < sizeof(ids) / sizeof(*ids); i++)
        assert_int_equal(seen(&nest.gids, (uint32_t)seen(&map.gids, ids[i])), id_shared(ids[i], 1));
    /* Nobody is root of the nest, and the guest's owner is nobody in the box. */
    assert_int_equal(seen(&nest.uids, 0), -1);
    for (uint32_t id = 0; id < SLOT_IDS; id++)
        assert_int_not_equal(seen(&map.uids, id), 1001);
}

static void slots_are_taken_once_and_given_back(void **state) {
    (void)state;
    static struct slots s = {.base = 100000, .count = 3, .shared = true};
    uint32_t slot[3];
    int lock;
    struct err err;
    for (int i = 0; i < 3; i++)
        assert_int_equal(slots_take(&s, &slot[i], &lock, &err), 0);
    assert_true(slot[0] != slot[1] && slot[1] != slot[2] && slot[0] != slot[2]);
    assert_int_equal(slots_take(&s, &slot[0], &lock, &err), -1);
    assert_int_equal(err.code, ERR_LIMIT);
    uint32_t again;
    slots_give(&s, slot[1]);
    assert_int_equal(slots_take(&s, &again, &lock, &err), 0);
    assert_int_equal(again, slot[1]);
    slots_mark(&s, SLOT_MAX + 5); /* from a hostile file: ignored */
    slots_give(&s, UINT32_MAX);
}

static void ranges_of_others_are_avoided(void **state) {
    (void)state;
    static struct slots s = {.base = 100000, .count = 4, .shared = false, .lock_dir = -1};
    slots_avoid(&s, "alice:1:99999\n\nbob\nmallory:x:y\ncarol:165536:65536\ndave:300000:1");
    assert_int_equal(s.taken[0], 0xa);
    slots_avoid(&s, "eve:100000:0\neve:99999:1\n");
    assert_int_equal(s.taken[0], 0xa);
    slots_avoid(&s, "eve:99999:2\n");
    assert_int_equal(s.taken[0], 0xb);
    slots_avoid(&s, "mallory:5:18446744073709551615\n");
    assert_int_equal(s.taken[0], 15);
}

UNIT_MAIN(cmocka_unit_test(ranges_of_others_are_avoided),
          cmocka_unit_test(the_owner_becomes_user_whatever_its_number),
          cmocka_unit_test(shared_ids_make_user_the_caller),
          cmocka_unit_test(slots_are_taken_once_and_given_back))
