/*
 * Request and response bodies as tables: one row per field drives parsing, writing and OpenAPI.
 *
 * A request is parsed into a plain struct. Unknown fields, wrong types and values out of range are
 * refused with the path of the field. Strings point into the JSON value, which must outlive the
 * struct. A response is written from a struct by the same kind of table, so the documentation
 * matches what is sent.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/jot.h"
#include "service/request.h"

enum field_kind {
    /* fields of requests */
    FIELD_TEXT,     /* const char *, NULL when absent; max: bytes */
    FIELD_FLAG,     /* bool */
    FIELD_NUMBER,   /* struct given: min..max */
    FIELD_SIZE,     /* struct given, bytes: 1048576 or "1M" */
    FIELD_CPUS,     /* struct given, thousandths: 1.5 or "1.5" */
    FIELD_MONEY,    /* struct given, millionths: 2.5 or "2.5" */
    FIELD_DURATION, /* struct given, milliseconds: seconds as a number, or "5m" */
    FIELD_TEXTS,    /* struct texts; max: number of texts */
    FIELD_MAP,      /* struct texts, alternating names and values; max: number of pairs */
    FIELD_OBJECT,   /* a struct in place, of the schema `sub` */
    FIELD_OBJECTS,  /* struct rows of the schema `sub`; max: number of rows */
    FIELD_JSON,     /* const json_t *, NULL when absent: an object or list that its reader checks */
    /* fields of responses */
    SHOW_TEXT,   /* const char *: left out when NULL */
    SHOW_CHARS,  /* char[]: left out when empty */
    SHOW_NUMBER, /* uint64_t */
    SHOW_COUNT,  /* uint64_t, left out when SHOW_UNCOUNTED */
    SHOW_SIGNED, /* int64_t */
    SHOW_FLAG,   /* bool */
    SHOW_TIME,   /* uint64_t milliseconds since 1970, as RFC 3339; left out when 0 */
    SHOW_CPUS,   /* uint64_t thousandths, as a decimal fraction */
    SHOW_JSON,   /* const char *: JSON text, left out when NULL or empty; `sub` may describe it */
    SHOW_OBJECT, /* a struct in place, of the schema `sub` */
};

#define SHOW_UNCOUNTED UINT64_MAX

/* What the JSON text of SHOW_JSON is, for the OpenAPI document and the SDKs made from it. */
enum field_shape {
    SHAPE_ANY,    /* any value; with `sub`: a list of objects of that schema */
    SHAPE_TEXTS,  /* a list of strings */
    SHAPE_MAP,    /* an object of strings */
    SHAPE_COUNTS, /* an object of whole numbers */
    SHAPE_OBJECT, /* an object, of the schema `sub` if there is one */
    SHAPE_ROWS,   /* a list of objects */
};

struct schema;

struct field {
    const char *name;
    enum field_kind kind;
    size_t offset;
    const char *doc;
    bool required; /* in a response: the field is always present */
    uint64_t min, max;
    const char *const *choices; /* allowed values of a text, NULL-terminated */
    const struct schema *sub;
    enum field_shape shape;
};

struct schema {
    const char *name; /* name in the OpenAPI document */
    size_t size;      /* size of the struct */
    const struct field *fields;
    size_t count;
};

#define SCHEMA(schema_name, type, rows)                                \
    {                                                                  \
        .name = (schema_name), .size = sizeof(type), .fields = (rows), \
        .count = sizeof(rows) / sizeof(*(rows)),                       \
    }

/* Fills `into`, which it zeroes first. schema_done() frees arrays, also after a failure. */
int schema_read(const struct schema *schema, const json_t *value, void *into, struct err *err);
void schema_done(const struct schema *schema, void *into);

/* Writes the struct `from` as one JSON object. */
void schema_write(const struct schema *schema, struct jot *j, const char *name, const void *from);

/* Writes the JSON Schema (2020-12), with `$ref`s to other schemas. Responses may have members that
 * the schema does not name; requests may not. */
void schema_describe(const struct schema *schema, struct jot *j, const char *name);
/* Writes the JSON Schema with those schemas inlined. */
void schema_describe_whole(const struct schema *schema, struct jot *j, const char *name);
/* As schema_describe_whole(), but short, for the context of a model: without limits of values, and
 * without the optional field `skip` (NULL: with all fields). */
void schema_describe_brief(const struct schema *schema, struct jot *j, const char *name,
                           const char *skip);
