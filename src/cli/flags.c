#include "cli/flags.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* ---- by path: a name that ends in '/' is a directory on the way ---- */

static const struct {
    const char *name;
    unsigned flag;
} names[] = {
    {".git/", FLAG_HOOK},
    {".gitmodules", FLAG_HOOK},
    {".gitattributes", FLAG_HOOK},
    {".husky/", FLAG_HOOK},
    {".pre-commit-config.yaml", FLAG_HOOK},
    {".vscode/", FLAG_HOOK},
    {".idea/", FLAG_HOOK},
    {".envrc", FLAG_HOOK},
    {".bashrc", FLAG_HOOK},
    {".profile", FLAG_HOOK},
    {".bash_profile", FLAG_HOOK},
    {".zshrc", FLAG_HOOK},
    {".ssh/", FLAG_HOOK},
    {".npmrc", FLAG_HOOK},
    {".netrc", FLAG_HOOK},
    {".github/", FLAG_CI},
    {".gitlab-ci.yml", FLAG_CI},
    {".circleci/", FLAG_CI},
    {".travis.yml", FLAG_CI},
    {"Jenkinsfile", FLAG_CI},
    {"azure-pipelines.yml", FLAG_CI},
    {"package-lock.json", FLAG_LOCK},
    {"yarn.lock", FLAG_LOCK},
    {"pnpm-lock.yaml", FLAG_LOCK},
    {"Cargo.lock", FLAG_LOCK},
    {"poetry.lock", FLAG_LOCK},
    {"Pipfile.lock", FLAG_LOCK},
    {"uv.lock", FLAG_LOCK},
    {"go.sum", FLAG_LOCK},
    {"composer.lock", FLAG_LOCK},
    {"Gemfile.lock", FLAG_LOCK},
};

/* One part of the path, with its slash if it has one. */
static unsigned part_flags(const char *part, size_t n) {
    unsigned flags = 0;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strlen(names[i].name) == n && memcmp(names[i].name, part, n) == 0)
            flags |= names[i].flag;
    return flags;
}

static unsigned path_flags(const char *path) {
    unsigned flags = 0;
    for (const char *at = path; *at;) {
        size_t n = strcspn(at, "/");
        n += at[n] == '/';
        flags |= part_flags(at, n);
        at += n;
    }
    return flags;
}

/* ---- by content ---- */

/* A beginning, and how many characters of a key must follow it. */
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

/* It climbs first and only then goes down, and not above the tree: where "x/.." leads is for x to
 * say, which may be a link itself. */
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
    unsigned flags = path_flags(e->path);
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
        "executable", "setuid, stripped", "leads out of the tree", "hook", "CI",
        "lockfile",   "secret?",          "after untrusted input"};
    size_t n = 0;
    ret[0] = '\0';
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (flags & 1u << i)
            n += (size_t)snprintf(ret + n, FLAGS_TEXT - n, "%s%s", n ? ", " : "", words[i]);
}
