#include "tests/unit/unit.h"

#include <string.h>

#include "base/defer.h"
#include "cli/image/recipe.h"

static struct err err;

static int read_text(const char *text, struct recipe *r) {
    return recipe_read(text, strlen(text), r, &err);
}

static void a_recipe_is_read_line_by_line(void **state) {
    (void)state;
    struct recipe r DEFER(recipe_done) = {0};
    static const char text[] = "# a comment\n\nbase debian:bookworm\n  packages curl  git\t\n"
                               "run echo 'a  b' && \\\n  true\nenv A=b c=d\nuser app\n";
    assert_int_equal(read_text(text, &r), 0);
    assert_int_equal(r.count, 5);
    assert_string_equal(r.lines[0].words[0], "debian:bookworm");
    assert_int_equal(r.lines[1].number, 4);
    assert_int_equal(r.lines[1].count, 2);
    assert_string_equal(r.lines[1].words[1], "git");
    assert_string_equal(r.lines[2].text, "echo 'a  b' &&     true");
    assert_string_equal(r.lines[3].text, "A=b c=d");
    assert_int_equal(r.lines[4].number, 8);
}

static void what_makes_no_sense_is_refused_with_its_line(void **state) {
    (void)state;
    static const char *const bad[][2] = {
        {"", "empty"},
        {"# nothing\n", "empty"},
        {"run true\n", "the first instruction, and only the first, must be `base`"},
        {"base a\nbase b\n",
         "line 2 of the recipe: the first instruction, and only the first, must be `base`"},
        {"base\n", "too few"},
        {"base a b\n", "too few or too many"},
        {"base ../a\n", "not a valid image name"},
        {"base a\nbake b\n", "unknown instruction 'bake b'"},
        {"base a\nfromage b\n", "unknown instruction 'fromage b'"},
        {"base a\npackages -y\n", "not a valid package name: '-y'"},
        {"base a\npackages a;b\n", "not a valid package name"},
        {"base a\nfile x etc/x\n", "not an absolute path"},
        {"base a\nenv A\n", "not NAME=VALUE"},
        {"base a\nenv A-B=c\n", "not NAME=VALUE"},
        {"base a\nworkdir x\n", "not an absolute path"},
        {"base a\nrun\n", "too few"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct recipe r DEFER(recipe_done) = {0};
        assert_int_equal(read_text(bad[i][0], &r), -1);
        if (!strstr(err.text, bad[i][1]))
            fail_msg("%s: %s", bad[i][0], err.text);
    }
    struct recipe r DEFER(recipe_done) = {0};
    assert_int_equal(recipe_read("base a\0b", 8, &r, &err), -1);
}

UNIT_MAIN(cmocka_unit_test(a_recipe_is_read_line_by_line),
          cmocka_unit_test(what_makes_no_sense_is_refused_with_its_line))
