/* Who may use which row of the table of rights. */
#include "tests/unit/unit.h"

#include "service/rights.h"

enum { R = SCOPE_READ, X = SCOPE_RUN, A = SCOPE_ADMIN };

static const struct {
    const char *name;
    struct caller who;
} callers[] = {
    {"the user that runs the daemon", {.scopes = R | X | A, .local = true}},
    {"another user of this host", {.scopes = R | X, .local = true}},
    {"a token that reads", {.scopes = R, .token = "t-1"}},
    {"a token that runs", {.scopes = X, .token = "t-1"}},
    {"a token that reads and runs", {.scopes = R | X, .token = "t-1"}},
    {"a token that administers alone", {.scopes = A, .token = "t-1"}},
    {"a token of an administrator", {.scopes = R | X | A, .token = "t-1"}},
    {"a run", {.scopes = R | X}},
    {"nobody", {.scopes = 0}},
};

/* By role: which callers, in their order above; of those with the scope of the row. */
static const char *const by_role[] = {
    [ROLE_ANYBODY] = "111111111", [ROLE_OWNER] = "110001100", [ROLE_ADMIN] = "100001100"};

static void every_row_is_refused_to_those_without_it(void **state) {
    (void)state;
    for (size_t i = 0; i < RIGHT_COUNT; i++) {
        const struct right_row *row = &right_rows[i];
        assert_non_null(row->field);
        assert_non_null(row->grants);
        assert_true(row->scope == SCOPE_READ || row->scope == SCOPE_RUN);
        for (size_t k = 0; k < sizeof(callers) / sizeof(*callers); k++) {
            struct err err = {0};
            bool may = by_role[row->role][k] == '1' && callers[k].who.scopes & row->scope;
            if ((authorise(&callers[k].who, (enum right)i, &err) == 0) != may)
                fail_msg("%s: %s", row->field, callers[k].name);
            if (!may)
                assert_int_equal(err.code, ERR_DENIED);
        }
    }
}

static void a_scope_includes_no_other(void **state) {
    static const enum token_scope scopes[] = {SCOPE_READ, SCOPE_RUN, SCOPE_ADMIN};
    (void)state;
    for (size_t i = 0; i < 3; i++)
        for (size_t k = 0; k < 3; k++) {
            const struct caller who = {.scopes = scopes[i], .token = "t-1"};
            struct err err;
            assert_int_equal(allow(&who, scopes[k], &err), i == k ? 0 : -1);
        }
}

/* Each field of a request for a machine that grants something, alone. */
static void a_request_for_a_machine_is_judged_by_its_fields(void **state) {
    struct dir_request ro = {.path = "/d", .mode = "ro"}, rw = {.path = "/d", .mode = "rw"},
                       both[] = {ro, rw};
    struct net_request net = {.target = "x"};
    struct secret_grant_request secret = {.name = "s"};
    struct grant_request grant = {.kind = "file"};
    const struct {
        struct machine_request r;
        const char *may; /* as by_role, of all callers */
    } rows[] = {
        {{.name = "plain"}, "110110110"},
        {{.dirs = {&ro, 1}}, "110110110"},
        {{.dirs = {&rw, 1}}, "100000100"},
        {{.dirs = {both, 2}}, "100000100"},
        {{.net = {&net, 1}}, "110000100"},
        {{.models = {.allow = true}}, "110000100"},
        {{.models = {.tokens = {5, true}}}, "110000100"},
        {{.models = {.money = {5, true}}}, "110000100"},
        {{.secrets = {&secret, 1}}, "110000100"},
        {{.grants = {&grant, 1}}, "110000100"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        for (size_t k = 0; k < sizeof(callers) / sizeof(*callers); k++) {
            struct err err;
            bool may = authorise_machine(&callers[k].who, &rows[i].r, &err) == 0;
            if (may != (rows[i].may[k] == '1'))
                fail_msg("request %zu of %s", i, callers[k].name);
        }
}

UNIT_MAIN(cmocka_unit_test(every_row_is_refused_to_those_without_it),
          cmocka_unit_test(a_scope_includes_no_other),
          cmocka_unit_test(a_request_for_a_machine_is_judged_by_its_fields))
