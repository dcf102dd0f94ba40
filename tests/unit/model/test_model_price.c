/* Prices from carrel.conf, and what calls cost. */
#include "tests/unit/unit.h"

#include "base/err.h"
#include "model/price.h"
#include "model/provider.h"
#include "store/conf.h"

static struct conf_model row(const char *line) {
    struct conf_model m;
    struct err err = {0};
    if (conf_model_parse(line, &m, &err) < 0)
        fail_msg("%s", err.text);
    return m;
}

static void a_line_gives_prices_in_millionths(void **state) {
    (void)state;
    struct conf_model m =
        row("vendor/some-model in=3.00 out=15 cache_read=0.3 cache_write=3.75 window=200000");
    assert_true(m.priced);
    assert_int_equal(m.in, 3000000);
    assert_int_equal(m.out, 15000000);
    assert_int_equal(m.cache_read, 300000);
    assert_int_equal(m.cache_write, 3750000);
    assert_int_equal(m.cache_write_long, 3750000);
    assert_int_equal(m.window, 200000);
    m = row("plain in=1 out=2");
    assert_int_equal(m.cache_read, 1000000);
    m = row("only-window window=1000");
    assert_false(m.priced);
}

static void lines_of_no_sense_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *line, *why;
    } bad[] = {{"", "must start with a name"},
               {"m in=1", "both in= and out="},
               {"m cache_read=1", "both in="},
               {"m in=1 out=2 in=3", "given twice"},
               {"m in=x out=1", "in: "},
               {"m in=-1 out=1", "in: "},
               {"m in=1.1234567 out=1", "in: "},
               {"m in=99999999 out=1", "price 99999999 is larger than 1000000"},
               {"m price=1", "unknown option"},
               {"m in", "unknown option"},
               {"a*b in=1 out=1", "star"},
               {"m window=0", "window"}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct conf_model m;
        struct err err = {0};
        assert_int_equal(conf_model_parse(bad[i].line, &m, &err), -1);
        if (!strstr(err.text, bad[i].why))
            fail_msg("'%s' of '%s' does not say '%s'", err.text, bad[i].line, bad[i].why);
    }
}

static void the_nearest_name_is_the_models_row(void **state) {
    (void)state;
    const struct conf_model rows[] = {row("some-* in=1 out=1"), row("some-model in=2 out=2"),
                                      row("some-mo* in=3 out=3")};
    assert_int_equal(model_row(rows, 3, "some-model")->in, 2000000);
    assert_int_equal(model_row(rows, 3, "some-moon")->in, 3000000);
    assert_int_equal(model_row(rows, 3, "some-other")->in, 1000000);
    assert_null(model_row(rows, 3, "another"));
}

static void a_cost_is_exact_and_rounded_up(void **state) {
    (void)state;
    struct conf_model m = row("m in=3 out=15 cache_read=0.3 cache_write=3.75 cache_write_long=6");
    struct model_usage u = {
        .in = 1000, .cache_read = 2000, .cache_write = 100, .cache_write_long = 10, .out = 50};
    struct cost c = model_cost(&m, &u);
    assert_int_equal(c.tokens, 3160);
    assert_int_equal(c.micro, 3000 + 600 + 375 + 60 + 750);
    assert_int_equal(model_cost(&m, &(struct model_usage){.cache_read = 1}).micro, 1);
    assert_int_equal(model_cost(NULL, &u).micro, 0);
    assert_int_equal(model_cost(NULL, &u).tokens, 3160);
    /* The largest counts and prices there can be do not wrap. */
    struct conf_model dear = row("m in=999999 out=999999");
    u = (struct model_usage){.in = 1ull << 40, .out = 1ull << 40};
    assert_int_equal(model_cost(&dear, &u).micro, STORE_NUMBER_MAX);
}

static void the_dearest_input_may_be_that_of_a_cache(void **state) {
    (void)state;
    struct conf_model m = row("m in=3 out=15 cache_write_long=6");
    assert_int_equal(model_dearest_input(&m), m.cache_write_long);
    m = row("m in=3 out=15 cache_read=0.3 cache_write=3 cache_write_long=3");
    assert_int_equal(model_dearest_input(&m), m.in);
}

static void the_window_of_a_model_may_be_unknown(void **state) {
    (void)state;
    struct conf_model m = row("m in=3 out=15 cache_write_long=6 window=10000");
    assert_int_equal(model_window(NULL), 128000);
    assert_int_equal(model_window(&m), 10000);
}

/* ---- Providers ---- */

static const char *some_env(void *arg, const char *name) {
    const char *const *pairs = arg;
    for (; pairs && pairs[0]; pairs += 2)
        if (strcmp(pairs[0], name) == 0)
            return pairs[1];
    return NULL;
}

static void providers_are_known_by_the_environment(void **state) {
    (void)state;
    const char *env[] = {"ANTHROPIC_API_KEY",      "ka", "OPENAI_API_KEY", "ko", "OPENAI_BASE_URL",
                         "http://127.0.0.1:9/v1/", NULL};
    struct model_provider p = {0};
    struct err err = {0};
    assert_int_equal(model_provider_find(NULL, "anthropic/m/1", some_env, env, &p, &err), 0);
    assert_ptr_equal(p.codec, &model_anthropic);
    assert_string_equal(p.model, "m/1");
    assert_string_equal(p.auth, "x-api-key");
    assert_true(secret_is_in(p.key, "ka", 2));
    model_provider_done(&p);
    assert_int_equal(model_provider_find(NULL, "openai/m", some_env, env, &p, &err), 0);
    assert_ptr_equal(p.codec, &model_chat);
    assert_string_equal(p.url, "http://127.0.0.1:9/v1");
    assert_string_equal(p.auth, "bearer");
    model_provider_done(&p);
    assert_int_equal(model_provider_find(NULL, "openai-responses/m", some_env, env, &p, &err), 0);
    assert_ptr_equal(p.codec, &model_responses);
    model_provider_done(&p);
    assert_int_equal(model_provider_find(NULL, "rehearsal/demo", some_env, NULL, &p, &err), 0);
    assert_null(p.codec);
}

static void what_is_missing_is_said_with_the_remedy(void **state) {
    (void)state;
    static const struct {
        const char *wanted;
        enum err_code code;
        const char *remedy;
    } bad[] = {{NULL, ERR_INVALID, "--model"},
               {"", ERR_INVALID, "--model"},
               {"nonsense", ERR_INVALID, "--model"},
               {"/m", ERR_INVALID, "--model"},
               {"openai/", ERR_INVALID, "--model"},
               {"nobody/m", ERR_NOT_FOUND, "anthropic openai openai-responses google rehearsal"},
               {"openai/m", ERR_DENIED, "OPENAI_API_KEY"}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct model_provider p = {0};
        struct err err = {0};
        assert_int_equal(model_provider_find(NULL, bad[i].wanted, some_env, NULL, &p, &err), -1);
        assert_int_equal(err.code, bad[i].code);
        assert_non_null(strstr(err.remedy, bad[i].remedy));
    }
}

static void carrel_conf_adds_providers_and_a_default(void **state) {
    (void)state;
    static const char text[] =
        "[models]\ndefault = here/some-model\n"
        "provider = here format=chat url=http://127.0.0.1:8000/v1 old_max_tokens=yes\n"
        "provider = openai format=responses url=https://example.net/v1 key_env=MINE "
        "auth=x-api-key\n"
        "model = some-model in=1 out=2 window=32000\n";
    struct conf c;
    struct err err = {0};
    struct model_provider p = {0};
    if (conf_parse(text, strlen(text), &c, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(c.known_count, 1);
    assert_int_equal(model_provider_find(&c, NULL, some_env, NULL, &p, &err), 0);
    assert_string_equal(p.name, "here");
    assert_string_equal(p.model, "some-model");
    assert_true(p.wire.old_max_tokens);
    assert_null(p.key);
    const char *env[] = {"MINE", "k", NULL};
    assert_int_equal(model_provider_find(&c, "openai/x", some_env, env, &p, &err), 0);
    assert_ptr_equal(p.codec, &model_responses);
    assert_string_equal(p.auth, "x-api-key");
    model_provider_done(&p);
}

/* A run with the owner's providers needs a right, also if it names them by an alias. */
static void an_alias_stands_for_its_first_model(void **state) {
    (void)state;
    static const char text[] =
        "[models]\nprovider = here format=chat url=http://127.0.0.1:8000/v1\n"
        "alias = fast here/some-model anthropic/other\nalias = strong anthropic/other\n"
        "default = fast\n";
    struct conf c;
    struct err err = {0};
    struct model_provider p = {0};
    if (conf_parse(text, strlen(text), &c, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(model_provider_find(&c, "fast", some_env, NULL, &p, &err), 0);
    assert_string_equal(p.name, "here");
    assert_string_equal(p.model, "some-model");
    assert_int_equal(model_provider_find(&c, NULL, some_env, NULL, &p, &err), 0);
    assert_string_equal(p.name, "here");
    assert_true(model_is_configured(&c, "fast"));
    assert_true(model_is_configured(&c, NULL));
    assert_false(model_is_configured(&c, "strong"));
    assert_int_equal(model_provider_find(&c, "slow", some_env, NULL, &p, &err), -1);
}

static void bad_lines_of_carrel_conf_are_named(void **state) {
    (void)state;
    static const char *const bad[] = {"provider = x",
                                      "alias = fast",
                                      "alias = fa/st a/b",
                                      "alias = fast a",
                                      "alias = fast /b",
                                      "alias = fast a/",
                                      "alias = fast a/b a/b a/b a/b a/b",
                                      "provider = x format=smoke url=http://a",
                                      "provider = x format=chat url=ftp://a",
                                      "provider = x format=chat url=http://a/",
                                      "provider = a b format=chat url=http://a",
                                      "provider = x format=chat url=http://k@a",
                                      "model = m in=1",
                                      "provider = x format=chat url=http://a auth=magic"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        char text[256];
        struct conf c;
        struct err err = {0};
        snprintf(text, sizeof(text), "[models]\n%s\n", bad[i]);
        assert_int_equal(conf_parse(text, strlen(text), &c, &err), -1);
        assert_int_equal(strncmp(err.text, "line 2: ", 8), 0);
    }
}

UNIT_MAIN(cmocka_unit_test(a_line_gives_prices_in_millionths),
          cmocka_unit_test(lines_of_no_sense_are_refused),
          cmocka_unit_test(the_nearest_name_is_the_models_row),
          cmocka_unit_test(a_cost_is_exact_and_rounded_up),
          cmocka_unit_test(the_dearest_input_may_be_that_of_a_cache),
          cmocka_unit_test(the_window_of_a_model_may_be_unknown),
          cmocka_unit_test(providers_are_known_by_the_environment),
          cmocka_unit_test(what_is_missing_is_said_with_the_remedy),
          cmocka_unit_test(carrel_conf_adds_providers_and_a_default),
          cmocka_unit_test(an_alias_stands_for_its_first_model),
          cmocka_unit_test(bad_lines_of_carrel_conf_are_named))
