#include "tests/unit/unit.h"

#include <string.h>

#include "cli/options.h"

struct opts {
    bool flag, other;
    const char *text;
    struct option_list list;
    uint64_t size, milli, number, time;
};

#define AT(member) offsetof(struct opts, member)

static const struct option_row rows[] = {
    {'f', "flag", NULL, OPTION_FLAG, AT(flag), "a flag"},
    {'o', "other", NULL, OPTION_FLAG, AT(other), "another"},
    {'t', "text", "TEXT", OPTION_TEXT, AT(text), "a text"},
    {'l', "list", "X", OPTION_LIST, AT(list), "a list"},
    {0, "size", "SIZE", OPTION_SIZE, AT(size), "a size"},
    {0, "milli", "N", OPTION_MILLI, AT(milli), "thousandths"},
    {0, "number", "N", OPTION_NUMBER, AT(number), "a number"},
    {0, "time", "TIME", OPTION_DURATION, AT(time), "a time"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};

static struct opts o;
static struct err err;
static int next;

#define PARSE(...)                                                                \
    (memset(&o, 0, sizeof(o)), memset(&err, 0, sizeof(err)),                      \
     options_parse(rows, (int)(sizeof((char *[]){__VA_ARGS__}) / sizeof(char *)), \
                   (char *[]){__VA_ARGS__}, &o, &next, &err))

#define W(text) (char *)(text)

static void every_way_to_write_an_option(void **state) {
    (void)state;
    assert_int_equal(PARSE(W("-f"), W("--text=a"), W("-l"), W("1"), W("-l2"), W("--list"), W("3"),
                           W("--size"), W("2K"), W("cmd"), W("-o")),
                     0);
    assert_true(o.flag && !o.other);
    assert_string_equal(o.text, "a");
    assert_int_equal(o.list.count, 3);
    assert_string_equal(o.list.items[1], "2");
    assert_int_equal(o.size, 2048);
    assert_int_equal(next, 9);
    assert_int_equal(PARSE(W("-fo"), W("-tx"), W("--"), W("--flag")), 0);
    assert_true(o.flag && o.other);
    assert_string_equal(o.text, "x");
    assert_int_equal(next, 3);
}

static void a_dash_alone_is_a_word(void **state) {
    (void)state;
    assert_int_equal(PARSE(W("-")), 0);
    assert_int_equal(next, 0);
}

static void values_of_every_kind(void **state) {
    (void)state;
    assert_int_equal(PARSE(W("--milli=1.5"), W("--number=7"), W("--time=2m"), W("--text=")), 0);
    assert_int_equal(o.milli, 1500);
    assert_int_equal(o.number, 7);
    assert_int_equal(o.time, 120000);
    assert_string_equal(o.text, "");
}

#define REFUSED(says, ...)                                      \
    do {                                                        \
        assert_int_equal(PARSE(__VA_ARGS__), -1);               \
        assert_int_equal(err.code, ERR_INVALID);                \
        if (!strstr(err.text, says))                            \
            fail_msg("'%s' does not say '%s'", err.text, says); \
    } while (0)

static void bad_options_are_named(void **state) {
    (void)state;
    REFUSED("--nope", W("--nope"));
    REFUSED("-fz", W("-fz"));
    REFUSED("--fla", W("--fla")); /* no abbreviations */
    REFUSED("takes no value", W("--flag=1"));
    REFUSED("--text requires a value: TEXT", W("--text"));
    REFUSED("-t requires a value: TEXT", W("-t"));
    REFUSED("--size", W("--size=x"));
    REFUSED("--size", W("--size=0"));
    REFUSED("--number", W("--number=0"));
    REFUSED("--time", W("--time=soon"));
    REFUSED("--milli", W("--milli=0"));
}

static void a_list_has_an_end(void **state) {
    (void)state;
    char *words[OPTION_LIST_MAX + 1];
    for (size_t i = 0; i <= OPTION_LIST_MAX; i++)
        words[i] = W("-lx");
    memset(&o, 0, sizeof(o));
    assert_int_equal(options_parse(rows, OPTION_LIST_MAX, words, &o, &next, &err), 0);
    memset(&o, 0, sizeof(o));
    assert_int_equal(options_parse(rows, OPTION_LIST_MAX + 1, words, &o, &next, &err), -1);
    assert_int_equal(err.code, ERR_LIMIT);
}

/* "--" is a word like others where an option takes its value. */
static void two_dashes_protect_every_argument_after_them(void **state) {
    (void)state;
    char *argv[] = {W("cmd"), W("a"), W("-t"), W("--"), W("-f"), W("--"), W("b"), W("-o"), NULL};
    memset(&o, 0, sizeof(o));
    assert_int_equal(options_take(rows, 8, argv, &o, &err), 3);
    assert_true(o.flag && !o.other);
    assert_string_equal(o.text, "--");
    assert_string_equal(argv[2], "b");
    assert_string_equal(argv[3], "-o");
    assert_null(argv[4]);
}

static void words_that_want_a_value(void **state) {
    (void)state;
    assert_string_equal(options_awaiting(rows, "--text")->name, "text");
    assert_string_equal(options_awaiting(rows, "-fot")->name, "text");
    const char *const complete[] = {"--flag", "--text=", "-f", "-tx", "-zt", "-", "--", "--tex"};
    for (size_t i = 0; i < sizeof(complete) / sizeof(*complete); i++)
        assert_null(options_awaiting(rows, complete[i]));
    assert_string_equal(options_given(rows, "--size=1=2")->name, "size");
    const char *const others[] = {"--size", "--flag=", "-t=", "--siz=", "="};
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
        assert_null(options_given(rows, others[i]));
}

UNIT_MAIN(cmocka_unit_test(every_way_to_write_an_option), cmocka_unit_test(a_dash_alone_is_a_word),
          cmocka_unit_test(values_of_every_kind), cmocka_unit_test(bad_options_are_named),
          cmocka_unit_test(a_list_has_an_end),
          cmocka_unit_test(two_dashes_protect_every_argument_after_them),
          cmocka_unit_test(words_that_want_a_value))
