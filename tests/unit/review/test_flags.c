/* What deserves a look before a file is taken from a machine. */
#include "tests/unit/unit.h"

#include "review/flags.h"

static unsigned look(const char *path, enum tar_kind kind, uint32_t mode, const char *target,
                     const char *bytes) {
    static struct tar_entry e;
    e = (struct tar_entry){.kind = kind, .mode = mode};
    snprintf(e.path, sizeof(e.path), "%s", path);
    snprintf(e.target, sizeof(e.target), "%s", target);
    return flags_of(&e, bytes, strlen(bytes));
}

static void names_of_files_that_tools_run_are_flagged(void **state) {
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

static void files_that_tools_run_or_obey_have_a_reason(void **state) {
    (void)state;
    static const struct {
        const char *path;
        unsigned flag;
    } rows[] = {
        {".claude/settings.json", FLAG_HOOK},
        {".claude/commands/x.md", FLAG_HOOK},
        {".mcp.json", FLAG_HOOK},
        {".cursor/rules/a.mdc", FLAG_HOOK},
        {".codex/config.toml", FLAG_HOOK},
        {".gemini/settings.json", FLAG_HOOK},
        {"AGENTS.md", FLAG_HOOK},
        {"sub/CLAUDE.md", FLAG_HOOK},
        {".vscode/tasks.json", FLAG_HOOK},
        {".idea/workspace.xml", FLAG_HOOK},
        {".devcontainer/devcontainer.json", FLAG_HOOK},
        {".cargo/config.toml", FLAG_HOOK},
        {"crates/a/.cargo/config.toml", FLAG_HOOK},
        {".yarnrc.yml", FLAG_HOOK},
        {".npmrc", FLAG_HOOK},
        {".hg/hgrc", FLAG_HOOK},
        {".envrc", FLAG_HOOK},
        {".bashrc", FLAG_HOOK},
        {".zshenv", FLAG_HOOK},
        {".bash_logout", FLAG_HOOK},
        {".config/fish/config.fish", FLAG_HOOK},
        {"lib/site-packages/evil.pth", FLAG_HOOK},
        {"tests/conftest.py", FLAG_HOOK},
        {"Makefile", FLAG_BUILD},
        {"a/CMakeLists.txt", FLAG_BUILD},
        {"build.rs", FLAG_BUILD},
        {"setup.py", FLAG_BUILD},
        {"package.json", FLAG_BUILD},
        {"meson.build", FLAG_BUILD},
        {"build.gradle", FLAG_BUILD},
        {"pom.xml", FLAG_BUILD},
        {".gitlab-ci.yml", FLAG_CI},
        {"go.sum", FLAG_LOCK},
        /* Many hosts do not tell capitals apart. */
        {".Git/hooks/pre-commit", FLAG_HOOK},
        {".VSCODE/tasks.json", FLAG_HOOK},
        {"agents.md", FLAG_HOOK},
        {"makefile", FLAG_BUILD},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        if (look(rows[i].path, TAR_FILE, 0644, "", "x") != rows[i].flag)
            fail_msg("%s: %x", rows[i].path, look(rows[i].path, TAR_FILE, 0644, "", "x"));
        assert_true(flags_why(rows[i].path)[0]);
    }
    /* A link or a file of a directory's name is as good as the directory. */
    assert_int_equal(look(".vscode", TAR_SYMLINK, 0777, "evil", ""), FLAG_HOOK);
    assert_int_equal(look("sub/.git", TAR_FILE, 0644, "", "gitdir: ../evil"), FLAG_HOOK);
    static const char *const plain[] = {
        "src/a.c",
        "my.gitx/y",
        "not-yarn.lock",
        "AGENTS.md.txt",
        "cargo/config.toml",
        ".cargo/registry",
        "a.pthx",
        "conftest.pyc",
        "xMakefile",
        "claude/settings.json",
        "docs/hgrc",
        "x.claude/y",
        "package.json.bak",
        "pth",
    };
    for (size_t i = 0; i < sizeof(plain) / sizeof(*plain); i++) {
        if (look(plain[i], TAR_FILE, 0644, "", "x"))
            fail_msg("%s", plain[i]);
        assert_string_equal(flags_why(plain[i]), "");
    }
}

static void links_that_leave_the_tree_are_flagged(void **state) {
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

static void keys_are_flagged_and_other_text_is_not(void **state) {
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

static void flags_are_printed_as_words(void **state) {
    char text[FLAGS_TEXT];
    (void)state;
    flags_text(0, text);
    assert_string_equal(text, "");
    flags_text(FLAG_EXECUTABLE | FLAG_CI | FLAG_SECRET, text);
    assert_string_equal(text, "executable, CI, secret?");
    flags_text(511, text);
    assert_true(strlen(text) < sizeof(text) - 1);
}

UNIT_MAIN(cmocka_unit_test(names_of_files_that_tools_run_are_flagged),
          cmocka_unit_test(files_that_tools_run_or_obey_have_a_reason),
          cmocka_unit_test(links_that_leave_the_tree_are_flagged),
          cmocka_unit_test(keys_are_flagged_and_other_text_is_not),
          cmocka_unit_test(flags_are_printed_as_words))
