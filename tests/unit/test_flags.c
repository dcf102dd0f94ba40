/* What deserves a look before a file is taken from a machine. */
#include "tests/unit/unit.h"

#include "cli/flags.h"

static unsigned look(const char *path, enum tar_kind kind, uint32_t mode, const char *target,
                     const char *bytes) {
    static struct tar_entry e;
    e = (struct tar_entry){.kind = kind, .mode = mode};
    snprintf(e.path, sizeof(e.path), "%s", path);
    snprintf(e.target, sizeof(e.target), "%s", target);
    return flags_of(&e, bytes, strlen(bytes));
}

static void names_say_what_runs_by_itself(void **state) {
    (void)state;
    assert_int_equal(look("src/a.c", TAR_FILE, 0644, "", "x"), 0);
    assert_int_equal(look("a.sh", TAR_FILE, 0755, "", "x"), FLAG_EXECUTABLE);
    assert_int_equal(look("a", TAR_FILE, 04644, "", "x"), FLAG_SETUID);
    assert_int_equal(look(".git/hooks/pre-commit", TAR_FILE, 0644, "", "x"), FLAG_HOOK);
    assert_int_equal(look("sub/.github/workflows/x.yml", TAR_FILE, 0644, "", "x"), FLAG_CI);
    assert_int_equal(look("web/yarn.lock", TAR_FILE, 0644, "", "x"), FLAG_LOCK);
    assert_int_equal(look("my.gitx/y", TAR_FILE, 0644, "", "x"), 0);
    assert_int_equal(look("not-yarn.lock", TAR_FILE, 0644, "", "x"), 0);
}

static void links_out_of_the_tree_are_seen(void **state) {
    (void)state;
    assert_int_equal(look("a/b", TAR_SYMLINK, 0777, "../c", ""), 0);
    assert_int_equal(look("a/b/c", TAR_SYMLINK, 0777, ".././..//d/e", ""), 0);
    assert_int_equal(look("b", TAR_SYMLINK, 0777, "..x/...", ""), 0);
    assert_int_equal(look("a/b", TAR_SYMLINK, 0777, "../../c", ""), FLAG_LEAVES);
    assert_int_equal(look("b", TAR_SYMLINK, 0777, "..", ""), FLAG_LEAVES);
    assert_int_equal(look("b", TAR_SYMLINK, 0777, "x/../../y", ""), FLAG_LEAVES);
    assert_int_equal(look("b", TAR_SYMLINK, 0777, "/etc", ""), FLAG_LEAVES);
    /* What comes before ".." may be a link itself. */
    assert_int_equal(look("esc", TAR_SYMLINK, 0777, "a/b/up/../secret", ""), FLAG_LEAVES);
    assert_int_equal(look("a/b", TAR_SYMLINK, 0777, "./x/../c", ""), FLAG_LEAVES);
}

static void keys_are_seen_and_words_are_not(void **state) {
    (void)state;
    char key[80];
    snprintf(key, sizeof(key), "id=%s%s;", "AKIA", "ABCDEFGHIJKLMNOP");
    assert_int_equal(look("c", TAR_FILE, 0644, "", key), FLAG_SECRET);
    key[12] = '\0';
    assert_int_equal(look("c", TAR_FILE, 0644, "", key), 0);
    snprintf(key, sizeof(key), "%s RSA %s", "-----BEGIN", "PRIVATE KEY-----");
    assert_int_equal(look("c", TAR_FILE, 0644, "", key), FLAG_SECRET);
    snprintf(key, sizeof(key), "%s PUBLIC KEY-----", "-----BEGIN");
    assert_int_equal(look("c", TAR_FILE, 0644, "", key), 0);
}

static void flags_are_told_in_words(void **state) {
    char text[FLAGS_TEXT];
    (void)state;
    flags_text(0, text);
    assert_string_equal(text, "");
    flags_text(FLAG_EXECUTABLE | FLAG_CI | FLAG_SECRET, text);
    assert_string_equal(text, "executable, CI, secret?");
    flags_text(127, text);
    assert_true(strlen(text) < sizeof(text) - 1);
}

UNIT_MAIN(cmocka_unit_test(names_say_what_runs_by_itself),
          cmocka_unit_test(links_out_of_the_tree_are_seen),
          cmocka_unit_test(keys_are_seen_and_words_are_not),
          cmocka_unit_test(flags_are_told_in_words))
