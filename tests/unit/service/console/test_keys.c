#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

#include "service/console/keys.h"

enum { LIFE_S = 100 };

static struct keys table(size_t max, size_t of_owner) {
    struct keys k = {.name = "links", .max = max, .of_owner = of_owner, .life_s = LIFE_S};
    keys_init(&k);
    return k;
}

/* Makes a key whose text is `text`. Returns false if there is no room. */
static bool add(struct keys *k, const char *owner, const char *text, int64_t now_ms) {
    struct err err;
    struct key *slot = keys_slot(k, owner, now_ms, &err);
    if (!slot)
        return false;
    *slot = (struct key){.expires_ms = now_ms + LIFE_S * 1000, .used_ms = now_ms};
    snprintf(slot->who.owner, sizeof(slot->who.owner), "%s", owner);
    key_hash(text, strlen(text), slot->hash);
    return true;
}

static bool has(struct keys *k, const char *text, int64_t now_ms) {
    return keys_find(k, text, strlen(text), now_ms) != NULL;
}

static void an_owner_at_the_limit_loses_the_key_that_was_not_used_for_longest(void **state) {
    struct keys k = table(16, 3);
    (void)state;
    assert_true(add(&k, "ann", "a", 1) && add(&k, "ann", "b", 2) && add(&k, "ann", "c", 3));
    keys_find(&k, "a", 1, 4)->used_ms = 4;
    assert_true(add(&k, "ann", "d", 5));
    assert_true(has(&k, "a", 5) && !has(&k, "b", 5) && has(&k, "c", 5) && has(&k, "d", 5));
    keys_done(&k);
}

static void an_owner_at_the_limit_does_not_hinder_another(void **state) {
    struct keys k = table(64, 16);
    char text[32];
    (void)state;
    assert_true(add(&k, "bob", "bob's", 1));
    for (int i = 0; i < 1000; i++) {
        snprintf(text, sizeof(text), "%d", i);
        assert_true(add(&k, "ann", text, 2 + i));
    }
    assert_true(has(&k, "bob's", 2000) && has(&k, "984", 2000) && !has(&k, "983", 2000));
    keys_done(&k);
}

static void a_full_table_takes_from_the_owner_with_the_most(void **state) {
    struct keys k = table(64, 16);
    char owner[32], text[32];
    (void)state;
    assert_true(add(&k, "bob", "bob's", 1));
    for (int i = 0; i < 400; i++) {
        snprintf(owner, sizeof(owner), "many%d", i / 16);
        snprintf(text, sizeof(text), "%d", i);
        assert_true(add(&k, owner, text, 2 + i));
    }
    assert_true(has(&k, "bob's", 1000));
    assert_true(add(&k, "eve", "eve's", 1000) && add(&k, "bob", "bob's other", 1001));
    assert_true(has(&k, "eve's", 1001) && has(&k, "bob's", 1001) && has(&k, "bob's other", 1001));
    keys_done(&k);
}

static void a_table_with_one_key_of_each_owner_refuses_others(void **state) {
    struct keys k = table(4, 2);
    struct err err;
    char owner[2] = "a";
    (void)state;
    for (; owner[0] <= 'd'; owner[0]++)
        assert_true(add(&k, owner, owner, 1));
    assert_null(keys_slot(&k, "e", 2, &err));
    assert_string_equal(err.text, "all 4 links of the console on this host belong to other owners");
    assert_non_null(strstr(err.remedy, "100 seconds"));
    assert_true(add(&k, "a", "another", 2)); /* in place of its own */
    assert_true(!has(&k, "a", 2) && has(&k, "b", 2) && has(&k, "c", 2) && has(&k, "d", 2));
    assert_true(add(&k, "e", "e", 1 + LIFE_S * 1000));
    keys_done(&k);
}

static void an_expired_key_is_not_found(void **state) {
    struct keys k = table(4, 2);
    (void)state;
    assert_true(add(&k, "ann", "a", 1));
    assert_true(has(&k, "a", LIFE_S * 1000) && !has(&k, "a", LIFE_S * 1000 + 1));
    assert_false(has(&k, "b", 1));
    keys_done(&k);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_owner_at_the_limit_loses_the_key_that_was_not_used_for_longest),
        cmocka_unit_test(an_owner_at_the_limit_does_not_hinder_another),
        cmocka_unit_test(a_full_table_takes_from_the_owner_with_the_most),
        cmocka_unit_test(a_table_with_one_key_of_each_owner_refuses_others),
        cmocka_unit_test(an_expired_key_is_not_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
