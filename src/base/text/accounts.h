/*
 * Reads the passwd and group files of a machine or an image.
 *
 * Pure, without allocation: carrel-guest uses it too. The text is hostile. A line that lacks a
 * field, or whose ids are above ACCOUNT_ID_MAX, is not an account.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ACCOUNT_ID_MAX 65535u       /* highest id that a user or group of a machine may have */
#define ACCOUNT_NAME_MAX 63u        /* bytes of a name */
#define ACCOUNT_FILE_MAX (1u << 20) /* bytes of a passwd or group file that are read */

/* Part of the text; not NUL-terminated. */
struct account_text {
    const char *s;
    size_t n;
};

struct account {
    uint32_t uid, gid;
    /* `home` and `shell` are absolute paths without control characters, or empty */
    struct account_text name, home, shell;
};

/*
 * True: the name of a user may be looked up. It is not a number, and has letters, digits, '.', '_'
 * and '-', and an optional '$' at the end; '-' may not come first.
 */
bool account_name_is_valid(const char *name);

/* Finds a user by name, or by uid if `name` is a number. False: no line matches. */
bool account_find(const char *text, size_t n, const char *name, struct account *ret);

/* Finds the id of a group by name, or by number if `name` is a number. */
bool account_group_find(const char *text, size_t n, const char *name, uint32_t *ret);

/*
 * Appends the ids of the groups that list `member` to the `count` ids in `ret`, up to `max` ids,
 * and returns their new number. No id is added twice.
 */
size_t account_groups(const char *text, size_t n, struct account_text member, uint32_t *ret,
                      size_t count, size_t max);
