/*
 * Rights: every request field that grants something, with the scope and role it requires.
 *
 * One function, authorise(), reads the table. An operation that grants something calls it first,
 * for its row. No other code in the service compares scopes for that.
 */
#pragma once

#include "service/service.h"

enum right {
    RIGHT_MACHINE_DIRS,
    RIGHT_MACHINE_DIRS_RW,
    RIGHT_MACHINE_VOLUMES,
    RIGHT_MACHINE_NET,
    RIGHT_MACHINE_MODELS,
    RIGHT_MACHINE_SECRETS,
    RIGHT_MACHINE_GRANTS,
    RIGHT_MACHINE_ALLOW,
    RIGHT_UPDATE_MODELS,
    RIGHT_UPDATE_ALLOW,
    RIGHT_RUN_MODEL,
    RIGHT_RUN_URL,
    RIGHT_MOVE,
    RIGHT_NET_RULE,
    RIGHT_GRANT,
    RIGHT_EXPOSE,
    RIGHT_SECRET,
    RIGHT_APPROVE_REQUEST,
    RIGHT_APPROVE_CALL,
    RIGHT_SHIP,
    RIGHT_TOKEN,
    RIGHT_TOKEN_OWNER,
    RIGHT_BUILD_NET,
    RIGHT_BUILD_LOCAL,
    RIGHT_VOLUME,
    RIGHT_LIST_ALL,
    RIGHT_COUNT,
};

/* The role that a caller needs in addition to the scope of the row. */
enum right_role {
    ROLE_ANYBODY,
    ROLE_OWNER, /* the owner at the unix socket of this host; a token or a run needs admin */
    ROLE_ADMIN, /* a caller with the scope admin: the daemon's own user, or such a token */
};

struct right_row {
    const char *field; /* request.field, as docs/reference/api.md calls it */
    enum token_scope scope;
    enum right_role role;
    const char *grants; /* the action that it allows, as errors name it */
};

extern const struct right_row right_rows[RIGHT_COUNT];

/*
 * Checks only the scope, for operations that grant nothing. Scopes do not include each other: a
 * token with only admin can neither read nor run.
 */
int allow(const struct caller *who, enum token_scope scope, struct err *err);
int authorise(const struct caller *who, enum right right, struct err *err);
/* Checks every row that a request for a machine uses. */
int authorise_machine(const struct caller *who, const struct machine_request *r, struct err *err);
/* True for a client at the unix socket, whose requests carry descriptors of files to grant. All
 * others, also pages of the console, name paths below a root of carrel.conf. */
bool rights_sends_files(const struct caller *who);
