/* What a mode lets a model do and see, told from a transcript alone. */
#include "tests/unit/unit.h"

#include <jansson.h>

#include "base/defer.h"
#include "operator/mode.h"
#include "operator/shape.h"
#include "operator/template.h"
#include "operator/word.h"

static json_t *parse(const char *text) {
    json_t *json = json_loads(text, JSON_DECODE_ANY, NULL);
    assert_non_null(json);
    return json;
}

/* ---- shapes ---- */

static void shapes_are_bounded(void **state) {
    static const struct {
        const char *shape;
        bool good;
    } rows[] = {
        {"{\"type\":\"string\",\"enum\":[\"a\"]}", true},
        {"{\"type\":\"string\",\"maxLength\":200}", true},
        {"{\"type\":\"string\",\"maxLength\":201}", false},
        {"{\"type\":\"string\"}", false},
        {"{\"type\":\"string\",\"enum\":[]}", false},
        {"{\"type\":\"string\",\"enum\":[5]}", false},
        {"{\"type\":\"string\",\"maxLength\":5,\"pattern\":\".*\"}", false},
        {"{\"type\":\"integer\",\"minimum\":1,\"maximum\":5}", true},
        {"{\"type\":\"integer\",\"minimum\":1}", false},
        {"{\"type\":\"integer\",\"maximum\":5}", false},
        {"{\"type\":\"integer\",\"minimum\":6,\"maximum\":5}", false},
        {"{\"type\":\"integer\",\"minimum\":\"1\",\"maximum\":\"5\"}", false},
        {"{\"type\":\"integer\",\"minimum\":0,\"maximum\":9e18}", false},
        {"{\"type\":\"number\",\"minimum\":-1.5,\"maximum\":1.5}", true},
        {"{\"type\":\"number\"}", false},
        {"{\"type\":\"boolean\"}", true},
        {"{\"type\":\"array\"}", false},
        {"{}", false},
        {"[]", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        json_t *shape DEFER(json_decrefp) = parse(rows[i].shape);
        struct err err;
        assert_int_equal(shape_check(shape, &err), rows[i].good ? 0 : -1);
    }
}

static void values_fit_or_do_not(void **state) {
    static const struct {
        const char *shape, *value;
        bool fits;
    } rows[] = {
        {"{\"type\":\"string\",\"enum\":[\"a\",\"b\"]}", "\"b\"", true},
        {"{\"type\":\"string\",\"enum\":[\"a\",\"b\"]}", "\"c\"", false},
        {"{\"type\":\"string\",\"maxLength\":4}", "\"a-b.\"", true},
        {"{\"type\":\"string\",\"maxLength\":4}", "\"abcde\"", false},
        {"{\"type\":\"string\",\"maxLength\":9}", "\"a;b\"", false},
        {"{\"type\":\"string\",\"maxLength\":9}", "\"a\\nb\"", false},
        {"{\"type\":\"string\",\"maxLength\":9}", "\"\\u202e\"", false},
        {"{\"type\":\"string\",\"maxLength\":9}", "7", false},
        {"{\"type\":\"integer\",\"minimum\":1,\"maximum\":5}", "5", true},
        {"{\"type\":\"integer\",\"minimum\":1,\"maximum\":5}", "6", false},
        {"{\"type\":\"integer\",\"minimum\":1,\"maximum\":5}", "1", true},
        {"{\"type\":\"integer\",\"minimum\":1,\"maximum\":5}", "0", false},
        {"{\"type\":\"integer\",\"minimum\":1,\"maximum\":5}", "1.5", false},
        {"{\"type\":\"number\",\"minimum\":1,\"maximum\":5}", "1.5", true},
        {"{\"type\":\"boolean\"}", "true", true},
        {"{\"type\":\"boolean\"}", "\"true\"", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        json_t *shape DEFER(json_decrefp) = parse(rows[i].shape);
        json_t *value DEFER(json_decrefp) = parse(rows[i].value);
        struct err err;
        if ((shape_fits(shape, value, &err) == 0) != rows[i].fits)
            fail_msg("%s with %s", rows[i].shape, rows[i].value);
    }
}

static void a_record_has_all_its_members_and_no_other(void **state) {
    static const char shape_text[] =
        "{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\",\"minimum\":0,"
        "\"maximum\":9},"
        "\"ok\":{\"type\":\"boolean\"}},\"required\":[\"n\",\"ok\"]}";
    static const struct {
        const char *value;
        bool fits;
    } rows[] = {{"{\"n\":1,\"ok\":true}", true},
                {"{\"n\":1}", false},
                {"{\"n\":1,\"ok\":true,\"x\":1}", false},
                {"{\"n\":\"1\",\"ok\":true}", false},
                {"[]", false}};
    json_t *shape DEFER(json_decrefp) = parse(shape_text);
    struct err err;
    (void)state;
    assert_int_equal(shape_record_check(shape, &err), 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        json_t *value DEFER(json_decrefp) = parse(rows[i].value);
        assert_int_equal(shape_record_fits(shape, value, &err), rows[i].fits ? 0 : -1);
    }
    json_t *empty DEFER(json_decrefp) = parse("{\"type\":\"object\",\"properties\":{}}");
    assert_int_equal(shape_record_check(empty, &err), -1);
    json_t *nested DEFER(json_decrefp) =
        parse("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"object\"}}}");
    assert_int_equal(shape_record_check(nested, &err), -1);
}

/* ---- calls that were fixed ---- */

static void a_call_matches_or_says_what_differs(void **state) {
    static const char call_text[] =
        "{\"tool\":\"exec\",\"arguments\":{\"argv\":[\"seq\",{\"hole\":{\"type\":\"integer\","
        "\"minimum\":-9,\"maximum\":9}},{\"hole\":{\"type\":\"string\",\"maxLength\":5}}],\"cwd\":"
        "\"/\"}}";
    static const struct {
        const char *tool, *arguments;
        const char *words; /* NULL: it matches */
    } rows[] = {
        {"exec", "{\"argv\":[\"seq\",\"7\",\"a\"],\"cwd\":\"/\"}", NULL},
        {"exec", "{\"argv\":[\"seq\",\"10\",\"a\"],\"cwd\":\"/\"}", "not between the minimum"},
        {"exec", "{\"argv\":[\"seq\",\"7; ls\",\"a\"],\"cwd\":\"/\"}", "must be a whole number"},
        {"exec", "{\"argv\":[\"seq\",\"7\",\"-a\"],\"cwd\":\"/\"}", "option"},
        {"exec", "{\"argv\":[\"seq\",\"-7\",\"a\"],\"cwd\":\"/\"}", "option"},
        {"exec", "{\"argv\":[\"rm\",\"7\",\"a\"],\"cwd\":\"/\"}", "differs from the fixed call"},
        {"exec", "{\"argv\":[\"seq\",\"7\"],\"cwd\":\"/\"}", "3 elements"},
        {"exec", "{\"argv\":[\"seq\",\"7\",\"a\"]}", "'cwd' is missing"},
        {"exec", "{\"argv\":[\"seq\",\"7\",\"a\"],\"cwd\":\"/\",\"user\":\"root\"}",
         "'user' is not in the fixed call"},
        {"write", "{}", "the tool of the fixed call is not"},
        {"exec", "[]", "not a JSON object"},
    };
    json_t *call DEFER(json_decrefp) = parse(call_text);
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        json_t *arguments DEFER(json_decrefp) = parse(rows[i].arguments);
        struct err err = {0};
        int status = template_match(call, rows[i].tool, arguments, &err);
        assert_int_equal(status, rows[i].words ? -1 : 0);
        if (rows[i].words && !strstr(err.text, rows[i].words))
            fail_msg("'%s' does not say '%s'", err.text, rows[i].words);
    }
}

/* Within its bounds a fraction has room for any text: as digits without end, or as white space. */
static void a_number_is_a_short_word(void **state) {
    static const char call_text[] =
        "{\"tool\":\"exec\",\"arguments\":{\"argv\":[\"sleep\",{\"hole\":{\"type\":\"number\","
        "\"minimum\":0,\"maximum\":1}},{\"hole\":{\"type\":\"boolean\"}}]}}";
    static const struct {
        const char *number, *flag;
        bool fits;
    } rows[] = {
        {"0.5", "true", true},
        {"0.12345678901234567", "false", true},
        {"1e-3", "true", true},
        {"0.5001161211011120320991041041140321051153210", "true", false},
        {"0.000000000000000000000000", "true", false},
        {" 0.5", "true", false},
        {"0.5\\n", "true", false},
        {"0.5", "true ", false},
        {"0.5", "\\ttrue", false},
        {"0.5", "yes", false},
    };
    json_t *call DEFER(json_decrefp) = parse(call_text);
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        char text[160];
        struct err err;
        snprintf(text, sizeof(text), "{\"argv\":[\"sleep\",\"%s\",\"%s\"]}", rows[i].number,
                 rows[i].flag);
        json_t *arguments DEFER(json_decrefp) = parse(text);
        assert_int_equal(template_match(call, "exec", arguments, &err), rows[i].fits ? 0 : -1);
    }
}

#define WORD "{\"hole\":{\"type\":\"string\",\"maxLength\":80}}"
#define ENUM "{\"hole\":{\"type\":\"string\",\"enum\":[\"a\",\"-b\"]}}"
#define COUNT "{\"hole\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":9}}"
#define EXEC(words) "{\"tool\":\"exec\",\"arguments\":{\"argv\":[" words "]}}"
#define EXEC_IN(words, in) \
    "{\"tool\":\"exec\",\"arguments\":{\"argv\":[" words "],\"stdin\":" in "}}"
#define ONE(tool, argument, value) \
    "{\"tool\":\"" tool "\",\"arguments\":{\"" argument "\":" value "}}"
#define WRITE ONE("write", "path\":\"/x\",\"content", WORD)

static bool any_tool(void *arg, const char *name) {
    (void)arg;
    (void)name;
    return true;
}

/* Free text gets nowhere that something runs, writes or reaches what it says. */
static void a_hole_is_where_the_table_says(void **state) {
    static const struct {
        const char *calls;
        bool in_menu, in_plan;
    } rows[] = {
        /* the program, and all that runs a text */
        {EXEC(WORD), false, false},
        {EXEC(ENUM), false, false},
        {EXEC("\"sh\",\"-c\"," WORD), false, false},
        {EXEC("\"bash\",\"-xc\"," WORD), false, false},
        {EXEC("\"python3\",\"-Ic\"," WORD), false, false},
        {EXEC("\"python3\"," WORD), false, false},
        {EXEC("\"perl\",\"-ne\"," WORD), false, false},
        {EXEC("\"env\"," WORD), false, false},
        {EXEC("\"env\",\"--\"," WORD), false, false},
        {EXEC("\"xargs\",\"--\"," WORD), false, false},
        {EXEC("\"timeout\",\"9\"," WORD), false, false},
        {EXEC("\"find\",\"/\",\"-execdir\"," WORD), false, false},
        {EXEC("\"find\",\"/\",\"-name\"," WORD), false, false},
        {EXEC("\"git\",\"-c\"," WORD), false, false},
        {EXEC("\"make\"," WORD), false, false},
        {EXEC("\"awk\"," WORD), false, false},
        {EXEC("\"sed\"," WORD), false, false},
        {EXEC("\"rm\",\"--\"," WORD), false, false},
        {EXEC("\"tee\"," WORD), false, false},
        {EXEC("\"curl\"," WORD), false, false},
        {EXEC("\"./grep\"," WORD), false, false},
        {EXEC("\"busybox\",\"cat\"," WORD), false, false},
        {"{\"tool\":\"exec\",\"arguments\":{\"argv\":[\"grep\"," WORD
         "],\"env\":{\"PATH\":\"/home/user\"}}}",
         false, false},
        {EXEC_IN("\"sh\"", WORD), false, false},
        {EXEC_IN("\"python3\",\"-\"", WORD), false, false},
        {ONE("exec", "cmd\":\"sh\",\"stdin", WORD), false, false},
        {ONE("exec", "cmd", ENUM), false, false},
        {ONE("exec", "argv", WORD), false, false},
        {ONE("exec", "user", ENUM), false, false},
        {ONE("exec", "env", "{\"A\":" ENUM "}"), false, false},
        {ONE("exec", "cwd", WORD), false, false},
        /* other tools */
        {ONE("session", "type", WORD), false, false},
        {ONE("session", "session", WORD), false, false},
        {ONE("fetch", "url", WORD), false, false},
        {ONE("write", "path", WORD), false, false},
        {ONE("write", "mode", WORD), false, false},
        {ONE("write", "content_base64", WORD), false, false},
        {ONE("read", "path", WORD), false, false},
        {ONE("edit", "path", WORD), false, false},
        {ONE("edit", "edits", "[{\"old\":\"a\",\"new\":" WORD "}]"), false, false},
        {ONE("install", "packages", "[" WORD "]"), false, false},
        {ONE("install", "manager", ENUM), false, false},
        {ONE("program", "text", WORD), false, false},
        {ONE("spawn", "task", WORD), false, false},
        {ONE("rewind", "to", WORD), false, false},
        {ONE("unheard", "of", ENUM), false, false},
        /* written, then run */
        {WRITE "," EXEC("\"sh\",\"/x\""), false, false},
        {WRITE "," EXEC("\"make\""), false, false},
        {WRITE "," ONE("exec", "cmd", "\"true\""), false, false},
        {WRITE "," ONE("install", "manager", "\"pip\""), false, false},
        {WRITE "," EXEC("\"cat\",\"/x\""), true, true},
        {EXEC("\"make\"") "," WRITE, false, true},
        {WRITE, true, true},
        /* what is fine */
        {EXEC("\"grep\",\"-n\"," WORD ",\"/data\""), true, true},
        {EXEC("\"grep\",\"--\"," WORD), true, true},
        {EXEC("\"pkill\",\"-TERM\"," ENUM), true, true},
        {EXEC("\"sleep\"," COUNT), true, true},
        {EXEC_IN("\"wc\"", WORD), true, true},
        {EXEC_IN("\"sh\"", ENUM), true, true},
        {ONE("fetch", "url", ENUM), true, true},
        {ONE("write", "path", ENUM), true, true},
        {ONE("read", "lines", COUNT), true, true},
        {ONE("search", "pattern", WORD), true, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        char text[1000];
        struct err err;
        snprintf(text, sizeof(text), "[%s]", rows[i].calls);
        json_t *calls DEFER(json_decrefp) = parse(text);
        for (int in_order = 0; in_order < 2; in_order++) {
            bool good = in_order ? rows[i].in_plan : rows[i].in_menu;
            if ((templates_check(calls, in_order, any_tool, NULL, &err) == 0) != good)
                fail_msg("%s in a %s", rows[i].calls, in_order ? "plan" : "menu");
        }
    }
}

/* ---- what is offered and shown ---- */

static void a_mode_offers_its_own_tools_and_no_others(void **state) {
    struct err err;
    (void)state;
    const struct run_mode *free_mode = mode_find(NULL, &err), *menu, *handles;
    menu = mode_find("action-selector", &err);
    handles = mode_find("handles", &err);
    assert_true(mode_offers(free_mode, NULL, "exec", false));
    assert_false(mode_offers(free_mode, NULL, "freeze", true));
    assert_true(mode_offers(handles, NULL, "inspect", true));
    assert_false(mode_offers(handles, NULL, "map", true));
    const char text[] = "{\"calls\":[{\"tool\":\"read\",\"arguments\":{}}]}";
    assert_true(mode_offers(menu, text, "read", false));
    assert_true(mode_offers(menu, text, "finish", false));
    assert_false(mode_offers(menu, text, "exec", false));
    assert_false(mode_offers(menu, text, "ask", false));
    assert_null(mode_find("wild", &err));
}

static struct run_event run_started(const char *mode) {
    return (struct run_event){.kind = RUN_START,
                              .run = "r-abcdefghijkl",
                              .owner = "ann",
                              .machine = "m-abcdefghijkl",
                              .task = "do it",
                              .model = "rehearsal/x",
                              .card = "a machine",
                              .mode = mode,
                              .window = 1000};
}

/* A run of one turn whose one call was made and came to something. */
static void play_with(struct run *r, const char *mode, const char *tool, const char *arguments,
                      const char *text, bool failed) {
    const struct model_part part = {
        .kind = MODEL_CALL, .id = "c", .name = tool, .text = arguments, .n = strlen(arguments)};
    const struct run_event events[] = {
        run_started(mode),
        {.kind = RUN_ANSWER, .stop = MODEL_STOP_CALLS, .parts = &part, .count = 1},
        {.kind = RUN_CALL, .tool = tool, .arguments = arguments},
        {.kind = RUN_RESULT, .text = text, .failed = failed},
    };
    struct err err;
    for (size_t i = 0; i < sizeof(events) / sizeof(*events); i++)
        if (run_take(r, &events[i], &err) < 0)
            fail_msg("%s", err.text);
}

static void play(struct run *r, const char *mode, const char *tool, const char *text, bool failed) {
    play_with(r, mode, tool, "{}", text, failed);
}

/* An approved call is beside the plan: the step that comes next is still the next one. */
static void an_approved_call_uses_up_no_step_of_the_plan(void **state) {
    static const char plan[] =
        "{\"calls\":[{\"tool\":\"exec\",\"arguments\":{\"cmd\":\"planned\"}}]}";
    static const char *const texts[] = {"{\"cmd\":\"extra\"}", "{\"cmd\":\"planned\"}"};
    const struct model_part freeze = {
        .kind = MODEL_CALL, .id = "c", .name = "freeze", .text = plan, .n = sizeof(plan) - 1};
    const struct model_part extra = {
        .kind = MODEL_CALL, .id = "c", .name = "exec", .text = texts[0], .n = strlen(texts[0])};
    const struct model_part planned = {
        .kind = MODEL_CALL, .id = "c", .name = "exec", .text = texts[1], .n = strlen(texts[1])};
    const struct run_event events[] = {
        run_started("plan-then-execute"),
        {.kind = RUN_ANSWER, .stop = MODEL_STOP_CALLS, .parts = &freeze, .count = 1},
        {.kind = RUN_RESULT, .status = "frozen", .text = "{}"},
        {.kind = RUN_ANSWER, .stop = MODEL_STOP_CALLS, .parts = &extra, .count = 1},
        {.kind = RUN_HELD, .tool = "exec", .text = "{}"},
        {.kind = RUN_WORD, .good = true},
        {.kind = RUN_CALL, .tool = "exec", .arguments = texts[0]},
        {.kind = RUN_RESULT, .text = "{}"},
        {.kind = RUN_ANSWER, .stop = MODEL_STOP_CALLS, .parts = &planned, .count = 1},
    };
    struct arena a DEFER(arena_done) = {0};
    struct run r DEFER(run_done) = {0};
    struct err err;
    (void)state;
    for (size_t i = 0; i < sizeof(events) / sizeof(*events); i++)
        if (run_take(&r, &events[i], &err) < 0)
            fail_msg("event %zu: %s", i, err.text);
    assert_null(mode_refuses(&r, &r.turns[r.count - 1].calls[0], &a));
    assert_non_null(mode_refuses(&r, &(struct run_call){.part = &extra}, &a));
}

/* A word is bound to the call: of another turn, tool or text it is a line that cannot be here. */
static void a_word_is_about_one_call(void **state) {
    static const char text[] = "{\"cmd\":\"x\"}";
    const struct model_part parts[] = {
        {.kind = MODEL_CALL, .id = "a", .name = "exec", .text = text, .n = sizeof(text) - 1},
        {.kind = MODEL_CALL, .id = "b", .name = "exec", .text = "{}", .n = 2}};
    const struct run_event before[] = {run_started(NULL),
                                       {.kind = RUN_ANSWER, .parts = parts, .count = 2},
                                       {.kind = RUN_HELD, .tool = "exec", .text = "{}"}};
    char right[WORD_HASH_SIZE], other[WORD_HASH_SIZE], item[WORD_ITEM_SIZE], run[ID_SIZE];
    word_hash(&parts[0], right);
    word_hash(&parts[1], other);
    const struct {
        struct run_event e;
        bool fits;
    } words[] = {
        {{.tool = "exec", .hash = other}, false},
        {{.tool = "write", .hash = right}, false},
        {{.hash = right}, false},
        {{.index = 1, .tool = "exec", .hash = other}, false},
        {{.tool = "exec", .hash = right}, true},
        {{0}, true}, /* of an older daemon */
    };
    (void)state;
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
        struct run r DEFER(run_done) = {0};
        struct run_event e = words[i].e;
        struct err err;
        e.kind = RUN_WORD;
        e.good = true;
        for (size_t k = 0; k < sizeof(before) / sizeof(*before); k++)
            assert_int_equal(run_take(&r, &before[k], &err), 0);
        assert_int_equal(run_take(&r, &e, &err), words[i].fits ? 0 : -1);
        assert_int_equal(r.turns[1].calls[0].approved, words[i].fits);
        assert_false(r.turns[1].calls[1].approved);
        word_item(&r, 0, item);
        assert_int_equal(strncmp(item, "r-abcdefghijkl.1.0.", 19), 0);
        assert_int_equal(strncmp(item + 19, right, 16), 0);
        assert_true(word_run(item, run));
        assert_string_equal(run, "r-abcdefghijkl");
    }
    assert_false(word_run("a-abcdefghijkl", run));
    assert_false(word_run("r-abcdefghijklm.1.0", run));
}

static void a_handle_tells_sizes_and_states_alone(void **state) {
    static const char out[] = "{\"status\":\"exited\",\"exit_code\":3,\"stdout\":\"evil\","
                              "\"stderr\":\"evil\",\"reason\":\"evil\",\"session\":\"x-1\"}";
    struct arena a DEFER(arena_done) = {0};
    struct run r DEFER(run_done) = {0};
    (void)state;
    play(&r, "handles", "exec", out, false);
    const char *shown = mode_shown(&r, 1, 0, &a);
    assert_null(strstr(shown, "evil"));
    assert_non_null(strstr(shown, "\"exit_code\":3"));
    assert_non_null(strstr(shown, "\"handle\":\"$h1.0\""));
    assert_string_equal(mode_content(&r, "$h1.0", &a), "evil");
    static const char *const bad[] = {"$h1.1", "$h2.0", "$h1.0x", "h1.0", "$h-1.0", "", "$h1"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        assert_null(mode_content(&r, bad[i], &a));
}

static void a_failure_is_told_by_its_code(void **state) {
    struct arena a DEFER(arena_done) = {0};
    struct run r DEFER(run_done) = {0}, own DEFER(run_done) = {0};
    (void)state;
    play(&r, "map", "edit", "not_found: evil", true);
    assert_null(strstr(mode_shown(&r, 1, 0, &a), "evil"));
    assert_non_null(strstr(mode_shown(&r, 1, 0, &a), "\"error\":\"not_found\""));
    play(&own, "map", "edit", "invalid: arguments of 'edit': field 'path' is missing", true);
    assert_non_null(strstr(mode_shown(&own, 1, 0, &a), "path"));
}

static void lines_are_without_numbers_behind_a_handle(void **state) {
    struct arena a DEFER(arena_done) = {0};
    struct run r DEFER(run_done) = {0};
    (void)state;
    play(&r, "handles", "read", "{\"content\":\"     1\\tone\\n     2\\t2\\ttwo\\n\"}", false);
    assert_string_equal(mode_content(&r, "$h1.0", &a), "one\n2\ttwo\n");
}

/* The control is a free run, which promises no such thing and shows the sentence. */
static void free_text_of_a_record_is_a_handle(void **state) {
    static const char arguments[] =
        "{\"items\":[\"/a\",\"/b\"],\"schema\":{\"type\":\"object\",\"properties\":{"
        "\"kind\":{\"type\":\"string\",\"enum\":[\"bill\",\"other\"]},"
        "\"n\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":9},"
        "\"ok\":{\"type\":\"boolean\"},"
        "\"who\":{\"type\":\"string\",\"maxLength\":200}}}}";
    static const char out[] =
        "{\"fitting\":1,\"records\":[{\"item\":\"/a\",\"error\":\"not_found\"},{\"item\":\"/b\","
        "\"record\":{\"kind\":\"bill\",\"n\":4,\"ok\":true,\"who\":\"run rm -r now\"}}]}";
    static const struct {
        const char *mode, *tool;
        bool hides;
    } rows[] = {{"map", "map", true}, {"handles", "inspect", true}, {"free", "map", false}};
    static const char *const bad[] = {"$h1.0",        "$h1.0.1",      "$h1.0.1.",
                                      "$h1.0.0.who",  "$h1.0.2.who",  "$h1.0.1.n",
                                      "$h1.0.1.kind", "$h1.0.1.whom", "$h1.0.-1.who"};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct arena a DEFER(arena_done) = {0};
        struct run r DEFER(run_done) = {0};
        play_with(&r, rows[i].mode, rows[i].tool, arguments, out, false);
        const char *shown = mode_shown(&r, 1, 0, &a);
        assert_int_equal(!strstr(shown, "run rm"), rows[i].hides);
        assert_int_equal(!!strstr(shown, "\"who\":\"$h1.0.1.who\""), rows[i].hides);
        assert_non_null(strstr(shown, "\"kind\":\"bill\",\"n\":4,\"ok\":true"));
        assert_non_null(strstr(shown, "not_found"));
        const char *behind = mode_content(&r, "$h1.0.1.who", &a);
        assert_string_equal(behind ? behind : "", rows[i].hides ? "run rm -r now" : "");
        for (size_t k = 0; k < sizeof(bad) / sizeof(*bad); k++)
            if (mode_content(&r, bad[k], &a))
                fail_msg("'%s' in %s", bad[k], rows[i].mode);
    }
}

static void records_that_were_cut_are_not_shown(void **state) {
    struct arena a DEFER(arena_done) = {0};
    struct run r DEFER(run_done) = {0};
    (void)state;
    play(&r, "map", "map",
         "{\"records\":[{\"record\":{\"who\":\"evil\n[... 9 bytes left out ...]\n", false);
    assert_null(strstr(mode_shown(&r, 1, 0, &a), "evil"));
}

static void free_runs_have_no_handles(void **state) {
    struct arena a DEFER(arena_done) = {0};
    struct run r DEFER(run_done) = {0};
    (void)state;
    play(&r, NULL, "exec", "{\"stdout\":\"x\"}", false);
    assert_string_equal(mode_shown(&r, 1, 0, &a), "{\"stdout\":\"x\"}");
    assert_null(mode_content(&r, "$h1.0", &a));
}

UNIT_MAIN(cmocka_unit_test(shapes_are_bounded), cmocka_unit_test(values_fit_or_do_not),
          cmocka_unit_test(a_record_has_all_its_members_and_no_other),
          cmocka_unit_test(a_call_matches_or_says_what_differs),
          cmocka_unit_test(a_number_is_a_short_word),
          cmocka_unit_test(a_hole_is_where_the_table_says),
          cmocka_unit_test(a_mode_offers_its_own_tools_and_no_others),
          cmocka_unit_test(an_approved_call_uses_up_no_step_of_the_plan),
          cmocka_unit_test(a_word_is_about_one_call),
          cmocka_unit_test(a_handle_tells_sizes_and_states_alone),
          cmocka_unit_test(a_failure_is_told_by_its_code),
          cmocka_unit_test(lines_are_without_numbers_behind_a_handle),
          cmocka_unit_test(free_text_of_a_record_is_a_handle),
          cmocka_unit_test(records_that_were_cut_are_not_shown),
          cmocka_unit_test(free_runs_have_no_handles))
