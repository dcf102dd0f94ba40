/*
 * JSON out, for the programs that link base alone (spawner, guest, command line).
 *
 * A writer only, into a capped buffer: a full buffer sets `failed` and writes no more.
 * Commas are placed by the writer. Reading JSON is done with jansson at the edge.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct json {
    struct buf *out;
    bool comma;
    bool failed;
};

#define JSON(buffer) ((struct json){.out = (buffer)})

/* name is NULL inside arrays and at the top. */
void json_object(struct json *j, const char *name);
void json_array(struct json *j, const char *name);
void json_end(struct json *j, char bracket);
void json_string(struct json *j, const char *name, const char *value);
void json_bytes(struct json *j, const char *name, const char *value, size_t len);
void json_u64(struct json *j, const char *name, uint64_t value);
void json_i64(struct json *j, const char *name, int64_t value);
void json_bool(struct json *j, const char *name, bool value);
void json_null(struct json *j, const char *name);
/* Text that is JSON already. */
void json_raw(struct json *j, const char *name, const char *json);
