#include "service/steps/risky.h"

#include <stddef.h>
#include <string.h>

/* Programs that delete, overwrite or install many files. */
static const char *const programs[] = {
    "apt",   "apt-get",  "aptitude", "bundle", "cargo", "chgrp", "chmod", "chown",
    "conda", "dd",       "dpkg",     "find",   "gem",   "git",   "go",    "install",
    "ln",    "make",     "mv",       "npm",    "npx",   "patch", "perl",  "pip",
    "pip3",  "pipx",     "pnpm",     "rm",     "rmdir", "rsync", "sed",   "shred",
    "tar",   "truncate", "unzip",    "uv",     "xargs", "yarn",
};
static const char *const shells[] = {"sh", "bash", "dash", "zsh", "env", "sudo", "nice", "timeout"};

static bool among(const char *word, size_t len, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (strlen(names[i]) == len && strncmp(names[i], word, len) == 0)
            return true;
    return false;
}

/* Compares the last part of a path. */
static bool is_one(const char *word, size_t len, const char *const *names, size_t count) {
    for (size_t i = len; i > 0; i--)
        if (word[i - 1] == '/')
            return among(word + i, len - i, names, count);
    return among(word, len, names, count);
}

#define IS_ONE(word, len, names) is_one(word, len, names, sizeof(names) / sizeof(*(names)))

static bool mentions_program(const char *script) {
    static const char ends[] = " \t\n;|&()<>`$\"'{}";
    while (*script) {
        size_t len = strcspn(script, ends);
        if (IS_ONE(script, len, programs) || memchr(script + len, '>', script[len] != '\0'))
            return true;
        script += len + (script[len] != '\0');
    }
    return false;
}

bool is_risky(const char *const *argv) {
    if (!argv[0])
        return false;
    if (!IS_ONE(argv[0], strlen(argv[0]), shells))
        return IS_ONE(argv[0], strlen(argv[0]), programs);
    for (size_t i = 1; argv[i]; i++)
        if (mentions_program(argv[i]))
            return true;
    return false;
}
