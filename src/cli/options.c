#include "cli/options.h"

#include <stdio.h>
#include <string.h>

#include "base/parse.h"
#include "cli/text/choices.h"
#include "cli/text/habits.h"
#include "cli/text/nearest.h"

enum { LEFT_WIDTH = 36 };

static const struct option_row *options_by_name(const struct option_row *rows, const char *name,
                                                size_t len) {
    for (const struct option_row *r = rows; r->name; r++)
        if (strlen(r->name) == len && strncmp(r->name, name, len) == 0)
            return r;
    return NULL;
}

static const struct option_row *by_letter(const struct option_row *rows, char letter) {
    for (const struct option_row *r = rows; r->name; r++)
        if (r->letter && r->letter == letter)
            return r;
    return NULL;
}

static int add_to_list(struct option_list *list, const struct option_row *row, const char *value,
                       struct err *err) {
    if (list->count == OPTION_LIST_MAX)
        return err_set(err, ERR_LIMIT, "--%s can be given at most %d times", row->name,
                       OPTION_LIST_MAX);
    list->items[list->count++] = value;
    return 0;
}

/* Refuses a word that the row does not list, if it lists words. */
static int check_choice(const struct option_row *row, const char *value, struct err *err) {
    char choices[200];
    if (!row->value || !choices_are(row->value) || choices_have(row->value, value))
        return 0;
    choices_say(row->value, choices, sizeof(choices));
    return err_set(err, ERR_INVALID, "--%s %s: must be %s", row->name, value, choices);
}

static int store(const struct option_row *row, const char *value, void *into, struct err *err) {
    void *at = (char *)into + row->offset;
    int r = check_choice(row, value, err);
    if (r < 0)
        return -1;
    switch (row->kind) {
    case OPTION_FLAG:
        *(bool *)at = true;
        return 0;
    case OPTION_TEXT:
        *(const char **)at = value;
        return 0;
    case OPTION_LIST:
        return add_to_list(at, row, value, err);
    case OPTION_SIZE:
        r = parse_size(value, at, err);
        break;
    case OPTION_MILLI:
        r = parse_milli(value, at, err);
        break;
    case OPTION_NUMBER:
        r = parse_u64(value, 1, UINT32_MAX, at, err);
        break;
    case OPTION_DURATION:
        r = parse_duration(value, at, err);
        break;
    }
    if (r == 0 && *(uint64_t *)at == 0)
        return err_set(err, ERR_INVALID, "--%s must be greater than 0; leave it out for no limit",
                       row->name);
    return r < 0 ? err_wrap(err, "--%s", row->name) : 0;
}

int options_unknown(const struct option_row *rows, const char *word, struct err *err) {
    const char *ours = habit_option(word);
    struct nearest near = {.word = word + 2, .len = strcspn(word + 2, "=")};
    err_set(err, ERR_INVALID, "unknown option '%s'", word);
    if (ours)
        return err_remedy(err, "use %s", ours);
    for (const struct option_row *r = rows; word[1] == '-' && r->name; r++)
        nearest_try(&near, r->name);
    if (word[1] == '-' && near.best)
        return err_remedy(err, "did you mean '--%s'?", near.best);
    return err_remedy(err, "see --help for the options, and put '--' before a command to run");
}

/* Parses "--name=value", "--name value" or "--flag". */
static int parse_long(const struct option_row *rows, int argc, char **argv, int *at, void *into,
                      struct err *err) {
    const char *name = argv[*at] + 2, *eq = strchr(name, '=');
    const struct option_row *row =
        options_by_name(rows, name, eq ? (size_t)(eq - name) : strlen(name));
    if (!row)
        return options_unknown(rows, argv[*at], err);
    if (!row->value && eq)
        return err_set(err, ERR_INVALID, "--%s takes no value", row->name);
    const char *value = eq ? eq + 1 : NULL;
    if (row->value && !value) {
        if (*at + 1 >= argc)
            return err_set(err, ERR_INVALID, "--%s requires a value: %s", row->name, row->value);
        value = argv[++*at];
    }
    return store(row, value, into, err);
}

/* Parses "-q", "-qt" or "-e VALUE". */
static int parse_short(const struct option_row *rows, int argc, char **argv, int *at, void *into,
                       struct err *err) {
    for (const char *p = argv[*at] + 1; *p; p++) {
        const struct option_row *row = by_letter(rows, *p);
        if (!row)
            return options_unknown(rows, argv[*at], err);
        const char *value = NULL;
        if (row->value) {
            if (p[1])
                value = p + 1;
            else if (*at + 1 < argc)
                value = argv[++*at];
            else
                return err_set(err, ERR_INVALID, "-%c requires a value: %s", *p, row->value);
        }
        if (store(row, value, into, err) < 0)
            return -1;
        if (value)
            return 0;
    }
    return 0;
}

/* Returns the index of the first argument, or -1. *ret_no_more: "--" was before it. */
static int options_read(const struct option_row *rows, int argc, char **argv, void *into,
                        bool *ret_no_more, struct err *err) {
    *ret_no_more = false;
    for (int at = 0; at < argc; at++) {
        const char *word = argv[at];
        *ret_no_more = strcmp(word, "--") == 0;
        if (*ret_no_more)
            return at + 1;
        if (word[0] != '-' || !word[1])
            return at;
        int r = word[1] == '-' ? parse_long(rows, argc, argv, &at, into, err)
                               : parse_short(rows, argc, argv, &at, into, err);
        if (r < 0)
            return -1;
    }
    return argc < 0 ? 0 : argc;
}

int options_parse(const struct option_row *rows, int argc, char **argv, void *into, int *ret_next,
                  struct err *err) {
    bool no_more;
    int next = options_read(rows, argc, argv, into, &no_more, err);
    if (next < 0)
        return -1;
    *ret_next = next;
    return 0;
}

int options_take(const struct option_row *rows, int argc, char **argv, void *into,
                 struct err *err) {
    bool no_more = false;
    int count = 0;
    for (int at = 1; at < argc;) {
        int next = options_read(rows, argc - at, argv + at, into, &no_more, err);
        if (next < 0)
            return -1;
        at += next;
        if (at < argc)
            argv[++count] = argv[at++];
        while (no_more && at < argc)
            argv[++count] = argv[at++];
    }
    if (argc > 0)
        argv[count + 1] = NULL;
    return count;
}

int options_words(const struct option_row *rows, int argc, char **argv, void *into, char **words,
                  int max, struct err *err) {
    int count = options_take(rows, argc, argv, into, err);
    if (count > max) {
        err_set(err, ERR_INVALID, "unexpected argument '%s'", argv[1 + max]);
        return err_remedy(err, "see carrel %s --help", argv[0]);
    }
    for (int i = 0; i < count; i++)
        words[i] = argv[1 + i];
    return count;
}

const struct option_row *options_awaiting(const struct option_row *rows, const char *word) {
    const struct option_row *row = NULL;
    if (strncmp(word, "--", 2) == 0) {
        row = options_by_name(rows, word + 2, strlen(word + 2));
        return row && row->value ? row : NULL;
    }
    for (const char *p = word + (word[0] == '-'); *p; p++) {
        row = by_letter(rows, *p);
        if (!row || row->value)
            return row && !p[1] ? row : NULL;
    }
    return NULL;
}

const struct option_row *options_given(const struct option_row *rows, const char *word) {
    size_t n = strcspn(word, "=");
    if (strncmp(word, "--", 2) != 0 || word[n] != '=')
        return NULL;
    const struct option_row *row = options_by_name(rows, word + 2, n - 2);
    return row && row->value ? row : NULL;
}

bool option_is_given(const struct option_row *row, const void *into) {
    const void *at = (const char *)into + row->offset;
    switch (row->kind) {
    case OPTION_FLAG:
        return *(const bool *)at;
    case OPTION_TEXT:
        return *(const char *const *)at;
    case OPTION_LIST:
        return ((const struct option_list *)at)->count;
    default:
        return *(const uint64_t *)at;
    }
}

void options_print(const struct option_row *rows) {
    for (const struct option_row *r = rows; r->name; r++) {
        char left[64];
        snprintf(left, sizeof(left), "%c%c%c --%s%s%s", r->letter ? '-' : ' ',
                 r->letter ? r->letter : ' ', r->letter ? ',' : ' ', r->name, r->value ? " " : "",
                 r->value ? r->value : "");
        if (strlen(left) > LEFT_WIDTH)
            printf("  %s\n  %*s %s\n", left, LEFT_WIDTH, "", r->help);
        else
            printf("  %-*s %s\n", LEFT_WIDTH, left, r->help);
    }
}
