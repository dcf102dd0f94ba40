/*
 * Finds the user of a command in the machine's own /etc/passwd and /etc/group.
 *
 * Runs in the child of a vfork: no allocation, and all memory is static. The files are hostile.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/wire/msg.h"

#define ACCOUNT_GROUPS_MAX 1024u

struct account_found {
    uint32_t uid, gid;
    size_t group_count;
    const uint32_t *groups;
    const char *home; /* of an account that is not listed: "/root" or "/" */
    /* variables to add where the environment lacks them; NULL-terminated */
    const char *const *variables;
};

/*
 * Looks up the user `name` of an EXEC with MSG_EXEC_NAMED. Unless its uid is MSG_ID_LOOKUP, an
 * account with another uid does not count, and no account is needed. -1 with errno ENOENT: there is
 * no such user.
 */
int account_resolve(const struct msg_exec *e, const char *name, struct account_found *ret);
