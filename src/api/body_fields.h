/* Shared by the body_*.c files (one per resource): usual limits, and schemas nested in others. If
 * the offsets of a response schema are 0, it is only documentation: the handler writes the members.
 */
#pragma once

#include <stddef.h>

#include "api/bodies.h"
#include "service/service.h"

enum {
    KIND_MAX = 16,
    NAME_MAX_BYTES = STORE_NAME_SIZE - 1,
    PATH_MAX_BYTES = 4095,
    TEXT_MAX_BYTES = 1 << 20,
    KEY_MAX_BYTES = STORE_KEY_SIZE - 1,
};

/* Of an exposed port, in the answer to its exposure and in the list. */
#define DIRECT_URL_HELP \
    "the same port for programs, without a host name: send `headers`; absent with TLS"
#define DIRECT_HEADERS_HELP \
    "headers for direct_url: Carrel-Port, and Carrel-Token where the answer has a token"

#define DAYS(n) ((uint64_t)(n)*24 * 3600 * 1000)
#define AT(type, member) offsetof(type, member)

extern const struct schema change_schema, change_side_schema, diff_end_schema, dir_request_schema,
    error_inner_schema, limits_request_schema, limits_schema, models_request_schema,
    secret_grant_request_schema, usage_schema, volume_use_request_schema;
extern const struct schema room_schema, tool_count_schema, rule_schema, secret_schema, login_schema,
    grant_schema, port_schema, pending_schema, volume_place_schema;
