#include "cli/image/recipe.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/image_id.h"

static const struct {
    const char *name;
    enum recipe_verb verb;
    size_t least, most; /* smallest and largest number of words */
    bool whole;         /* the text is not split into words */
} verbs[] = {
    {"base", RECIPE_BASE, 1, 1, false},
    {"packages", RECIPE_PACKAGES, 1, RECIPE_WORDS_MAX, false},
    {"file", RECIPE_FILE, 2, 2, false},
    {"env", RECIPE_ENV, 1, 1, true},
    {"net", RECIPE_NET, 1, RECIPE_WORDS_MAX, false},
    {"run", RECIPE_RUN, 1, 1, true},
    {"user", RECIPE_USER, 1, 1, false},
    {"workdir", RECIPE_WORKDIR, 1, 1, false},
    {"command", RECIPE_COMMAND, 1, RECIPE_WORDS_MAX, false},
};
enum { VERBS = sizeof(verbs) / sizeof(*verbs) };

const char *recipe_verb_name(enum recipe_verb verb) {
    for (size_t i = 0; i < VERBS; i++)
        if (verbs[i].verb == verb)
            return verbs[i].name;
    return "";
}

void recipe_done(struct recipe *r) {
    arena_done(&r->arena);
    free(r->bytes);
    free(r->split);
    free(r->lines);
    *r = (struct recipe){0};
}

static int recipe_refuse(struct err *err, unsigned number, const char *what, const char *text) {
    return err_set(err, ERR_INVALID, "line %u of the recipe: %s '%.60s'", number, what, text);
}

static int unknown_verb(unsigned number, const char *text, struct err *err) {
    recipe_refuse(err, number, "unknown instruction", text);
    return err_remedy(err, "use base, packages, file, env, net, run, user, workdir or command");
}

/* True for a name that apt-get cannot take for an option or a file. */
static bool is_package(const char *word) {
    return isalnum((unsigned char)word[0]) &&
           word[strspn(word,
                       "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.+-:=~")] ==
               '\0';
}

static bool is_env(const char *text) {
    size_t n = strcspn(text, "=");
    return n > 0 && text[n] == '=' &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == n;
}

static int recipe_check(const struct recipe_line *l, struct err *err) {
    switch (l->verb) {
    case RECIPE_BASE:
        return image_name_ok(l->words[0]) || strcmp(l->words[0], "host") == 0
                   ? 0
                   : recipe_refuse(err, l->number, "not a valid image name:", l->words[0]);
    case RECIPE_PACKAGES:
        for (size_t i = 0; i < l->count; i++)
            if (!is_package(l->words[i]))
                return recipe_refuse(err, l->number, "not a valid package name:", l->words[i]);
        return 0;
    case RECIPE_FILE:
        return l->words[1][0] == '/'
                   ? 0
                   : recipe_refuse(err, l->number, "not an absolute path:", l->words[1]);
    case RECIPE_ENV:
        return is_env(l->text) ? 0 : recipe_refuse(err, l->number, "not NAME=VALUE:", l->text);
    case RECIPE_WORKDIR:
        return l->words[0][0] == '/'
                   ? 0
                   : recipe_refuse(err, l->number, "not an absolute path:", l->words[0]);
    default:
        return 0;
    }
}

static int recipe_split(struct recipe_line *l, char *text, struct err *err) {
    for (char *at = text; *(at += strspn(at, " \t"));) {
        if (l->count == RECIPE_WORDS_MAX)
            return err_set(err, ERR_LIMIT, "line %u of the recipe has more than %d words",
                           l->number, RECIPE_WORDS_MAX);
        l->words[l->count++] = at;
        at += strcspn(at, " \t");
        if (*at)
            *at++ = '\0';
    }
    return 0;
}

/* `copy` is the same line as `text`, and is split in place. */
static int read_line(struct recipe *r, char *text, char *copy, unsigned number, struct err *err) {
    size_t skip = strspn(text, " \t"), n = strcspn(text + skip, " \t"), i = 0;
    text += skip;
    copy += skip;
    if (!*text || *text == '#')
        return 0;
    while (i < VERBS && (strlen(verbs[i].name) != n || strncmp(verbs[i].name, text, n) != 0))
        i++;
    if (i == VERBS)
        return unknown_verb(number, text, err);
    if (r->count == RECIPE_LINES_MAX)
        return err_set(err, ERR_LIMIT, "the image recipe has more than %d lines", RECIPE_LINES_MAX);
    struct recipe_line *l = &r->lines[r->count];
    n += strspn(text + n, " \t");
    *l = (struct recipe_line){.verb = verbs[i].verb, .number = number, .text = text + n};
    if (!verbs[i].whole && recipe_split(l, copy + n, err) < 0)
        return -1;
    if (verbs[i].whole)
        l->count = *l->text != '\0';
    if (l->count < verbs[i].least || l->count > verbs[i].most)
        return recipe_refuse(err, number, "too few or too many arguments for", verbs[i].name);
    if ((r->count == 0) != (l->verb == RECIPE_BASE))
        return err_set(
            err, ERR_INVALID,
            "line %u of the recipe: the first instruction, and only the first, must be `base`",
            number);
    r->count++;
    return recipe_check(l, err);
}

/* Ends the line at *at, joined with lines after a backslash; returns the number of file lines. */
static unsigned cut_line(char *at, char **ret_next) {
    unsigned lines = 1;
    for (char *p = at;; p++) {
        if (*p == '\\' && p[1] == '\n') {
            p[0] = p[1] = ' ';
            lines++;
        } else if (*p == '\n' || *p == '\0') {
            *ret_next = *p ? p + 1 : p;
            *p = '\0';
            for (char *end = p; end > at && strchr(" \t\r", end[-1]);)
                *--end = '\0';
            return lines;
        }
    }
}

static int read_all(struct recipe *r, size_t len, struct err *err) {
    unsigned number = 1;
    for (char *at = r->bytes, *next; *at; at = next) {
        unsigned lines = cut_line(at, &next);
        memcpy(r->split + (at - r->bytes), at, strlen(at) + 1);
        if (read_line(r, at, r->split + (at - r->bytes), number, err) < 0)
            return -1;
        number += lines;
    }
    (void)len;
    return r->count
               ? 0
               : err_set(err, ERR_INVALID, "the image recipe is empty: it needs a `base` line");
}

int recipe_read(const char *bytes, size_t len, struct recipe *ret, struct err *err) {
    *ret = (struct recipe){.kind = "recipe"};
    if (len > RECIPE_BYTES_MAX)
        return err_set(err, ERR_LIMIT, "the image recipe is larger than %d KiB",
                       RECIPE_BYTES_MAX >> 10);
    if (memchr(bytes, '\0', len))
        return err_set(err, ERR_INVALID, "the image recipe is not text: it contains binary data");
    ret->bytes = calloc(1, len + 1);
    ret->split = calloc(1, len + 1);
    ret->lines = calloc(RECIPE_LINES_MAX, sizeof(*ret->lines));
    if (!ret->bytes || !ret->split || !ret->lines) {
        recipe_done(ret);
        return err_set(err, ERR_LIMIT, "out of memory");
    }
    memcpy(ret->bytes, bytes, len);
    if (read_all(ret, len, err) == 0)
        return 0;
    recipe_done(ret);
    return -1;
}
