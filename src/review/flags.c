#include "review/flags.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/*
 * ---- by path ----
 *
 * Names that some tool runs or obeys by itself, at any depth, as a file, directory or link. Case is
 * ignored, because many filesystems ignore it. "a/b" matches two parts in a row, "*.x" the end of a
 * part.
 */

static const struct rule {
    const char *name;
    unsigned flag;
    const char *why; /* the reason, for the reviewer */
} rules[] = {
    {".git", FLAG_HOOK, "git runs and obeys it"},
    {".gitmodules", FLAG_HOOK, "git runs and obeys it"},
    {".gitattributes", FLAG_HOOK, "git runs and obeys it"},
    {".gitconfig", FLAG_HOOK, "git runs and obeys it"},
    {".githooks", FLAG_HOOK, "git runs and obeys it"},
    {".husky", FLAG_HOOK, "git runs it at commits"},
    {".pre-commit-config.yaml", FLAG_HOOK, "git runs it at commits"},
    {"lefthook.yml", FLAG_HOOK, "git runs it at commits"},
    {".lefthook.yml", FLAG_HOOK, "git runs it at commits"},
    {".hg", FLAG_HOOK, "hg runs and obeys it"},
    {".hg/hgrc", FLAG_HOOK, "hg runs and obeys it"},
    {".claude", FLAG_HOOK, "agents obey it, and it may start programs for them"},
    {".carrel", FLAG_HOOK, "carrel agent obeys it after you accepted it"},
    {".mcp.json", FLAG_HOOK, "agents obey it, and it may start programs for them"},
    {".cursor", FLAG_HOOK, "agents obey it, and it may start programs for them"},
    {".codex", FLAG_HOOK, "agents obey it, and it may start programs for them"},
    {".gemini", FLAG_HOOK, "agents obey it, and it may start programs for them"},
    {".windsurf", FLAG_HOOK, "agents obey it, and it may start programs for them"},
    {".continue", FLAG_HOOK, "agents obey it, and it may start programs for them"},
    {".roo", FLAG_HOOK, "agents obey it, and it may start programs for them"},
    {".aider.conf.yml", FLAG_HOOK, "agents obey it, and it may start programs for them"},
    {".cursorrules", FLAG_HOOK, "agents obey it, and it may start programs for them"},
    {".windsurfrules", FLAG_HOOK, "agents obey it, and it may start programs for them"},
    {".clinerules", FLAG_HOOK, "agents obey it, and it may start programs for them"},
    {"AGENTS.md", FLAG_HOOK, "agents follow its instructions"},
    {"CLAUDE.md", FLAG_HOOK, "agents follow its instructions"},
    {"CLAUDE.local.md", FLAG_HOOK, "agents follow its instructions"},
    {"GEMINI.md", FLAG_HOOK, "agents follow its instructions"},
    {"copilot-instructions.md", FLAG_HOOK, "agents follow its instructions"},
    {".vscode", FLAG_HOOK, "an editor runs its tasks"},
    {".idea", FLAG_HOOK, "an editor runs its tasks"},
    {".zed", FLAG_HOOK, "an editor runs its tasks"},
    {".fleet", FLAG_HOOK, "an editor runs its tasks"},
    {"*.code-workspace", FLAG_HOOK, "an editor runs its tasks"},
    {"*.sublime-project", FLAG_HOOK, "an editor runs its tasks"},
    {".dir-locals.el", FLAG_HOOK, "an editor runs its tasks"},
    {".exrc", FLAG_HOOK, "an editor runs its tasks"},
    {".vimrc", FLAG_HOOK, "an editor runs its tasks"},
    {".nvimrc", FLAG_HOOK, "an editor runs its tasks"},
    {".emacs", FLAG_HOOK, "an editor runs its tasks"},
    {".emacs.d", FLAG_HOOK, "an editor runs its tasks"},
    {".devcontainer", FLAG_HOOK, "an editor makes a container and runs commands from it"},
    {".devcontainer.json", FLAG_HOOK, "an editor makes a container and runs commands from it"},
    {".envrc", FLAG_HOOK, "a shell runs it on entering the directory"},
    {"mise.toml", FLAG_HOOK, "a shell runs it on entering the directory"},
    {".mise.toml", FLAG_HOOK, "a shell runs it on entering the directory"},
    {".tool-versions", FLAG_HOOK, "a shell runs it on entering the directory"},
    {".bashrc", FLAG_HOOK, "a shell or login runs it"},
    {".bash_profile", FLAG_HOOK, "a shell or login runs it"},
    {".bash_login", FLAG_HOOK, "a shell or login runs it"},
    {".bash_logout", FLAG_HOOK, "a shell or login runs it"},
    {".bash_aliases", FLAG_HOOK, "a shell or login runs it"},
    {".profile", FLAG_HOOK, "a shell or login runs it"},
    {".zshrc", FLAG_HOOK, "a shell or login runs it"},
    {".zshenv", FLAG_HOOK, "a shell or login runs it"},
    {".zprofile", FLAG_HOOK, "a shell or login runs it"},
    {".zlogin", FLAG_HOOK, "a shell or login runs it"},
    {".zlogout", FLAG_HOOK, "a shell or login runs it"},
    {".kshrc", FLAG_HOOK, "a shell or login runs it"},
    {".cshrc", FLAG_HOOK, "a shell or login runs it"},
    {".tcshrc", FLAG_HOOK, "a shell or login runs it"},
    {".login", FLAG_HOOK, "a shell or login runs it"},
    {".config/fish", FLAG_HOOK, "a shell or login runs it"},
    {".inputrc", FLAG_HOOK, "a shell or login runs it"},
    {".xprofile", FLAG_HOOK, "a shell or login runs it"},
    {".xinitrc", FLAG_HOOK, "a shell or login runs it"},
    {".xsessionrc", FLAG_HOOK, "a shell or login runs it"},
    {".pam_environment", FLAG_HOOK, "a shell or login runs it"},
    {".config/autostart", FLAG_HOOK, "a shell or login runs it"},
    {".config/systemd", FLAG_HOOK, "a shell or login runs it"},
    {".tmux.conf", FLAG_HOOK, "a shell or login runs it"},
    {".screenrc", FLAG_HOOK, "a shell or login runs it"},
    {".ssh", FLAG_HOOK, "it controls who may log in, and where"},
    {".netrc", FLAG_HOOK, "it controls who may log in, and where"},
    {".gnupg", FLAG_HOOK, "it controls who may log in, and where"},
    {".npmrc", FLAG_HOOK, "a package manager obeys it, and may run what it names"},
    {".yarnrc", FLAG_HOOK, "a package manager obeys it, and may run what it names"},
    {".yarnrc.yml", FLAG_HOOK, "a package manager obeys it, and may run what it names"},
    {".yarn", FLAG_HOOK, "a package manager obeys it, and may run what it names"},
    {".pnpmfile.cjs", FLAG_HOOK, "a package manager obeys it, and may run what it names"},
    {"bunfig.toml", FLAG_HOOK, "a package manager obeys it, and may run what it names"},
    {".pypirc", FLAG_HOOK, "a package manager obeys it, and may run what it names"},
    {"pip.conf", FLAG_HOOK, "a package manager obeys it, and may run what it names"},
    {".condarc", FLAG_HOOK, "a package manager obeys it, and may run what it names"},
    {".gemrc", FLAG_HOOK, "a package manager obeys it, and may run what it names"},
    {".bundle", FLAG_HOOK, "a package manager obeys it, and may run what it names"},
    {".mvn", FLAG_HOOK, "a package manager obeys it, and may run what it names"},
    {".cargo/config.toml", FLAG_HOOK, "cargo runs what it names"},
    {".cargo/config", FLAG_HOOK, "cargo runs what it names"},
    {"rust-toolchain.toml", FLAG_HOOK, "cargo runs what it names"},
    {"rust-toolchain", FLAG_HOOK, "cargo runs what it names"},
    {"*.pth", FLAG_HOOK, "Python runs it at every start"},
    {"sitecustomize.py", FLAG_HOOK, "Python runs it at every start"},
    {"usercustomize.py", FLAG_HOOK, "Python runs it at every start"},
    {"conftest.py", FLAG_HOOK, "pytest runs it by itself"},
    {".gdbinit", FLAG_HOOK, "a debugger or interpreter runs it when it starts"},
    {".lldbinit", FLAG_HOOK, "a debugger or interpreter runs it when it starts"},
    {".pdbrc", FLAG_HOOK, "a debugger or interpreter runs it when it starts"},
    {".Rprofile", FLAG_HOOK, "a debugger or interpreter runs it when it starts"},
    {".irbrc", FLAG_HOOK, "a debugger or interpreter runs it when it starts"},
    {".pryrc", FLAG_HOOK, "a debugger or interpreter runs it when it starts"},
    {".psqlrc", FLAG_HOOK, "a debugger or interpreter runs it when it starts"},
    {".sqliterc", FLAG_HOOK, "a debugger or interpreter runs it when it starts"},
    {".curlrc", FLAG_HOOK, "a debugger or interpreter runs it when it starts"},
    {".wgetrc", FLAG_HOOK, "a debugger or interpreter runs it when it starts"},
    {".github", FLAG_CI, "a build service runs it"},
    {".gitlab-ci.yml", FLAG_CI, "a build service runs it"},
    {".circleci", FLAG_CI, "a build service runs it"},
    {".travis.yml", FLAG_CI, "a build service runs it"},
    {"Jenkinsfile", FLAG_CI, "a build service runs it"},
    {"azure-pipelines.yml", FLAG_CI, "a build service runs it"},
    {".buildkite", FLAG_CI, "a build service runs it"},
    {".drone.yml", FLAG_CI, "a build service runs it"},
    {".woodpecker.yml", FLAG_CI, "a build service runs it"},
    {".forgejo", FLAG_CI, "a build service runs it"},
    {".gitea", FLAG_CI, "a build service runs it"},
    {"bitbucket-pipelines.yml", FLAG_CI, "a build service runs it"},
    {"cloudbuild.yaml", FLAG_CI, "a build service runs it"},
    {"package-lock.json", FLAG_LOCK, "it decides what is installed"},
    {"npm-shrinkwrap.json", FLAG_LOCK, "it decides what is installed"},
    {"yarn.lock", FLAG_LOCK, "it decides what is installed"},
    {"pnpm-lock.yaml", FLAG_LOCK, "it decides what is installed"},
    {"bun.lock", FLAG_LOCK, "it decides what is installed"},
    {"bun.lockb", FLAG_LOCK, "it decides what is installed"},
    {"Cargo.lock", FLAG_LOCK, "it decides what is installed"},
    {"poetry.lock", FLAG_LOCK, "it decides what is installed"},
    {"Pipfile.lock", FLAG_LOCK, "it decides what is installed"},
    {"uv.lock", FLAG_LOCK, "it decides what is installed"},
    {"pdm.lock", FLAG_LOCK, "it decides what is installed"},
    {"go.sum", FLAG_LOCK, "it decides what is installed"},
    {"composer.lock", FLAG_LOCK, "it decides what is installed"},
    {"Gemfile.lock", FLAG_LOCK, "it decides what is installed"},
    {"flake.lock", FLAG_LOCK, "it decides what is installed"},
    {"Makefile", FLAG_BUILD, "a build runs it"},
    {"GNUmakefile", FLAG_BUILD, "a build runs it"},
    {"*.mk", FLAG_BUILD, "a build runs it"},
    {"CMakeLists.txt", FLAG_BUILD, "a build runs it"},
    {"*.cmake", FLAG_BUILD, "a build runs it"},
    {"meson.build", FLAG_BUILD, "a build runs it"},
    {"meson_options.txt", FLAG_BUILD, "a build runs it"},
    {"configure", FLAG_BUILD, "a build runs it"},
    {"configure.ac", FLAG_BUILD, "a build runs it"},
    {"SConstruct", FLAG_BUILD, "a build runs it"},
    {"wscript", FLAG_BUILD, "a build runs it"},
    {"BUILD", FLAG_BUILD, "a build runs it"},
    {"BUILD.bazel", FLAG_BUILD, "a build runs it"},
    {"WORKSPACE", FLAG_BUILD, "a build runs it"},
    {"MODULE.bazel", FLAG_BUILD, "a build runs it"},
    {"Justfile", FLAG_BUILD, "a build runs it"},
    {".justfile", FLAG_BUILD, "a build runs it"},
    {"Taskfile.yml", FLAG_BUILD, "a build runs it"},
    {"Rakefile", FLAG_BUILD, "a build runs it"},
    {"*.gemspec", FLAG_BUILD, "a build runs it"},
    {"Gemfile", FLAG_BUILD, "a build runs it"},
    {"build.gradle", FLAG_BUILD, "a build runs it"},
    {"build.gradle.kts", FLAG_BUILD, "a build runs it"},
    {"settings.gradle", FLAG_BUILD, "a build runs it"},
    {"settings.gradle.kts", FLAG_BUILD, "a build runs it"},
    {"gradle.properties", FLAG_BUILD, "a build runs it"},
    {"gradlew", FLAG_BUILD, "a build runs it"},
    {"gradle-wrapper.properties", FLAG_BUILD, "a build runs it"},
    {"pom.xml", FLAG_BUILD, "a build runs it"},
    {"build.xml", FLAG_BUILD, "a build runs it"},
    {"build.sbt", FLAG_BUILD, "a build runs it"},
    {"mvnw", FLAG_BUILD, "a build runs it"},
    {"Dockerfile", FLAG_BUILD, "a build runs it"},
    {"Containerfile", FLAG_BUILD, "a build runs it"},
    {"docker-compose.yml", FLAG_BUILD, "a build runs it"},
    {"docker-compose.yaml", FLAG_BUILD, "a build runs it"},
    {"compose.yml", FLAG_BUILD, "a build runs it"},
    {"compose.yaml", FLAG_BUILD, "a build runs it"},
    {"Vagrantfile", FLAG_BUILD, "a build runs it"},
    {"flake.nix", FLAG_BUILD, "a build runs it"},
    {"default.nix", FLAG_BUILD, "a build runs it"},
    {"shell.nix", FLAG_BUILD, "a build runs it"},
    {"build.rs", FLAG_BUILD, "cargo runs it, or runs what it names"},
    {"Cargo.toml", FLAG_BUILD, "cargo runs it, or runs what it names"},
    {"setup.py", FLAG_BUILD, "pip and similar tools run it, or run what it names"},
    {"setup.cfg", FLAG_BUILD, "pip and similar tools run it, or run what it names"},
    {"pyproject.toml", FLAG_BUILD, "pip and similar tools run it, or run what it names"},
    {"tox.ini", FLAG_BUILD, "pip and similar tools run it, or run what it names"},
    {"noxfile.py", FLAG_BUILD, "pip and similar tools run it, or run what it names"},
    {"package.json", FLAG_BUILD, "npm and similar tools run its scripts"},
    {"binding.gyp", FLAG_BUILD, "npm and similar tools run its scripts"},
    {"Gruntfile.js", FLAG_BUILD, "npm and similar tools run its scripts"},
    {"gulpfile.js", FLAG_BUILD, "npm and similar tools run its scripts"},
};

static bool flags_fits(const struct rule *r, const char *part) {
    size_t n = strcspn(part, "/"), len = strlen(r->name);
    if (r->name[0] == '*')
        return n >= len - 1 && strncasecmp(part + n - (len - 1), r->name + 1, len - 1) == 0;
    return strncasecmp(part, r->name, len) == 0 && (part[len] == '\0' || part[len] == '/');
}

/* Returns the first rule that matches the path; *ret_flags has the flags of all matching rules. */
static const struct rule *flags_look_up(const char *path, unsigned *ret_flags) {
    const struct rule *first = NULL;
    *ret_flags = 0;
    for (const char *at = path; *at; at += strcspn(at, "/"), at += *at == '/')
        for (const struct rule *r = rules; r < rules + sizeof(rules) / sizeof(*rules); r++)
            if (flags_fits(r, at)) {
                first = first ? first : r;
                *ret_flags |= r->flag;
            }
    return first;
}

const char *flags_why(const char *path) {
    unsigned flags;
    const struct rule *r = flags_look_up(path, &flags);
    return r ? r->why : "";
}

/* ---- by content ---- */

/* Prefixes of secret keys, and the number of key characters that must follow. */
static const struct {
    const char *lead;
    size_t more;
} keys[] = {
    {"AKIA", 16}, {"ghp_", 30},   {"gho_", 30},    {"ghs_", 30},  {"github_pat_", 30},
    {"AIza", 30}, {"glpat-", 16}, {"sk-ant-", 20}, {"xoxb-", 20}, {"xoxp-", 20},
};

static bool is_key_char(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '-';
}

static bool has_key(const char *bytes, size_t n, const char *lead, size_t more) {
    size_t len = strlen(lead);
    for (const char *at = bytes, *end = bytes + n; (at = memmem(at, (size_t)(end - at), lead, len));
         at++) {
        size_t k = 0;
        while (at + len + k < end && k < more && is_key_char(at[len + k]))
            k++;
        if (k == more)
            return true;
    }
    return false;
}

static bool has_secret(const char *bytes, size_t n) {
    static const char begin[] = "-----BEGIN ", private[] = "PRIVATE KEY-----";
    const char *at = memmem(bytes, n, begin, sizeof(begin) - 1);
    if (at && memmem(at, n - (size_t)(at - bytes), private, sizeof(private) - 1))
        return true;
    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
        if (has_key(bytes, n, keys[i].lead, keys[i].more))
            return true;
    return false;
}

/* ---- by target ---- */

/* Returns false if all ".." come first and stay inside the tree. "x/.." counts as leaving, because
 * x may be a link. */
static bool leaves(const char *path, const char *target) {
    long depth = 0;
    bool down = false;
    if (target[0] == '/')
        return true;
    for (const char *p = path; *p; p++)
        depth += *p == '/';
    for (const char *at = target; *at;) {
        size_t n = strcspn(at, "/");
        bool up = n == 2 && memcmp(at, "..", 2) == 0;
        if (up && (down || --depth < 0))
            return true;
        down |= !up && n && !(n == 1 && at[0] == '.');
        at += n + (at[n] == '/');
    }
    return false;
}

unsigned flags_of(const struct tar_entry *e, const char *bytes, size_t n) {
    unsigned flags;
    flags_look_up(e->path, &flags);
    if (e->kind == TAR_FILE && e->mode & 0111)
        flags |= FLAG_EXECUTABLE;
    if (e->mode & 06000)
        flags |= FLAG_SETUID;
    if (e->kind == TAR_SYMLINK && leaves(e->path, e->target))
        flags |= FLAG_LEAVES;
    if (n && has_secret(bytes, n))
        flags |= FLAG_SECRET;
    return flags;
}

void flags_text(unsigned flags, char ret[FLAGS_TEXT]) {
    static const char *const words[] = {
        "executable", "setuid, stripped", "leads out of the tree", "hook",      "CI",
        "lockfile",   "secret?",          "after untrusted input", "build file"};
    size_t n = 0;
    ret[0] = '\0';
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (flags & 1u << i)
            n += (size_t)snprintf(ret + n, FLAGS_TEXT - n, "%s%s", n ? ", " : "", words[i]);
}
