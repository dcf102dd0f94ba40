/* The EXEC message that a request becomes: defaults, who wins, and what is refused. */
#include "tests/unit/unit.h"

#include <stdlib.h>

#include "base/defer.h"
#include "service/exec/plan.h"

static const char *words[] = {"make", "test"};
static const struct exec_request make_test = {.argv = {words, 2}};

static const struct exec_defaults image = {.uid = 70,
                                           .gid = 71,
                                           .user = "postgres",
                                           .home = "/var/lib/postgres",
                                           .cwd = "/srv",
                                           .env = {(const char *[]){"PGDATA", "/data"}, 2}};

static struct exec_plan plan_of(const struct exec_request *r, const struct exec_defaults *from) {
    struct exec_plan p;
    struct err err = {0};
    if (exec_plan_make(&p, r, from, NULL, NULL, NULL, true, &err) < 0)
        fail_msg("%s", err.text);
    return p;
}

static void refused(const struct exec_request *r, enum err_code code) {
    struct exec_plan p;
    struct err err = {0};
    assert_int_equal(exec_plan_make(&p, r, NULL, NULL, NULL, NULL, true, &err), -1);
    assert_int_equal(err.code, code);
    assert_null(p.argv); /* nothing is left to free */
    assert_null(p.env);
}

/* The value of a variable; NULL: it is not set. Fails if it is set twice. */
static const char *variable(const struct exec_plan *p, const char *name) {
    const char *found = NULL;
    size_t len = strlen(name);
    for (const char **at = p->env; *at; at++)
        if (strncmp(*at, name, len) == 0 && (*at)[len] == '=') {
            assert_null(found);
            found = *at + len + 1;
        }
    return found;
}

static void a_command_runs_as_user_in_its_home(void **state) {
    (void)state;
    struct exec_plan p DEFER(exec_plan_done) = plan_of(&make_test, NULL);
    assert_string_equal(p.exec.argv.v[0], "make");
    assert_string_equal(p.exec.argv.v[1], "test");
    assert_null(p.exec.argv.v[2]);
    assert_int_equal(p.exec.uid, 1000);
    assert_int_equal(p.exec.gid, 1000);
    assert_int_equal(p.exec.groups.count, 1);
    assert_int_equal(p.exec.groups.v[0], 1000);
    assert_string_equal(p.exec.cwd.s, "/home/user");
    assert_int_equal(p.exec.cwd.n, strlen("/home/user"));
    assert_string_equal(variable(&p, "HOME"), "/home/user");
    assert_string_equal(variable(&p, "USER"), "user");
    assert_string_equal(variable(&p, "TERM"), "dumb");
    assert_int_equal(p.exec.timeout_ms, 0);
}

static void a_command_line_goes_to_the_shell(void **state) {
    (void)state;
    const struct exec_request r = {.command = "echo $HOME > x"};
    struct exec_plan p DEFER(exec_plan_done) = plan_of(&r, NULL);
    assert_string_equal(p.exec.argv.v[0], "/bin/sh");
    assert_string_equal(p.exec.argv.v[1], "-c");
    assert_string_equal(p.exec.argv.v[2], "echo $HOME > x");
    assert_null(p.exec.argv.v[3]);
    assert_int_equal(p.exec.flags & MSG_EXEC_SHELL, MSG_EXEC_SHELL);
}

static void known_users_need_no_account_in_the_machine(void **state) {
    (void)state;
    static const struct {
        const char *user, *home;
        uint32_t uid;
    } rows[] = {{"user", "/home/user", 1000}, {"root", "/root", 0}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct exec_request r = make_test;
        r.user = rows[i].user;
        struct exec_plan p DEFER(exec_plan_done) = plan_of(&r, NULL);
        assert_true(p.exec.flags & MSG_EXEC_NAMED);
        assert_string_equal(p.exec.env.v[0], rows[i].user);
        assert_int_equal(p.exec.uid, rows[i].uid);
        assert_int_equal(p.exec.gid, rows[i].uid);
        assert_string_equal(p.exec.cwd.s, rows[i].home);
        assert_string_equal(variable(&p, "HOME"), rows[i].home);
        assert_string_equal(variable(&p, "SHELL"), "/bin/bash");
    }
}

static void other_users_are_looked_up_in_the_machine(void **state) {
    (void)state;
    static const struct {
        const char *user;
        uint32_t uid;
    } rows[] = {
        {"postgres", MSG_ID_LOOKUP}, {"0", 0}, {"65534", 65534}, {"www-data", MSG_ID_LOOKUP}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct exec_request r = make_test;
        r.user = rows[i].user;
        r.env = (struct texts){(const char *[]){"SHELL", "/bin/zsh"}, 2};
        struct exec_plan p DEFER(exec_plan_done) = plan_of(&r, i % 2 ? &image : NULL);
        assert_true(p.exec.flags & MSG_EXEC_NAMED);
        assert_string_equal(p.exec.env.v[0], rows[i].user);
        assert_int_equal(p.exec.uid, rows[i].uid);
        assert_int_equal(p.exec.gid, MSG_ID_NONE);
        assert_string_equal(p.exec.cwd.s, i % 2 ? "/srv" : MSG_CWD_HOME);
        assert_null(variable(&p, "HOME"));
        assert_null(variable(&p, "USER"));
        assert_string_equal(variable(&p, "SHELL"), "/bin/zsh");
    }
}

/* A guest of an older version takes the message as it is: no name, no marker, no missing HOME. */
static void an_older_guest_gets_ids_and_no_names(void **state) {
    (void)state;
    static const char *const users[] = {NULL, "user", "root", "33"};
    struct exec_plan p;
    struct err err;
    struct exec_request r = make_test;
    for (size_t i = 0; i < sizeof(users) / sizeof(*users); i++) {
        r.user = users[i];
        assert_int_equal(exec_plan_make(&p, &r, NULL, NULL, NULL, NULL, false, &err), 0);
        assert_false(p.exec.flags & MSG_EXEC_NAMED);
        assert_int_equal(p.exec.cwd.s[0], '/');
        assert_true(p.exec.gid <= 65534);
        assert_non_null(variable(&p, "HOME"));
        assert_non_null(strchr(p.exec.env.v[0], '='));
        exec_plan_done(&p);
    }
    r.user = "postgres";
    assert_int_equal(exec_plan_make(&p, &r, NULL, NULL, NULL, NULL, false, &err), -1);
    assert_int_equal(err.code, ERR_UNSUPPORTED);
}

static void an_image_chooses_what_the_request_leaves_out(void **state) {
    (void)state;
    struct exec_plan p DEFER(exec_plan_done) = plan_of(&make_test, &image);
    assert_int_equal(p.exec.uid, 70);
    assert_int_equal(p.exec.gid, 71);
    assert_string_equal(p.exec.cwd.s, "/srv");
    assert_string_equal(variable(&p, "USER"), "postgres");
    assert_string_equal(variable(&p, "HOME"), "/var/lib/postgres");
    assert_string_equal(variable(&p, "PGDATA"), "/data");
    assert_string_equal(variable(&p, "SHELL"), "/bin/sh");
    struct exec_request r = make_test;
    r.user = "root";
    r.cwd = "/tmp";
    struct exec_plan q DEFER(exec_plan_done) = plan_of(&r, &image);
    assert_int_equal(q.exec.uid, 0);
    assert_string_equal(q.exec.cwd.s, "/tmp");
}

static void the_request_overrides_machine_network_and_image(void **state) {
    (void)state;
    const struct texts network = {(const char *[]){"A", "network", "B", "network"}, 4};
    const struct texts machine = {(const char *[]){"B", "machine", "C", "machine"}, 4};
    struct exec_request r = make_test;
    r.env = (struct texts){(const char *[]){"C", "request", "PGDATA", "/other", "HOME", "/h"}, 6};
    struct exec_plan p DEFER(exec_plan_done) = {0};
    struct err err;
    assert_int_equal(exec_plan_make(&p, &r, &image, &network, &machine, "/of/machine", true, &err),
                     0);
    assert_string_equal(variable(&p, "A"), "network");
    assert_string_equal(variable(&p, "B"), "machine");
    assert_string_equal(variable(&p, "C"), "request");
    assert_string_equal(variable(&p, "PGDATA"), "/other");
    assert_string_equal(variable(&p, "HOME"), "/h");
    assert_string_equal(p.exec.cwd.s, "/of/machine");
}

static void a_terminal_has_a_size_and_a_type(void **state) {
    (void)state;
    struct exec_request r = make_test;
    r.terminal = true;
    r.pty.rows = (struct given){50, true};
    r.pty.cols = (struct given){132, true};
    r.timeout = (struct given){2500, true};
    struct exec_plan p DEFER(exec_plan_done) = plan_of(&r, NULL);
    assert_int_equal(p.exec.rows, 50);
    assert_int_equal(p.exec.cols, 132);
    assert_int_equal(p.exec.timeout_ms, 2500);
    assert_string_equal(variable(&p, "TERM"), "xterm-256color");
}

static void requests_without_a_sound_command_are_refused(void **state) {
    (void)state;
    struct exec_request r = {0};
    refused(&r, ERR_INVALID); /* neither argv nor command */
    r = make_test;
    r.command = "make";
    refused(&r, ERR_INVALID); /* both */
    r = (struct exec_request){.argv = {(const char *[]){""}, 1}};
    refused(&r, ERR_INVALID);
    static const char *const users[] = {"", "no body", "65535", "-1", "a:b", "a/b", "a\nb"};
    for (size_t i = 0; i < sizeof(users) / sizeof(*users); i++) {
        r = make_test;
        r.user = users[i];
        refused(&r, ERR_INVALID);
    }
    r = make_test;
    r.cwd = "relative";
    refused(&r, ERR_INVALID);
    r.user = "postgres";
    r.cwd = "~"; /* only the plan itself may say that to the guest */
    refused(&r, ERR_INVALID);
}

static void texts_have_limits(void **state) {
    (void)state;
    char *big DEFER_FREE = malloc(EXEC_TEXT_MAX + 2);
    assert_non_null(big);
    memset(big, 'x', EXEC_TEXT_MAX + 1);
    big[EXEC_TEXT_MAX + 1] = '\0';
    struct exec_request r = {.command = big};
    refused(&r, ERR_LIMIT);
    r = make_test;
    r.env = (struct texts){(const char *[]){"BIG", big}, 2};
    refused(&r, ERR_LIMIT);
    r.env = (struct texts){(const char *[]){"A=B", ""}, 2};
    refused(&r, ERR_INVALID);
    char names[EXEC_ENV_MAX + 1][8];
    const char *pairs[2 * (EXEC_ENV_MAX + 1)];
    for (size_t i = 0; i <= EXEC_ENV_MAX; i++) {
        snprintf(names[i], sizeof(names[i]), "V%zu", i);
        pairs[2 * i] = names[i];
        pairs[2 * i + 1] = "";
    }
    r.env = (struct texts){pairs, 2 * (EXEC_ENV_MAX + 1)};
    refused(&r, ERR_LIMIT);
}

/* Each alone fits; together they would not. */
static void a_variable_that_is_overridden_does_not_count(void **state) {
    (void)state;
    char *big DEFER_FREE = malloc(EXEC_TEXT_MAX);
    assert_non_null(big);
    memset(big, 'x', EXEC_TEXT_MAX - 1);
    big[EXEC_TEXT_MAX * 3 / 4] = '\0';
    struct exec_request r = make_test;
    r.env = (struct texts){(const char *[]){"BIG", big, "BIG", big}, 4};
    struct exec_plan p DEFER(exec_plan_done) = plan_of(&r, NULL);
    assert_string_equal(variable(&p, "BIG"), big);
    r.env = (struct texts){(const char *[]){"BIG", big, "OTHER", big}, 4};
    refused(&r, ERR_LIMIT);
}

UNIT_MAIN(cmocka_unit_test(a_command_runs_as_user_in_its_home),
          cmocka_unit_test(a_command_line_goes_to_the_shell),
          cmocka_unit_test(known_users_need_no_account_in_the_machine),
          cmocka_unit_test(other_users_are_looked_up_in_the_machine),
          cmocka_unit_test(an_older_guest_gets_ids_and_no_names),
          cmocka_unit_test(an_image_chooses_what_the_request_leaves_out),
          cmocka_unit_test(the_request_overrides_machine_network_and_image),
          cmocka_unit_test(a_terminal_has_a_size_and_a_type),
          cmocka_unit_test(requests_without_a_sound_command_are_refused),
          cmocka_unit_test(texts_have_limits),
          cmocka_unit_test(a_variable_that_is_overridden_does_not_count))
