#include "tests/unit/unit.h"

#include <string.h>

#include "base/defer.h"
#include "cli/image/dockerfile.h"
#include "cli/image/dockerignore.h"

static struct err err;

static int translate(const char *text, struct recipe *r, struct buf *notes) {
    static const char *const args[] = {"GIVEN=given", "OVER=won"};
    static const char *const env[] = {"PATH=/base/bin", "LANG=C"};
    const struct dockerfile_input in = {args, 2, env, 2, "app", "/base/dir"};
    err = (struct err){0};
    return dockerfile_read(text, strlen(text), &in, r, notes, &err);
}

/* Words of the last line that the text gives, joined by '|'. */
static const char *last_words(const char *text) {
    static char joined[4096];
    struct recipe r DEFER(recipe_done) = {0};
    if (translate(text, &r, NULL) < 0)
        fail_msg("%s: %s", text, err.text);
    const struct recipe_line *l = &r.lines[r.count - 1];
    joined[0] = '\0';
    for (size_t i = 0; i < l->count; i++) {
        size_t n = strlen(joined);
        snprintf(joined + n, sizeof(joined) - n, "%s%s", i ? "|" : "",
                 l->words[i] ? l->words[i] : l->text);
    }
    return joined;
}

static void instructions_become_lines_of_a_recipe(void **state) {
    (void)state;
    struct recipe r DEFER(recipe_done) = {0};
    struct buf notes DEFER(buf_done) = BUF(4096);
    static const char text[] =
        "# a comment\nFROM debian:12\n\nrun make \\\n  # not this\n\n  install\n"
        "EXPOSE 80\nCOPY a b /c/\nUSER app\nWORKDIR x\nCMD exec top\n";
    assert_int_equal(translate(text, &r, &notes), 0);
    static const enum recipe_verb verbs[] = {RECIPE_BASE, RECIPE_EXEC, RECIPE_COPY,
                                             RECIPE_AS,   RECIPE_DIR,  RECIPE_COMMAND};
    assert_int_equal(r.count, 6);
    for (size_t i = 0; i < r.count; i++)
        assert_int_equal(r.lines[i].verb, verbs[i]);
    assert_string_equal(r.kind, "Dockerfile");
    assert_int_equal(r.lines[1].number, 4);
    assert_int_equal(r.lines[2].number, 9);
    assert_string_equal(r.lines[1].words[2], "make   install");
    assert_string_equal(r.lines[4].words[0], "/base/dir/x");
    assert_string_equal(r.lines[5].words[0], "/bin/sh");
    assert_string_equal(notes.data, "line 8 of the Dockerfile: EXPOSE has no effect; see carrel "
                                    "expose\n"
                                    "--build-arg GIVEN has no effect: the Dockerfile has no ARG "
                                    "GIVEN\n"
                                    "--build-arg OVER has no effect: the Dockerfile has no ARG "
                                    "OVER\n");
}

static void forms_and_variables_are_read_as_docker_reads_them(void **state) {
    (void)state;
    static const char *const pairs[][2] = {
        {"FROM a\nRUN [\"x\", \"y z\"]", "x|y z"},
        {"FROM a\nRUN [ -f x ] && y", "/bin/sh|-c|[ -f x ] && y"},
        {"FROM a\nRUN echo $HOME '\\$x'", "/bin/sh|-c|echo $HOME '\\$x'"},
        {"FROM a\nSHELL [\"/bin/bash\",\"-ec\"]\nRUN x", "/bin/bash|-ec|x"},
        {"FROM a\nRUN <<EOF\nfirst\n  second\nEOF\n", "/bin/sh|-c|first\n  second\n"},
        {"FROM a\nRUN <<-'E'\n\tfirst\n\tE\n", "/bin/sh|-c|first\n"},
        {"FROM a\nRUN cat <<A >x\n$1\nA\n", "/bin/sh|-c|cat <<A >x\n$1\nA\n"},
        {"FROM a\nRUN grep x <<<word", "/bin/sh|-c|grep x <<<word"},
        {"# escape=`\nFROM a\nRUN dir `\n  C:\\", "/bin/sh|-c|dir   C:\\"},
        {"FROM a\nRUN a \\\\\nRUN b", "/bin/sh|-c|b"},
        {"FROM a\nENV A=1 B=$A", "B="},
        {"FROM a\nENV A=1\nENV B=${A}2 C=\"$A b\"", "C=1 b"},
        {"FROM a\nENV A 1 2  3", "A=1 2  3"},
        {"FROM a\nENV A=a\\ b B='$A'", "B=$A"},
        {"FROM a\nENV A=\\$A", "A=$A"},
        {"FROM a\nENV A=\"\\\"q\\\" \\n\"", "A=\"q\" \\n"},
        {"FROM a\nENV P=/x:$PATH", "P=/x:/base/bin"},
        {"FROM a\nENV P=${NONE:-d}${LANG:+s}${NONE:+t}${NONE-u}", "P=dsu"},
        {"FROM a\nENV P=${NONE:-${LANG:-x}}", "P=C"},
        {"FROM a\nENV P=$ Q=cost$", "Q=cost$"},
        {"FROM a\nARG GIVEN", "GIVEN=given"},
        {"FROM a\nARG OVER=lost", "OVER=won"},
        {"ARG V=1\nFROM a:$V", "a:1|a:1"},
        {"ARG V=1\nFROM a\nENV W=$V", "W="},
        {"ARG V=1\nFROM a\nARG V\nENV W=$V", "W=1"},
        {"FROM a\nENV V=env\nARG V=arg\nUSER $V", "env"},
        {"FROM a\nWORKDIR /a\nWORKDIR b/../c/.", "/a/c"},
        {"FROM a\nWORKDIR ../../..", "/"},
        {"FROM a\nCOPY x .", "x|/base/dir/"},
        {"FROM a\nCOPY --link [\"a b\",\"/c d\"]", "a b|/c d"},
        {"FROM a\nENV D=dest\nADD $D/*.txt /$D/", "dest/*.txt|/dest/"},
        {"FROM docker.io/library/debian:12", "debian:12|docker.io/library/debian:12"},
        {"FROM ghcr.io/org/app:1 AS x", "ghcr.io.org.app:1|ghcr.io/org/app:1"},
        {"FROM org/app:latest", "org.app|org/app:latest"},
        {"FROM a\r\nRUN x\r\n", "/bin/sh|-c|x"},
    };
    for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++)
        assert_string_equal(last_words(pairs[i][0]), pairs[i][1]);
}

static void owner_and_mode_of_a_copy_are_read(void **state) {
    (void)state;
    struct recipe r DEFER(recipe_done) = {0};
    assert_int_equal(
        translate("FROM a\nENV U=app\nCOPY --chown=$U:staff --chmod=755 x /y", &r, NULL), 0);
    assert_string_equal(r.lines[2].chown, "app:staff");
    assert_string_equal(r.lines[2].chmod, "755");
    assert_null(r.lines[1].chown);
}

static void wrong_and_unsupported_text_is_refused_with_its_line(void **state) {
    (void)state;
    static const char *const bad[][2] = {
        {"", "the Dockerfile has no FROM"},
        {"ARG A=1\n", "the Dockerfile has no FROM"},
        {"RUN x\n", "line 1 of the Dockerfile: RUN before FROM"},
        {"FROM a\nFETCH x\n", "line 2 of the Dockerfile: unknown instruction 'FETCH'"},
        {"FROM a\nFROM b\n", "line 2 of the Dockerfile: a second FROM"},
        {"FROM --platform=linux/arm64 a\n", "options of FROM are not supported"},
        {"FROM a b\n", "FROM takes IMAGE or IMAGE AS NAME"},
        {"FROM ../a\n", "not a name that an image in Carrel can have"},
        {"FROM a@sha256:00\n", "not a name that an image in Carrel can have"},
        {"FROM a\nRUN\n", "RUN takes a command"},
        {"FROM a\nRUN --mount=type=cache x\n", "option --mount of RUN is not supported"},
        {"FROM a\nRUN --network=none x\n", "option --network of RUN is not supported"},
        {"FROM a\nRUN <<EOF\nx\n", "here-document 'EOF' has no line that ends it"},
        {"FROM a\nRUN <<EOF\n#!/usr/bin/python3\nEOF\n", "its own interpreter"},
        {"FROM a\nCOPY <<EOF /x\nx\nEOF\n", "here-documents of COPY are not supported"},
        {"FROM a\nCOPY x\n", "COPY takes one or more sources and a destination"},
        {"FROM a\nCOPY --from=b x y\n", "COPY --from is not supported"},
        {"FROM a\nCOPY --chmod=u+x x y\n", "option --chmod=u+x of COPY is not supported"},
        {"FROM a\nADD http://x/y /y\n", "ADD of a URL is not supported"},
        {"FROM a\nADD x.tar.gz /y\n", "ADD does not unpack archives here"},
        {"FROM a\nENV A\n", "ENV takes NAME=VALUE"},
        {"FROM a\nENV A=1 B\n", "ENV takes NAME=VALUE, not 'B'"},
        {"FROM a\nENV 1A=1\n", "'1A' is not a name of a variable"},
        {"FROM a\nENV A='x\n", "a quote (') is not closed"},
        {"FROM a\nENV A=${B\n", "are supported"},
        {"FROM a\nENV A=${B:-x\n", "no closing brace"},
        {"FROM a\nENV A=\"${B:?is needed}\"\n", "variable 'B' is not set: is needed"},
        {"FROM a\nENV A=${B#x}\n", "only ${NAME}"},
        {"FROM a\nSHELL bash\n", "SHELL takes a JSON array"},
        {"FROM a\nONBUILD RUN x\n", "ONBUILD is not supported"},
        {"# escape=x\nFROM a\n", "the escape character must be"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct recipe r DEFER(recipe_done) = {0};
        assert_int_equal(translate(bad[i][0], &r, NULL), -1);
        if (!strstr(err.text, bad[i][1]))
            fail_msg("%s: %s", bad[i][0], err.text);
        assert_null(r.lines);
    }
}

static void values_that_double_on_each_line_are_refused(void **state) {
    (void)state;
    struct recipe r DEFER(recipe_done) = {0};
    struct buf text DEFER(buf_done) = BUF(64 << 10);
    assert_true(buf_addf(&text, "FROM a\nENV A=0123456789\n"));
    for (int i = 0; i < 40; i++)
        assert_true(buf_addf(&text, "ENV A=$A$A\n"));
    assert_int_equal(translate(text.data, &r, NULL), -1);
    assert_int_equal(err.code, ERR_LIMIT);
}

static void dockerfiles_are_told_apart_from_recipes(void **state) {
    (void)state;
    assert_true(dockerfile_is("# x\n\nfrom a\n", 12));
    assert_true(dockerfile_is("\xef\xbb\xbf"
                              "FROM a",
                              9));
    assert_true(dockerfile_is("ARG A\nFROM a", 12));
    assert_false(dockerfile_is("base a\nrun FROM\n", 16));
    assert_false(dockerfile_is("", 0));
    assert_false(dockerfile_is("FROM a\0", 7));
}

static void patterns_of_dockerignore_leave_files_out(void **state) {
    (void)state;
    static const char text[] = "# comment\n/build\n*.log\n!keep.log\n**/*.tmp\ndocs/**/x\n"
                               "a/*/b\nsub/\n!sub/in\n[ab]?\n";
    static const struct {
        const char *path;
        bool ignored;
    } rows[] = {
        {"build", true},    {"build/x/y", true},  {"x/build", false},  {"a.log", true},
        {"x/a.log", false}, {"keep.log", false},  {"y.tmp", true},     {"x/z/y.tmp", true},
        {"docs/x", true},   {"docs/p/q/x", true}, {"docs/p/q", false}, {"a/c/b", true},
        {"a/c/d/b", false}, {"sub/out", true},    {"sub/in", false},   {"sub/in/deep", false},
        {"b1", true},       {"c1", false},        {"builds", false},
    };
    struct dockerignore d DEFER(dockerignore_done) = {0};
    assert_int_equal(dockerignore_read(text, strlen(text), &d, &err), 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        if (dockerignore_matches(&d, rows[i].path) != rows[i].ignored)
            fail_msg("%s", rows[i].path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(instructions_become_lines_of_a_recipe),
        cmocka_unit_test(forms_and_variables_are_read_as_docker_reads_them),
        cmocka_unit_test(owner_and_mode_of_a_copy_are_read),
        cmocka_unit_test(wrong_and_unsupported_text_is_refused_with_its_line),
        cmocka_unit_test(values_that_double_on_each_line_are_refused),
        cmocka_unit_test(dockerfiles_are_told_apart_from_recipes),
        cmocka_unit_test(patterns_of_dockerignore_leave_files_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
