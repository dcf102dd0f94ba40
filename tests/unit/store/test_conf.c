#include "tests/unit/unit.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/defer.h"
#include "store/conf.h"
#include "store/machines.h"
#include "tests/unit/scratch.h"

static struct err err;

static void parse(const char *text, struct conf *ret) {
    err = (struct err){0};
    if (conf_parse(text, strlen(text), ret, &err) < 0)
        fail_msg("%s", err.text);
}

static void an_empty_file_is_the_defaults(void **state) {
    (void)state;
    struct conf a, b;
    parse("", &a);
    conf_defaults(&b);
    assert_memory_equal(&a, &b, sizeof(a));
    assert_int_equal(a.log_bytes, 64 << 20);
    assert_int_equal(a.max_machines, 1000);
    assert_int_equal(a.idle_action, IDLE_PAUSE);
    assert_int_equal(a.steps, STEPS_EVERY);
    assert_string_equal(a.listen, "");
    assert_int_equal(conf_read("/nonexistent/carrel.conf", &a, &err), 0);
    assert_memory_equal(&a, &b, sizeof(a));
}

static void agents_are_sections_with_their_name(void **state) {
    (void)state;
    struct conf c;
    parse("[agents]\ntokens = 7\nmoney = 1.5\n"
          "[agent one]\nstart = run-it \"$@\"\nenv = A=1\nenv = B=2\n"
          "[agent two]\nonce = do-it\nimage = small\n",
          &c);
    assert_int_equal(c.agent_tokens, 7);
    assert_int_equal(c.agent_micro, 1500000);
    assert_int_equal(c.agents.count, 2);
    assert_string_equal(c.agents.list[0].name, "one");
    assert_string_equal(c.agents.list[0].start, "run-it \"$@\"");
    assert_int_equal(c.agents.list[0].env_count, 2);
    assert_string_equal(c.agents.list[0].env[1], "B=2");
    assert_string_equal(c.agents.list[1].once, "do-it");
    assert_string_equal(c.agents.list[1].image, "small");
}

static void wrong_agents_are_refused(void **state) {
    (void)state;
    static const char *const wrong[] = {
        "[agent one]\nenv = A=1\n", /* no command */
        "[agent ls]\nstart = x\n",  /* a subcommand */
        "[agent A b]\nstart = x\n", /* not a name */
        "[agent ]\nstart = x\n",
        "[agent one]\nstart = x\nstart = y\n", /* twice */
        "[agent one]\nstart = x\nenv = noequals\n",
        "[agent one]\nstart = x\nstop = y\n", /* unknown key */
    };
    struct conf c;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        if (conf_parse(wrong[i], strlen(wrong[i]), &c, &err) == 0)
            fail_msg("accepted: %s", wrong[i]);
}

static void a_login_goes_only_to_https_or_to_this_host(void **state) {
    (void)state;
    static const char *const wrong[] = {"http://example.com",     "http://127.0.0.1.example.com",
                                        "http://127.0.0.1",       "https://user@example.com",
                                        "https://example.com/?a", "https://example.com/",
                                        "ftp://example.com"};
    struct conf c;
    char text[128];
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        snprintf(text, sizeof(text), "[logins]\nclaude_url = %s\n", wrong[i]);
        if (conf_parse(text, strlen(text), &c, &err) == 0)
            fail_msg("accepted: %s", wrong[i]);
    }
    parse("[logins]\ncodex_url = http://127.0.0.1:1234/x\n", &c);
    assert_string_equal(c.login_codex_url, "http://127.0.0.1:1234/x");
    assert_string_equal(c.login_claude_url, "https://api.anthropic.com");
    assert_string_equal(c.login_codex_token_url, "https://auth.openai.com/oauth/token");
}

static void every_key_is_read(void **state) {
    (void)state;
    struct conf c;
    parse("# comment\n"
          "[daemon]\nlisten = [::1]:7070\n"
          "roots = /one\n  ann:/two\nroots = /three\nmax_machines = 5\n"
          "[defaults]\nmem = 512M\ncpus = 1.5\npids = 64\ndisk = 2G\nttl = 1d\nidle = 90s\n"
          "idle_action = destroy\nsteps = risky\n"
          "[output]\nlog_bytes = 1M\n[journal]\nsegment_bytes = 128K\n[boxes]\nuid_base = 700000\n"
          "[gate]\nhosts=/h\nca : /c ; of servers that the gate trusts",
          &c);
    assert_string_equal(c.listen, "[::1]:7070");
    assert_string_equal(c.gate_hosts, "/h");
    assert_string_equal(c.gate_ca, "/c");
    assert_int_equal(c.root_count, 3);
    assert_string_equal(c.roots[1], "/two");
    assert_string_equal(c.root_owners[0], "");
    assert_string_equal(c.root_owners[1], "ann");
    assert_int_equal(c.max_machines, 5);
    assert_int_equal(c.mem_bytes, 512 << 20);
    assert_int_equal(c.cpu_milli, 1500);
    assert_int_equal(c.pids, 64);
    assert_int_equal(c.disk_bytes, 2ll << 30);
    assert_int_equal(c.ttl_ms, 86400000);
    assert_int_equal(c.idle_ms, 90000);
    assert_int_equal(c.idle_action, IDLE_DESTROY);
    assert_int_equal(c.steps, STEPS_RISKY);
    assert_int_equal(c.log_bytes, 1 << 20);
    assert_int_equal(c.journal_segment_bytes, 128 << 10);
    assert_int_equal(c.uid_base, 700000);
}

/* docs/reference/conf.md says what 0 means for these, so 0 must be accepted. */
static void zero_is_taken_where_it_has_a_meaning(void **state) {
    (void)state;
    static const char text[] = "[steps]\ndurable_after = 0\n[journal]\nkeep_bytes = 0\n";
    struct conf c;
    conf_defaults(&c);
    assert_int_equal(c.durable_after_ms, 1000);
    assert_int_equal(c.journal_keep_bytes, 1ull << 30);
    assert_int_equal(c.journal_refusals, 10);
    assert_int_equal(conf_parse(text, strlen(text), &c, &err), 0);
    assert_int_equal(c.durable_after_ms, 0);
    assert_int_equal(c.journal_keep_bytes, 0);
    assert_int_equal(conf_parse("[journal]\nrefusals = 0\n", 23, &c, &err), -1);
}

static void mistakes_name_their_line(void **state) {
    (void)state;
    char longest[CONF_LINE_MAX + 40], roots[1024] = "[daemon]\n";
    snprintf(longest, sizeof(longest), "\n# %0*d", CONF_LINE_MAX, 1);
    for (int i = 0; i <= CONF_ROOTS_MAX; i++)
        snprintf(roots + strlen(roots), sizeof(roots) - strlen(roots), "roots=/%d\n", i);
    const struct {
        const char *text;
        const char *line;
        const char *about;
        const char *remedy;
    } cases[] = {
        {"[daemon]\n\nlissten = 1.2.3.4:5\n", "line 3", "unknown key 'lissten' in section [daemon]",
         "'listen' in [daemon]"},
        {"memory = 5M\n", "line 1", "unknown key 'memory' in section []", "'mem' in [defaults]"},
        {"[default]\nmem = 5M\n", "line 2", "section [default]", "'mem' in [defaults]"},
        {"[defaults]\nmem = lots\n", "line 2", "mem: 'lots' is not a size", "512M"},
        {"[defaults]\nmem = 1K\n", "line 2",
         "mem: '1K' is out of range: must be between 4M and 16T", ""},
        {"[defaults]\nmem = -1\n", "line 2", "mem", ""},
        {"[defaults]\nmem = 1M\n", "line 2", "mem", ""},
        {"[defaults]\nidle_action = sleep\n", "line 2", "unknown idle action 'sleep'",
         "pause stop destroy"},
        {"[daemon]\nmax_machines = 0\n", "line 2",
         "max_machines: '0' is out of range: must be between 1 and 100000", ""},
        {"[daemon]\nended_keep = 1ms\n", "line 2",
         "ended_keep: '1ms' is out of range: must be between 1s and 3650d", ""},
        {"[daemon]\nmax_machines = 1\nmax_machines = 2\n", "line 3", "given twice", ""},
        {"[gate]\nhosts = relative\n", "line 2", "not an absolute path", ""},
        {"[daemon]\nlisten = 7070\n", "line 2", "not an address", "127.0.0.1:7070"},
        {"[daemon]\nlisten = ::1:7070\n", "line 2", "not an address", "[::1]:7070"},
        {"[daemon]\nlisten = a:70700\n", "line 2", "not an address", ""},
        {"[daemon]\nwhat is this\n", "line 2", "is not [section] or key = value", "comments"},
        {"[daemon\n", "line 1", "is not [section] or key = value", ""},
        {longest, "line 2", "is longer than", ""},
        {roots, "line 34", "more than 32 lines", ""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct conf c = {.pids = 77};
        err = (struct err){0};
        if (conf_parse(cases[i].text, strlen(cases[i].text), &c, &err) == 0)
            fail_msg("accepted: %s", cases[i].text);
        if (strncmp(err.text, cases[i].line, strlen(cases[i].line)) != 0 ||
            !strstr(err.text, cases[i].about) || !strstr(err.remedy, cases[i].remedy))
            fail_msg("%s [%s] for: %s", err.text, err.remedy, cases[i].text);
        assert_int_equal(c.pids, 77);
    }
    struct conf c;
    assert_int_equal(conf_parse("a\0b", 3, &c, &err), -1);
    char *huge DEFER_FREE = calloc(1, CONF_FILE_MAX + 1);
    memset(huge, '\n', CONF_FILE_MAX + 1);
    assert_int_equal(conf_parse(huge, CONF_FILE_MAX + 1, &c, &err), -1);
}

static void a_file_is_named_in_its_errors(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    char path[128];
    int fd = open(scratch_file(&dir, "carrel.conf", path), O_WRONLY | O_CREAT, 0600);
    assert_int_equal(write(fd, "[x]\ny=1\n", 8), 8);
    close(fd);
    struct conf c;
    assert_int_equal(conf_read(path, &c, &err), -1);
    assert_non_null(strstr(err.text, "carrel.conf: line 2"));
    assert_true(err.remedy[0] != '\0');
}

static void the_manual_is_the_table(void **state) {
    (void)state;
    struct buf wanted DEFER(buf_done) = BUF(1 << 16);
    static char page[1 << 16];
    assert_true(conf_describe(&wanted));
    const char *root = getenv("CARREL_SOURCE");
    char path[1024];
    snprintf(path, sizeof(path), "%s/docs/reference/conf.md", root ? root : ".");
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    ssize_t n = read(fd, page, sizeof(page) - 1);
    close(fd);
    assert_true(n > 0);
    if (!strstr(page, wanted.data)) {
        fputs(wanted.data, stderr);
        fail_msg("docs/reference/conf.md must hold the table above");
    }
}

/* With the '#' in front of each key removed, as its first lines say. */
static void the_sample_of_packages_is_right(void **state) {
    (void)state;
    static char text[1 << 14];
    const char *root = getenv("CARREL_SOURCE");
    char path[1024];
    snprintf(path, sizeof(path), "%s/packaging/carrel.conf", root ? root : ".");
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    assert_true(n > 0);
    struct conf c;
    parse(text, &c);
    assert_string_equal(c.group, "");
    for (char *at = strstr(text, "\n#"); at; at = strstr(at + 1, "\n#"))
        if (at[2] != ' ')
            memmove(at + 1, at + 2, strlen(at + 1));
    parse(text, &c);
    assert_string_equal(c.group, "carrel");
    assert_int_equal(c.idle_action, IDLE_PAUSE);
}

UNIT_MAIN(cmocka_unit_test(an_empty_file_is_the_defaults),
          cmocka_unit_test(agents_are_sections_with_their_name),
          cmocka_unit_test(wrong_agents_are_refused),
          cmocka_unit_test(a_login_goes_only_to_https_or_to_this_host),
          cmocka_unit_test(every_key_is_read),
          cmocka_unit_test(zero_is_taken_where_it_has_a_meaning),
          cmocka_unit_test(mistakes_name_their_line),
          cmocka_unit_test(a_file_is_named_in_its_errors),
          cmocka_unit_test(the_manual_is_the_table),
          cmocka_unit_test(the_sample_of_packages_is_right))
