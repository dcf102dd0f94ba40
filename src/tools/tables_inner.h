/* Fields that the tables of several tools share. Private to src/tools/tables*.c. */
#pragma once

#include "tools/requests.h"
#include "tools/tables.h"

enum { PATH_BYTES = 4095, TEXT_BYTES = 7 << 20, NAME_BYTES = 120, WORDS = 4096 };

#define AT(type, member) offsetof(struct type, member)
#define MACHINE_FIELD                                                                           \
    {                                                                                           \
        "machine", FIELD_TEXT, 0,                                                               \
            "ID or name of one of your machines (default: your own machine)", .max = NAME_BYTES \
    }
#define USER_FIELD(type) \
    { "user", FIELD_TEXT, AT(type, user), "act as this user (default user)", .choices = tool_users }

extern const char *const tool_users[]; /* NULL-terminated */
