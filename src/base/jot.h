/*
 * Writes JSON, also for the programs that link only base (spawner, guest, command line).
 *
 * The buffer has a cap: if it is full, `failed` is set and nothing more is written. The writer
 * places commas. Code that reads JSON uses jansson.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct jot {
    struct buf *out;
    bool comma;
    bool failed;
};

#define JOT(buffer) ((struct jot){.out = (buffer)})

/* name is NULL inside arrays and at the top. */
void jot_object(struct jot *j, const char *name);
void jot_array(struct jot *j, const char *name);
void jot_end(struct jot *j, char bracket);
void jot_string(struct jot *j, const char *name, const char *value);
void jot_bytes(struct jot *j, const char *name, const char *value, size_t len);
void jot_u64(struct jot *j, const char *name, uint64_t value);
void jot_i64(struct jot *j, const char *name, int64_t value);
void jot_bool(struct jot *j, const char *name, bool value);
void jot_null(struct jot *j, const char *name);
/* Adds text that is already JSON. */
void jot_raw(struct jot *j, const char *name, const char *json);
