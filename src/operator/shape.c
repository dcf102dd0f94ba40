#include "operator/shape.h"

#include <stdbool.h>
#include <string.h>

static const char name_marks[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
static const char text_marks[] =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _.,:/@+-";

static const double NUMBER_MAX = 1e15;

/* ---- checks of a schema ---- */

static int known_members(const json_t *shape, const char *const *names, struct err *err) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)shape, name, value) {
        size_t i = 0;
        while (names[i] && strcmp(names[i], name) != 0)
            i++;
        if (!names[i])
            return err_set(err, ERR_INVALID, "unexpected schema keyword '%.40s'", name);
    }
    return 0;
}

static int check_choices(const json_t *choices, struct err *err) {
    size_t n = json_array_size(choices);
    if (!n || n > SHAPE_CHOICES_MAX)
        return err_set(err, ERR_INVALID, "'enum' in a schema must be a list of 1 to %d strings",
                       SHAPE_CHOICES_MAX);
    for (size_t i = 0; i < n; i++) {
        size_t len = json_string_length(json_array_get(choices, i));
        if (!len || len > SHAPE_TEXT_MAX)
            return err_set(err, ERR_INVALID,
                           "the values of 'enum' in a schema must be strings of 1 to %d bytes",
                           SHAPE_TEXT_MAX);
    }
    return 0;
}

static int check_text(const json_t *shape, struct err *err) {
    static const char *const names[] = {"type", "description", "enum", "maxLength", NULL};
    const json_t *choices = json_object_get(shape, "enum");
    json_int_t max = json_integer_value(json_object_get(shape, "maxLength"));
    if (known_members(shape, names, err) < 0)
        return -1;
    if (choices)
        return check_choices(choices, err);
    if (max >= 1 && max <= SHAPE_TEXT_MAX)
        return 0;
    err_set(err, ERR_INVALID, "the schema of a string needs an 'enum', or a 'maxLength' of 1 to %d",
            SHAPE_TEXT_MAX);
    return err_remedy(err,
                      "a string without an enum may contain letters, digits, spaces and _.,:/@+-");
}

static int check_number(const json_t *shape, struct err *err) {
    static const char *const names[] = {"type", "description", "minimum", "maximum", NULL};
    const json_t *min = json_object_get(shape, "minimum"), *max = json_object_get(shape, "maximum");
    if (known_members(shape, names, err) < 0)
        return -1;
    if (json_is_number(min) && json_is_number(max) && json_number_value(min) >= -NUMBER_MAX &&
        json_number_value(max) <= NUMBER_MAX && json_number_value(min) <= json_number_value(max))
        return 0;
    return err_set(err, ERR_INVALID,
                   "the schema of a number needs 'minimum' and 'maximum' between -1e15 and 1e15");
}

static int check_flag(const json_t *shape, struct err *err) {
    static const char *const names[] = {"type", "description", NULL};
    return known_members(shape, names, err);
}

/* ---- checks of a value ---- */

static int fits_text(const json_t *shape, const json_t *value, struct err *err) {
    const char *text = json_string_value(value);
    const json_t *choices = json_object_get(shape, "enum"), *choice;
    size_t i, n = json_string_length(value);
    if (!text)
        return err_set(err, ERR_INVALID, "the value must be a string");
    json_array_foreach(choices, i, choice) {
        if (json_equal(choice, value))
            return 0;
    }
    if (choices)
        return err_set(err, ERR_INVALID, "the value is not one of the enum values of its schema");
    if (n > (size_t)json_integer_value(json_object_get(shape, "maxLength")))
        return err_set(err, ERR_INVALID, "the value is longer than the maxLength of its schema");
    return strspn(text, text_marks) == n
               ? 0
               : err_set(err, ERR_INVALID,
                         "the schema allows only letters, digits, spaces and _.,:/@+- in a string");
}

static int fits_number(const json_t *shape, const json_t *value, struct err *err) {
    const json_t *min = json_object_get(shape, "minimum"), *max = json_object_get(shape, "maximum");
    bool whole = strcmp(json_string_value(json_object_get(shape, "type")), "integer") == 0;
    double n = json_number_value(value);
    if (!json_is_number(value) || (whole && !json_is_integer(value)))
        return err_set(err, ERR_INVALID, "the value must be a %s",
                       whole ? "whole number" : "number");
    if (!(n >= json_number_value(min) && n <= json_number_value(max)))
        return err_set(err, ERR_INVALID,
                       "the value is not between the minimum and maximum of its schema");
    return 0;
}

static int fits_flag(const json_t *shape, const json_t *value, struct err *err) {
    (void)shape;
    return json_is_boolean(value) ? 0
                                  : err_set(err, ERR_INVALID, "the value must be true or false");
}

static const struct {
    const char *type;
    int (*check)(const json_t *shape, struct err *err);
    int (*fits)(const json_t *shape, const json_t *value, struct err *err);
} kinds[] = {
    {"string", check_text, fits_text},
    {"integer", check_number, fits_number},
    {"number", check_number, fits_number},
    {"boolean", check_flag, fits_flag},
};
enum { KINDS = sizeof(kinds) / sizeof(*kinds) };

static size_t shape_kind_of(const json_t *shape) {
    const char *type = json_string_value(json_object_get(shape, "type"));
    size_t i = 0;
    while (i < KINDS && !(type && strcmp(kinds[i].type, type) == 0))
        i++;
    return i;
}

int shape_check(const json_t *shape, struct err *err) {
    size_t kind = shape_kind_of(shape);
    if (kind < KINDS)
        return kinds[kind].check(shape, err);
    return err_set(err, ERR_INVALID,
                   "'type' in a schema must be string, integer, number or boolean");
}

int shape_fits(const json_t *shape, const json_t *value, struct err *err) {
    return kinds[shape_kind_of(shape)].fits(shape, value, err);
}

bool shape_is_closed(const json_t *shape) {
    const char *type = json_string_value(json_object_get(shape, "type"));
    return (type && strcmp(type, "string") != 0) || json_object_get(shape, "enum");
}

/* ---- records ---- */

static bool is_name(const char *name) {
    size_t n = strlen(name);
    return n && n <= SHAPE_NAME_MAX && strspn(name, name_marks) == n;
}

int shape_record_check(const json_t *shape, struct err *err) {
    static const char *const names[] = {"type",     "description",          "properties",
                                        "required", "additionalProperties", NULL};
    const char *type = json_string_value(json_object_get(shape, "type")), *name;
    json_t *members = json_object_get(shape, "properties"), *member;
    size_t n = json_object_size(members);
    if (!type || strcmp(type, "object") != 0 || known_members(shape, names, err) < 0)
        return err_set(err, ERR_INVALID, "the schema must be {\"type\":\"object\",\"properties\"}");
    if (!n || n > SHAPE_MEMBERS_MAX)
        return err_set(err, ERR_INVALID, "'properties' of a schema must have 1 to %d members",
                       SHAPE_MEMBERS_MAX);
    json_object_foreach(members, name, member) {
        if (!is_name(name))
            return err_set(
                err, ERR_INVALID,
                "property name '%.60s' in a schema is not valid: use letters, digits and _", name);
        if (shape_check(member, err) < 0)
            return err_wrap(err, "property '%s'", name);
    }
    return 0;
}

int shape_record_fits(const json_t *shape, const json_t *value, struct err *err) {
    json_t *members = json_object_get(shape, "properties"), *member;
    const char *name;
    if (!json_is_object(value) || json_object_size(value) != json_object_size(members))
        return err_set(
            err, ERR_INVALID,
            "the record must be a JSON object with exactly the properties of its schema");
    json_object_foreach(members, name, member) {
        const json_t *given = json_object_get(value, name);
        if (!given)
            return err_set(err, ERR_INVALID, "property '%s' of the schema is missing in the record",
                           name);
        if (shape_fits(member, given, err) < 0)
            return err_wrap(err, "property '%s'", name);
    }
    return 0;
}
