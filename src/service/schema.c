#include "service/schema.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/amount.h"
#include "base/parse.h"

/* The path of the field that is being parsed, for errors: "limits.mem". */
struct path {
    const struct path *up;
    const char *name;
};

static const char *path_text(const struct path *p, char *text, size_t size) {
    char above[160] = "";
    if (p->up && p->up->name)
        path_text(p->up, above, sizeof(above));
    snprintf(text, size, "%s%s%s", above, above[0] ? "." : "", p->name);
    return text;
}

static int schema_refuse(const struct path *p, struct err *err, const char *why) {
    char text[200];
    return err_set(err, ERR_INVALID, "field '%s' %s", path_text(p, text, sizeof(text)), why);
}

static bool is_choice(const char *const *choices, const char *text) {
    while (*choices && strcmp(*choices, text) != 0)
        choices++;
    return *choices;
}

/* Writes "must be one, two or three". Words that do not fit are left out. */
static void choices_text(const char *const *choices, char *ret, size_t size) {
    size_t at = (size_t)snprintf(ret, size, "must be ");
    for (size_t i = 0; choices[i] && at < size; i++)
        at += (size_t)snprintf(ret + at, size - at, "%s%s",
                               i == 0           ? ""
                               : choices[i + 1] ? ", "
                                                : " or ",
                               choices[i]);
}

static int read_text(const struct field *f, const struct path *p, const json_t *v, const char **ret,
                     struct err *err) {
    char why[160];
    if (!json_is_string(v))
        return schema_refuse(p, err, "must be a string");
    const char *text = json_string_value(v);
    size_t len = json_string_length(v);
    if (strlen(text) != len)
        return schema_refuse(p, err, "contains a NUL character");
    if (f->max && len > f->max) {
        char max[AMOUNT_SIZE];
        amount_size(f->max, max);
        if (f->max < 1 << 20)
            snprintf(why, sizeof(why), "is longer than %" PRIu64 " bytes", f->max);
        else
            snprintf(why, sizeof(why), "is longer than %s", max);
        return schema_refuse(p, err, why);
    }
    if (f->choices && !is_choice(f->choices, text)) {
        choices_text(f->choices, why, sizeof(why));
        return schema_refuse(p, err, why);
    }
    *ret = text;
    return 0;
}

static int out_of_range(const struct field *f, enum amount_unit unit, const struct path *p,
                        struct err *err) {
    char min[AMOUNT_SIZE], max[AMOUNT_SIZE], why[160];
    amount_show(unit, f->min, min);
    amount_show(unit, f->max, max);
    if (f->max)
        snprintf(why, sizeof(why), "must be between %s and %s", min, max);
    else
        snprintf(why, sizeof(why), "must be at least %s", min);
    return schema_refuse(p, err, why);
}

/* Accepts a JSON number in units, or a string as on the command line ("512M", "5m"). */
static int schema_read_number(const struct field *f, const struct path *p, const json_t *v,
                              struct given *ret, struct err *err) {
    static const struct {
        enum field_kind kind;
        double unit;
        enum amount_unit shown;
        int (*parse)(const char *, uint64_t *, struct err *);
        const char *what;
    } kinds[] = {
        {FIELD_NUMBER, 1, AMOUNT_ONES, NULL, "must be a whole number"},
        {FIELD_SIZE, 1, AMOUNT_BYTES, parse_size,
         "must be a number of bytes, or a string such as \"512M\""},
        {FIELD_CPUS, 1000, AMOUNT_MILLIS, parse_milli, "must be a number of cpus, such as 1.5"},
        {FIELD_MONEY, 1e6, AMOUNT_MICROS, parse_micro, "must be an amount, such as 2.5"},
        {FIELD_DURATION, 1000, AMOUNT_MS, parse_duration,
         "must be seconds, or a string such as \"5m\""},
    };
    size_t k = 0;
    while (kinds[k].kind != f->kind)
        k++;
    uint64_t value;
    if (json_is_string(v) && kinds[k].parse) {
        if (kinds[k].parse(json_string_value(v), &value, NULL) < 0)
            return schema_refuse(p, err, kinds[k].what);
    } else {
        double d = json_number_value(v) * kinds[k].unit;
        if (!json_is_number(v) || !(d >= 0) || d > 9e15 ||
            (kinds[k].unit == 1 && d != (double)(uint64_t)d))
            return schema_refuse(p, err, kinds[k].what);
        value = (uint64_t)(d + 0.5);
    }
    if (value < f->min || (f->max && value > f->max))
        return out_of_range(f, kinds[k].shown, p, err);
    *ret = (struct given){value, true};
    return 0;
}

static int too_many(const struct field *f, const struct path *p, struct err *err) {
    char why[80];
    snprintf(why, sizeof(why), "has more than %" PRIu64 " entries", f->max);
    return schema_refuse(p, err, why);
}

static int read_texts(const struct field *f, const struct path *p, const json_t *v,
                      struct texts *ret, struct err *err) {
    if (!json_is_array(v))
        return schema_refuse(p, err, "must be a list of strings");
    size_t n = json_array_size(v);
    if (n > f->max)
        return too_many(f, p, err);
    ret->v = calloc(n + 1, sizeof(*ret->v));
    if (!ret->v)
        return err_set(err, ERR_LIMIT, "out of memory");
    for (size_t i = 0; i < n; i++)
        if (read_text(&(struct field){0}, p, json_array_get(v, i), &ret->v[i], err) < 0)
            return -1;
    ret->count = n;
    return 0;
}

static int read_map(const struct field *f, const struct path *p, const json_t *v, struct texts *ret,
                    struct err *err) {
    if (!json_is_object(v))
        return schema_refuse(p, err, "must be an object of strings");
    size_t n = json_object_size(v);
    if (n > f->max)
        return too_many(f, p, err);
    ret->v = calloc(2 * n + 1, sizeof(*ret->v));
    if (!ret->v)
        return err_set(err, ERR_LIMIT, "out of memory");
    const char *key;
    json_t *item;
    json_object_foreach((json_t *)v, key, item) {
        struct path below = {p, key};
        ret->v[ret->count++] = key;
        if (read_text(&(struct field){0}, &below, item, &ret->v[ret->count++], err) < 0)
            return -1;
    }
    return 0;
}

static int read_object(const struct schema *schema, const struct path *p, const json_t *v,
                       void *into, struct err *err);

static int read_objects(const struct field *f, const struct path *p, const json_t *v,
                        struct rows *ret, struct err *err) {
    if (!json_is_array(v))
        return schema_refuse(p, err, "must be a list of objects");
    size_t n = json_array_size(v);
    if (n > f->max)
        return too_many(f, p, err);
    ret->v = calloc(n + 1, f->sub->size);
    if (!ret->v)
        return err_set(err, ERR_LIMIT, "out of memory");
    for (size_t i = 0; i < n; i++) {
        ret->count++; /* count a refused entry too: schema_done() frees its arrays */
        if (read_object(f->sub, p, json_array_get(v, i), (char *)ret->v + i * f->sub->size, err) <
            0)
            return -1;
    }
    return 0;
}

static int read_field(const struct field *f, const struct path *p, const json_t *v, void *into,
                      struct err *err) {
    switch (f->kind) {
    case FIELD_TEXT:
        return read_text(f, p, v, into, err);
    case FIELD_FLAG:
        if (!json_is_boolean(v))
            return schema_refuse(p, err, "must be true or false");
        *(bool *)into = json_is_true(v);
        return 0;
    case FIELD_TEXTS:
        return read_texts(f, p, v, into, err);
    case FIELD_MAP:
        return read_map(f, p, v, into, err);
    case FIELD_OBJECT:
        return read_object(f->sub, p, v, into, err);
    case FIELD_OBJECTS:
        return read_objects(f, p, v, into, err);
    case FIELD_JSON:
        if (!json_is_object(v) && !json_is_array(v))
            return schema_refuse(p, err, "must be an object or a list");
        *(const json_t **)into = v;
        return 0;
    default:
        return schema_read_number(f, p, v, into, err);
    }
}

static const struct field *field_named(const struct schema *schema, const char *name) {
    for (size_t i = 0; i < schema->count; i++)
        if (strcmp(schema->fields[i].name, name) == 0)
            return &schema->fields[i];
    return NULL;
}

static int unknown_field(const struct schema *schema, const struct path *p, struct err *err) {
    char known[140];
    size_t at = 0;
    schema_refuse(p, err, "is unknown");
    for (size_t i = 0; i < schema->count && at < sizeof(known); i++)
        at += (size_t)snprintf(known + at, sizeof(known) - at, "%s%s", i ? " " : "",
                               schema->fields[i].name);
    return err_remedy(err, "known fields: %s", known);
}

static int read_object(const struct schema *schema, const struct path *p, const json_t *v,
                       void *into, struct err *err) {
    if (!json_is_object(v))
        return p->name ? schema_refuse(p, err, "must be an object")
                       : err_set(err, ERR_INVALID, "the body of the request must be a JSON object");
    const char *key;
    json_t *item;
    json_object_foreach((json_t *)v, key, item) {
        const struct field *f = field_named(schema, key);
        struct path below = {p, key};
        if (!f)
            return unknown_field(schema, &below, err);
        if (!json_is_null(item) && read_field(f, &below, item, (char *)into + f->offset, err) < 0)
            return -1;
    }
    for (size_t i = 0; i < schema->count; i++) {
        struct path below = {p, schema->fields[i].name};
        const json_t *given = json_object_get(v, schema->fields[i].name);
        if (schema->fields[i].required && (!given || json_is_null(given)))
            return schema_refuse(&below, err, "is missing");
    }
    return 0;
}

int schema_read(const struct schema *schema, const json_t *value, void *into, struct err *err) {
    memset(into, 0, schema->size);
    return read_object(schema, &(struct path){0}, value, into, err);
}

void schema_done(const struct schema *schema, void *into) {
    for (size_t i = 0; i < schema->count; i++) {
        const struct field *f = &schema->fields[i];
        void *at = (char *)into + f->offset;
        if (f->kind == FIELD_TEXTS || f->kind == FIELD_MAP) {
            free(((struct texts *)at)->v);
        } else if (f->kind == FIELD_OBJECT) {
            schema_done(f->sub, at);
        } else if (f->kind == FIELD_OBJECTS) {
            struct rows *rows = at;
            for (size_t r = 0; r < rows->count; r++)
                schema_done(f->sub, (char *)rows->v + r * f->sub->size);
            free(rows->v);
        }
    }
}

static void show_time(struct jot *j, const char *name, uint64_t ms) {
    char day[32], text[48];
    time_t seconds = (time_t)(ms / 1000);
    struct tm tm;
    if (!gmtime_r(&seconds, &tm) || !strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &tm))
        return;
    snprintf(text, sizeof(text), "%s.%03uZ", day, (unsigned)(ms % 1000));
    jot_string(j, name, text);
}

static void show_cpus(struct jot *j, const char *name, uint64_t milli) {
    char text[40];
    snprintf(text, sizeof(text), milli % 1000 ? "%" PRIu64 ".%03" PRIu64 : "%" PRIu64, milli / 1000,
             milli % 1000);
    jot_raw(j, name, text);
}

static void schema_show(const struct field *f, struct jot *j, const void *at) {
    const char *text;
    switch (f->kind) {
    case SHOW_TEXT:
        if ((text = *(const char *const *)at))
            jot_string(j, f->name, text);
        break;
    case SHOW_CHARS:
        if (*(const char *)at || f->required)
            jot_string(j, f->name, at);
        break;
    case SHOW_NUMBER:
        jot_u64(j, f->name, *(const uint64_t *)at);
        break;
    case SHOW_COUNT:
        if (*(const uint64_t *)at != SHOW_UNCOUNTED)
            jot_u64(j, f->name, *(const uint64_t *)at);
        break;
    case SHOW_SIGNED:
        jot_i64(j, f->name, *(const int64_t *)at);
        break;
    case SHOW_FLAG:
        jot_bool(j, f->name, *(const bool *)at);
        break;
    case SHOW_TIME:
        if (*(const uint64_t *)at)
            show_time(j, f->name, *(const uint64_t *)at);
        break;
    case SHOW_CPUS:
        show_cpus(j, f->name, *(const uint64_t *)at);
        break;
    case SHOW_JSON:
        if ((text = *(const char *const *)at) && *text)
            jot_raw(j, f->name, text);
        break;
    case SHOW_OBJECT:
        schema_write(f->sub, j, f->name, at);
        break;
    default:
        abort(); /* bug: a request field in the table of a response */
    }
}

void schema_write(const struct schema *schema, struct jot *j, const char *name, const void *from) {
    jot_object(j, name);
    for (size_t i = 0; i < schema->count; i++)
        schema_show(&schema->fields[i], j, (const char *)from + schema->fields[i].offset);
    jot_end(j, '}');
}

/* How schemas are described; see schema.h. */
struct describing {
    bool whole, brief;
    const char *skip; /* name of an optional field to leave out, or NULL */
};

static void describe_object(const struct schema *schema, struct jot *j, const char *name,
                            const struct describing *d);

static void describe_ref(const struct schema *sub, struct jot *j, const char *name,
                         const struct describing *d) {
    char ref[120];
    if (d->whole) {
        describe_object(sub, j, name, d);
        return;
    }
    snprintf(ref, sizeof(ref), "#/components/schemas/%s", sub->name);
    jot_object(j, name);
    jot_string(j, "$ref", ref);
    jot_end(j, '}');
}

static void describe_type_pair(struct jot *j, const char *one, const char *other) {
    jot_array(j, "type");
    jot_string(j, NULL, one);
    jot_string(j, NULL, other);
    jot_end(j, ']');
}

static void describe_range(const struct field *f, struct jot *j, const struct describing *d) {
    if (d->brief)
        return;
    bool milli = f->kind == FIELD_CPUS || f->kind == FIELD_DURATION;
    uint64_t unit = milli ? 1000 : f->kind == FIELD_MONEY ? 1000000 : 1;
    jot_u64(j, "minimum", f->min / unit);
    if (f->max)
        jot_u64(j, "maximum", f->max / unit);
}

static void describe_strings(const struct field *f, struct jot *j, bool is_map, bool brief) {
    jot_string(j, "type", is_map ? "object" : "array");
    if (!brief)
        jot_u64(j, is_map ? "maxProperties" : "maxItems", f->max);
    jot_object(j, is_map ? "additionalProperties" : "items");
    jot_string(j, "type", "string");
    jot_end(j, '}');
}

static void describe_items(struct jot *j, const char *member, const char *type) {
    jot_object(j, member);
    jot_string(j, "type", type);
    jot_end(j, '}');
}

/* Describes JSON text of a response. An object of `sub` alone is a reference; see
 * describe_field(). */
static void describe_shape(const struct field *f, struct jot *j, const struct describing *d) {
    static const struct {
        const char *type, *member, *of;
    } shapes[] = {
        [SHAPE_TEXTS] = {"array", "items", "string"},
        [SHAPE_MAP] = {"object", "additionalProperties", "string"},
        [SHAPE_COUNTS] = {"object", "additionalProperties", "integer"},
        [SHAPE_OBJECT] = {"object", NULL, NULL},
        [SHAPE_ROWS] = {"array", "items", "object"},
    };
    if (f->shape != SHAPE_ANY) {
        jot_string(j, "type", shapes[f->shape].type);
        if (shapes[f->shape].member)
            describe_items(j, shapes[f->shape].member, shapes[f->shape].of);
    } else if (f->sub) {
        jot_string(j, "type", "array");
        describe_ref(f->sub, j, "items", d);
    }
}

static void describe_kind(const struct field *f, struct jot *j, const struct describing *d) {
    switch (f->kind) {
    case FIELD_TEXT:
    case SHOW_TEXT:
    case SHOW_CHARS:
        jot_string(j, "type", "string");
        if (f->max && !d->brief)
            jot_u64(j, "maxLength", f->max);
        break;
    case FIELD_FLAG:
    case SHOW_FLAG:
        jot_string(j, "type", "boolean");
        break;
    case FIELD_NUMBER:
        jot_string(j, "type", "integer");
        describe_range(f, j, d);
        break;
    case FIELD_SIZE:
    case FIELD_CPUS:
    case FIELD_MONEY:
    case FIELD_DURATION:
        describe_type_pair(j, "number", "string");
        describe_range(f, j, d);
        break;
    case FIELD_TEXTS:
        describe_strings(f, j, false, d->brief);
        break;
    case FIELD_MAP:
        describe_strings(f, j, true, d->brief);
        break;
    case FIELD_OBJECTS:
        jot_string(j, "type", "array");
        if (!d->brief)
            jot_u64(j, "maxItems", f->max);
        describe_ref(f->sub, j, "items", d);
        break;
    case SHOW_NUMBER:
    case SHOW_COUNT:
    case SHOW_SIGNED:
        jot_string(j, "type", "integer");
        break;
    case SHOW_CPUS:
        jot_string(j, "type", "number");
        break;
    case SHOW_TIME:
        jot_string(j, "type", "string");
        jot_string(j, "format", "date-time");
        break;
    case FIELD_JSON:
        describe_type_pair(j, "object", "array");
        break;
    case SHOW_JSON:
        describe_shape(f, j, d);
        break;
    case FIELD_OBJECT:
    case SHOW_OBJECT:
        break;
    }
}

static void describe_field(const struct field *f, struct jot *j, const struct describing *d) {
    bool is_list = f->kind == FIELD_OBJECTS || (f->kind == SHOW_JSON && f->shape == SHAPE_ANY);
    if (f->sub && !is_list) {
        describe_ref(f->sub, j, f->name, d);
        return;
    }
    jot_object(j, f->name);
    describe_kind(f, j, d);
    if (f->choices) {
        jot_array(j, "enum");
        for (size_t i = 0; f->choices[i]; i++)
            jot_string(j, NULL, f->choices[i]);
        jot_end(j, ']');
    }
    if (f->doc)
        jot_string(j, "description", f->doc);
    jot_end(j, '}');
}

static void describe_required(const struct schema *schema, struct jot *j,
                              const struct describing *d) {
    size_t count = 0;
    for (size_t i = 0; i < schema->count; i++)
        count += schema->fields[i].required;
    if (d->brief && !count)
        return;
    jot_array(j, "required");
    for (size_t i = 0; i < schema->count; i++)
        if (schema->fields[i].required)
            jot_string(j, NULL, schema->fields[i].name);
    jot_end(j, ']');
}

static void describe_object(const struct schema *schema, struct jot *j, const char *name,
                            const struct describing *d) {
    jot_object(j, name);
    jot_string(j, "type", "object");
    jot_object(j, "properties");
    for (size_t i = 0; i < schema->count; i++)
        if (!d->skip || strcmp(schema->fields[i].name, d->skip) != 0)
            describe_field(&schema->fields[i], j, d);
    jot_end(j, '}');
    describe_required(schema, j, d);
    bool is_open = !d->whole && schema->fields[0].kind >= SHOW_TEXT;
    if (!d->brief && !is_open)
        jot_bool(j, "additionalProperties", false);
    jot_end(j, '}');
}

void schema_describe(const struct schema *schema, struct jot *j, const char *name) {
    describe_object(schema, j, name, &(struct describing){.whole = false});
}

void schema_describe_whole(const struct schema *schema, struct jot *j, const char *name) {
    describe_object(schema, j, name, &(struct describing){.whole = true});
}

void schema_describe_brief(const struct schema *schema, struct jot *j, const char *name,
                           const char *skip) {
    describe_object(schema, j, name,
                    &(struct describing){.whole = true, .brief = true, .skip = skip});
}
