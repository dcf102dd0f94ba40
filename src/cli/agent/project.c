#include "cli/agent/project.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/parse.h"
#include "base/text/visible.h"
#include "base/utf8.h"

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"

const struct project_manager project_managers[] = {
    {"npm", "npm install --global --prefix \"$HOME/.local\" --"},
    {"pip", "PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --user --"},
    {"apt", "apt-get update\nDEBIAN_FRONTEND=noninteractive apt-get install -y --", true},
    {NULL, NULL},
};

/* ---- values ---- */

/* Copies a value that fits; -1 with an error otherwise. */
static int project_copy(char *to, size_t size, const char *value, struct err *err) {
    size_t n = strlen(value);
    if (n >= size)
        return err_set(err, ERR_LIMIT, "the value is longer than %zu bytes", size - 1);
    memcpy(to, value, n + 1);
    return 0;
}

static int project_room(size_t count, struct err *err) {
    return count < PROJECT_LIST_MAX
               ? 0
               : err_set(err, ERR_LIMIT, "there are more than %d values of this kind",
                         PROJECT_LIST_MAX);
}

typedef int project_fn(struct project *p, const char *key, const char *value, struct err *err);

static bool project_has_dots(const char *path) {
    for (const char *at = path; at; at = strchr(at, '/')) {
        at += *at == '/';
        size_t n = strcspn(at, "/");
        if (n == 0 || (n == 1 && at[0] == '.') || (n == 2 && at[0] == '.' && at[1] == '.'))
            return true;
    }
    return false;
}

static int project_take_setup(struct project *p, const char *key, const char *value,
                              struct err *err) {
    (void)key;
    if (!*value || *value == '/' || project_has_dots(value)) {
        err_set(err, ERR_INVALID, "'%.60s' is not the path of a script in the directory", value);
        return err_remedy(err, "use a plain relative path, such as .carrel/setup.sh");
    }
    return project_copy(p->setup, sizeof(p->setup), value, err);
}

/* The name becomes a word of a shell command, so only plain characters are accepted. */
static bool project_is_package(const char *word) {
    const struct project_manager *m = project_managers;
    size_t n = strcspn(word, ":");
    while (m->name && (strlen(m->name) != n || strncmp(m->name, word, n) != 0))
        m++;
    const char *name = word[n] == ':' ? word + n + 1 : "";
    return m->name && (isalnum((unsigned char)*name) || *name == '@') &&
           strspn(name, LETTERS DIGITS "@/._+=~^-") == strlen(name);
}

/* A comma would begin an option of the rule, such as local. The daemon checks the target itself. */
static bool project_is_target(const char *word) {
    return *word != '*' && strspn(word, LETTERS DIGITS "._-*:/[]") == strlen(word) &&
           strncmp(word, "allow:", 6) != 0 && strncmp(word, "deny:", 5) != 0 &&
           strncmp(word, "ask:", 4) != 0 && strcmp(word, "none") != 0;
}

/* A value that is a list of words. */
struct project_words {
    bool (*is_one)(const char *word);
    const char *what, *remedy; /* for errors */
};

static int project_take_words(const struct project_words *kind, const char *value,
                              char (*list)[PROJECT_WORD_SIZE], size_t *count, struct err *err) {
    char text[PROJECT_TEXT_SIZE], *rest = text;
    if (project_copy(text, sizeof(text), value, err) < 0)
        return -1;
    for (char *word; (word = strsep(&rest, " \t"));) {
        if (!*word)
            continue;
        if (!kind->is_one(word)) {
            err_set(err, ERR_INVALID, "'%.60s' is not a %s", word, kind->what);
            return err_remedy(err, "%s", kind->remedy);
        }
        if (project_room(*count, err) < 0 ||
            project_copy(list[*count], PROJECT_WORD_SIZE, word, err) < 0)
            return -1;
        ++*count;
    }
    return 0;
}

static int project_take_packages(struct project *p, const char *key, const char *value,
                                 struct err *err) {
    static const struct project_words packages = {project_is_package, "package",
                                                  "use npm:NAME, pip:NAME or apt:NAME"};
    (void)key;
    return project_take_words(&packages, value, p->packages, &p->package_count, err);
}

static int project_take_allow(struct project *p, const char *key, const char *value,
                              struct err *err) {
    static const struct project_words hosts = {
        project_is_target, "host", "use HOST, tcp://HOST:PORT, or a preset such as npm"};
    (void)key;
    return project_take_words(&hosts, value, p->allow, &p->allow_count, err);
}

static int project_take_pair(struct project_pair *list, size_t *count, const char *key,
                             const char *value, struct err *err) {
    if (project_room(*count, err) < 0 ||
        project_copy(list[*count].name, sizeof(list->name), key, err) < 0 ||
        project_copy(list[*count].text, sizeof(list->text), value, err) < 0)
        return -1;
    (*count)++;
    return 0;
}

static int project_take_env(struct project *p, const char *key, const char *value,
                            struct err *err) {
    if (isdigit((unsigned char)*key) || strspn(key, LETTERS DIGITS "_") != strlen(key))
        return err_set(err, ERR_INVALID, "'%.60s' is not the name of a variable", key);
    return project_take_pair(p->env, &p->env_count, key, value, err);
}

static int project_take_prompt(struct project *p, const char *key, const char *value,
                               struct err *err) {
    if (strspn(key, LETTERS DIGITS "_-") != strlen(key))
        return err_set(err, ERR_INVALID, "'%.60s' is not the name of a prompt", key);
    return project_take_pair(p->prompts, &p->prompt_count, key, value, err);
}

static int project_take_note(struct project *p, const char *key, const char *value,
                             struct err *err) {
    (void)key;
    if (project_room(p->note_count, err) < 0 ||
        project_copy(p->notes[p->note_count], PROJECT_TEXT_SIZE, value, err) < 0)
        return -1;
    p->note_count++;
    return 0;
}

static int project_take_tokens(struct project *p, const char *key, const char *value,
                               struct err *err) {
    (void)key;
    return parse_u64(value, 1, 1000000000000, &p->tokens, err);
}

static int project_take_money(struct project *p, const char *key, const char *value,
                              struct err *err) {
    uint64_t micro;
    (void)key;
    if (parse_micro(value, &micro, err) < 0)
        return -1;
    if (!micro)
        return err_set(err, ERR_INVALID, "'%.30s' must be greater than 0", value);
    return project_copy(p->money, sizeof(p->money), value, err);
}

/* ---- keys ---- */

static const struct project_key {
    const char *section, *key; /* key NULL: any */
    project_fn *take;
} project_keys[] = {
    {"agent", "setup", project_take_setup},  {"agent", "packages", project_take_packages},
    {"net", "allow", project_take_allow},    {"budget", "tokens", project_take_tokens},
    {"budget", "money", project_take_money}, {"env", NULL, project_take_env},
    {"prompts", NULL, project_take_prompt},  {"memory", "note", project_take_note},
};
enum { PROJECT_KEYS = sizeof(project_keys) / sizeof(*project_keys) };

static int project_take(struct project *p, const char *section, const char *key, const char *value,
                        struct err *err) {
    for (size_t i = 0; i < PROJECT_KEYS; i++) {
        const struct project_key *k = &project_keys[i];
        if (strcmp(k->section, section) == 0 && (!k->key || strcmp(k->key, key) == 0))
            return k->take(p, key, value, err);
    }
    err_set(err, ERR_INVALID, "[%.30s] has no key '%.40s'", section, key);
    return err_remedy(err, "directories, volumes, secrets and exposed ports are given by options "
                           "only; docs/reference/agents.md lists all keys");
}

/* ---- lines ---- */

static char *project_trim(char *text) {
    text += strspn(text, " \t");
    size_t n = strlen(text);
    while (n && strchr(" \t\r", text[n - 1]))
        text[--n] = '\0';
    return text;
}

static int project_line(struct project *p, char *line, char section[32], struct err *err) {
    char *text = project_trim(line);
    size_t n = strlen(text);
    if (!n || *text == '#' || *text == ';')
        return 0;
    if (*text == '[' && n > 2 && n < 32 && text[n - 1] == ']') {
        snprintf(section, 32, "%.*s", (int)n - 2, text + 1);
        return 0;
    }
    char *equals = strchr(text, '=');
    if (!equals || equals == text || *text == '[')
        return err_set(err, ERR_INVALID, "it is not [section] or key = value");
    *equals = '\0';
    return project_take(p, section, project_trim(text), project_trim(equals + 1), err);
}

int project_check(const char *text, size_t len, struct err *err) {
    if (len > PROJECT_FILE_MAX)
        return err_set(err, ERR_LIMIT, "the file is longer than %d KiB", PROJECT_FILE_MAX >> 10);
    if (!utf8_valid(text, len))
        return err_set(err, ERR_INVALID, "the file is not text in UTF-8");
    for (size_t i = 0; i < len;) {
        uint32_t c;
        size_t n = utf8_decode(text + i, len - i, &c);
        bool is_plain = c == '\n' || c == '\t' || (c == '\r' && i + 1 < len && text[i + 1] == '\n');
        if (!is_plain && (c < ' ' || c == 0x7f || (c >= 0x80 && visible_is_unseen(c))))
            return err_set(err, ERR_INVALID, "the file has an invisible character, at byte %zu", i);
        i += n;
    }
    return 0;
}

int project_parse(const char *text, size_t len, struct project *ret, struct err *err) {
    char section[32] = "", *copy DEFER_FREE = NULL;
    struct project *p DEFER_FREE = NULL;
    if (project_check(text, len, err) < 0)
        return -1;
    p = xnew(struct project);
    char *rest = copy = xmalloc(len + 1);
    memcpy(copy, text, len);
    copy[len] = '\0';
    size_t number = 1;
    for (char *line; (line = strsep(&rest, "\n")); number++)
        if (project_line(p, line, section, err) < 0)
            return err_wrap(err, "line %zu", number);
    *ret = *p;
    return 0;
}
