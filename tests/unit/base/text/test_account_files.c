/* Users and groups in the hostile text of a machine's passwd and group files. */
#include "tests/unit/unit.h"

#include <stdlib.h>

#include "base/text/accounts.h"

static const char passwd[] = "root:x:0:0:root:/root:/bin/bash\n"
                             "\n"
                             "short:x:5\n"
                             "big:x:99999:0::/big:/bin/sh\n"
                             "wide:x:4294967296:0::/wide:/bin/sh\n"
                             "minus:x:-1:0::/minus:/bin/sh\n"
                             "relative:x:31:31::home:sh\n"
                             "control:x:32:32::/a\x01:/bin/\x7fsh\n"
                             "postgres:x:109:117:PostgreSQL:/var/lib/postgresql:/bin/bash\n"
                             "postgres:x:0:0:second:/:/bin/sh\n"
                             "last:x:40:41::/last:/bin/last";

static bool find(const char *name, struct account *ret) {
    return account_find(passwd, sizeof(passwd) - 1, name, ret);
}

static void is_text(struct account_text text, const char *want) {
    assert_int_equal(text.n, strlen(want));
    assert_memory_equal(text.s, want, text.n);
}

static void a_user_is_found_by_name_and_by_uid(void **state) {
    (void)state;
    struct account a;
    static const char *const names[] = {"postgres", "109", "0109"};
    for (size_t i = 0; i < 3; i++) {
        assert_true(find(names[i], &a));
        assert_int_equal(a.uid, 109);
        assert_int_equal(a.gid, 117);
        is_text(a.name, "postgres");
        is_text(a.home, "/var/lib/postgresql");
        is_text(a.shell, "/bin/bash");
    }
    assert_true(find("last", &a)); /* the file ends without a newline */
    is_text(a.shell, "/bin/last");
}

static void a_line_that_is_not_an_account_is_not_found(void **state) {
    (void)state;
    static const char *const names[] = {"",      "short",   "big",        "wide",
                                        "minus", "postgre", "post",       "99999",
                                        "5",     "65536",   "4294967296", "18446744073709551616",
                                        "x",     "-1",      "root:"};
    struct account a;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        assert_false(find(names[i], &a));
}

static void home_and_shell_are_absolute_paths_or_empty(void **state) {
    (void)state;
    static const char *const names[] = {"relative", "control"};
    struct account a;
    for (size_t i = 0; i < 2; i++) {
        assert_true(find(names[i], &a));
        is_text(a.home, "");
        is_text(a.shell, "");
    }
    assert_true(account_find("a:x:1:2", 7, "a", &a));
    is_text(a.home, "");
}

static void no_byte_after_the_text_is_read(void **state) {
    (void)state;
    struct account a;
    char *copy = malloc(sizeof(passwd)); /* its own block, so that a sanitizer sees its end */
    assert_non_null(copy);
    for (size_t n = 0; n < sizeof(passwd); n++) {
        char *part = realloc(copy, n ? n : 1);
        assert_non_null(part);
        copy = part;
        memcpy(copy, passwd, n);
        (void)account_find(copy, n, "last", &a);
        (void)account_find(copy, n, "40", &a);
    }
    free(copy);
    assert_false(account_find(NULL, 0, "root", &a));
}

static void groups_are_those_that_list_the_user(void **state) {
    (void)state;
    static const char group[] = "root:x:0:\n"
                                "ssl-cert:x:112:postgres,other\n"
                                "near:x:113:postgresql,apostgres,postgre\n"
                                "again:x:112:postgres\n"
                                "bad:x:70000:postgres\n"
                                "none:x:114\n"
                                "end:x:115:other,postgres";
    const struct account_text user = {"postgres", 8};
    uint32_t ids[4] = {0}, gid;
    assert_int_equal(account_groups(group, sizeof(group) - 1, user, ids, 0, 4), 2);
    assert_int_equal(ids[0], 112);
    assert_int_equal(ids[1], 115);
    assert_int_equal(account_groups(group, sizeof(group) - 1, user, ids, 0, 1), 1);
    assert_int_equal(
        account_groups(group, sizeof(group) - 1, (struct account_text){"", 0}, ids, 0, 4), 0);
    ids[0] = 115; /* the user's own group is listed once */
    assert_int_equal(account_groups(group, sizeof(group) - 1, user, ids, 1, 4), 2);
    assert_int_equal(ids[1], 112);
    assert_true(account_group_find(group, sizeof(group) - 1, "near", &gid));
    assert_int_equal(gid, 113);
    assert_true(account_group_find(group, sizeof(group) - 1, "115", &gid));
    assert_false(account_group_find(group, sizeof(group) - 1, "bad", &gid));
}

static void names_are_those_that_useradd_accepts(void **state) {
    (void)state;
    static const char *const good[] = {"user", "www-data", "_apt", "a.b", "samba$", "1e3"};
    static const char *const bad[] = {"",      "-x", "a:b", "a b", "a/b",     "a\nb",
                                      "65534", "$",  "a$b", "é",   "user;id", "4294967296"};
    char name[ACCOUNT_NAME_MAX + 2];
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
        assert_true(account_name_is_valid(good[i]));
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        assert_false(account_name_is_valid(bad[i]));
    memset(name, 'a', sizeof(name));
    name[ACCOUNT_NAME_MAX] = '\0';
    assert_true(account_name_is_valid(name));
    name[ACCOUNT_NAME_MAX] = 'a';
    name[ACCOUNT_NAME_MAX + 1] = '\0';
    assert_false(account_name_is_valid(name));
}

UNIT_MAIN(cmocka_unit_test(a_user_is_found_by_name_and_by_uid),
          cmocka_unit_test(a_line_that_is_not_an_account_is_not_found),
          cmocka_unit_test(home_and_shell_are_absolute_paths_or_empty),
          cmocka_unit_test(no_byte_after_the_text_is_read),
          cmocka_unit_test(groups_are_those_that_list_the_user),
          cmocka_unit_test(names_are_those_that_useradd_accepts))
