#include "cli/text/units.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/defer.h"
#include "cli/safe.h"
#include "cli/table.h"

enum { LABEL_WIDTH = 16 };
/* A larger number of milliseconds is a time since 1970 (after the year 2001), because no duration
 * has 31 years. */
#define MOMENT_MS 1e12

#define SECOND 1000000ull

/* Removes the ending from the label. False: the label does not have it. */
static bool ends_with(char *label, const char *ending) {
    size_t n = strlen(label), len = strlen(ending);
    if (n <= len || strcmp(label + n - len, ending) != 0)
        return false;
    label[n - len] = '\0';
    return true;
}

static bool is_time(const char *text) {
    static const char form[] = "0000-00-00T00:00:00";
    for (size_t i = 0; form[i]; i++)
        if (form[i] == '0' ? !isdigit((unsigned char)text[i]) : text[i] != form[i])
            return false;
    return true;
}

/* Writes a time as "2026-11-17 04:57:36 UTC (3h 5m ago)". */
static void units_moment(time_t when, char ret[UNITS_SIZE]) {
    struct tm tm = {0};
    char distance[UNITS_SIZE], text[24];
    int64_t s = (int64_t)time(NULL) - (int64_t)when;
    amount_duration((uint64_t)(s < 0 ? -s : s) * SECOND, distance);
    if (!gmtime_r(&when, &tm) || !strftime(text, sizeof(text), "%F %T", &tm))
        text[0] = '\0';
    snprintf(ret, UNITS_SIZE, s < 0 ? "%s UTC (in %.12s)" : "%s UTC (%.12s ago)", text, distance);
}

static void units_time(const char *text, char ret[UNITS_SIZE]) {
    struct tm tm = {0};
    strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    units_moment(timegm(&tm), ret);
}

static const char *units_number(const char *name, const json_t *value, char ret[UNITS_SIZE],
                                char *label) {
    double n = json_number_value(value);
    char size[16];
    bool none = n <= 0;
    if (ends_with(label, "_ms")) {
        if (none)
            return strcmp(name, "used_ms") == 0 ? "never" : "none";
        if (n >= MOMENT_MS)
            units_moment((time_t)(n / 1000), ret);
        else
            amount_duration((uint64_t)n * 1000, ret);
    } else if (ends_with(label, "_us")) {
        amount_duration((uint64_t)n, ret);
    } else if (ends_with(label, "_bytes") || strcmp(name, "mem") == 0 ||
               strcmp(name, "disk") == 0 || strcmp(name, "size") == 0 ||
               strcmp(name, "bytes") == 0) {
        table_bytes((long long)n, size);
        snprintf(ret, UNITS_SIZE, "%s", size);
    } else if (none && strcmp(name, "cpus") == 0) {
        return "unlimited";
    } else if (json_is_integer(value)) {
        snprintf(ret, UNITS_SIZE, "%lld", (long long)json_integer_value(value));
    } else {
        snprintf(ret, UNITS_SIZE, "%g", n);
    }
    return ret;
}

const char *units_value(const char *name, const json_t *value, char ret[UNITS_SIZE],
                        char ret_label[UNITS_SIZE]) {
    const char *text = json_string_value(value);
    snprintf(ret_label, UNITS_SIZE, "%s", name);
    if (json_is_boolean(value))
        return json_is_true(value) ? "yes" : "no";
    if (json_is_null(value) || (json_is_array(value) && !json_array_size(value)))
        return "none";
    if (json_is_number(value))
        return units_number(name, value, ret, ret_label);
    if (!text || !is_time(text))
        return NULL;
    units_time(text, ret);
    return ret;
}

static void units_print_one(const char *name, const json_t *value, int indent) {
    char shown[UNITS_SIZE], label[UNITS_SIZE];
    const char *text = units_value(name, value, shown, label);
    printf("%*s", indent, "");
    if (json_is_object(value)) {
        puts(label);
        units_print(value, indent + 2);
        return;
    }
    table_cell(label, LABEL_WIDTH - indent);
    if (!text && json_is_string(value))
        text = json_string_value(value);
    if (text) {
        safe_name(stdout, text);
        putchar('\n');
    } else {
        char *json DEFER_FREE = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | TABLE_REALS);
        safe_json_line(json ? json : "");
    }
}

void units_print(const json_t *object, int indent) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)object, name, value) {
        units_print_one(name, value, indent);
    }
}

static void units_print_absent(const char *name) {
    char label[UNITS_SIZE];
    snprintf(label, sizeof(label), "%s", name);
    (void)(ends_with(label, "_us") || ends_with(label, "_bytes"));
    table_cell(label, LABEL_WIDTH);
    puts("-");
}

void units_print_counts(const json_t *object, const char *const *names) {
    json_t *others DEFER(json_decrefp) = json_copy((json_t *)object);
    for (; *names; names++) {
        const json_t *value = json_object_get(object, *names);
        if (value)
            units_print_one(*names, value, 0);
        else
            units_print_absent(*names);
        json_object_del(others, *names);
    }
    units_print(others, 0);
}
