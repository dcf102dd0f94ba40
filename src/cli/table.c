#include "cli/table.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/amount.h"
#include "cli/safe.h"

void print_json(const json_t *value) {
    char *text = json_dumps(value, JSON_COMPACT | TABLE_REALS);
    safe_json_line(text ? text : "");
    free(text);
}

void print_ids(const json_t *rows, const char *member) {
    size_t i;
    const json_t *row;
    json_array_foreach(rows, i, row) {
        const json_t *id = json_object_get(row, member);
        if (json_is_integer(id))
            printf("%lld", (long long)json_integer_value(id));
        else
            safe_name(stdout, json_string_value(id) ? json_string_value(id) : "");
        putchar('\n');
    }
}

const json_t *table_find(const json_t *rows, const char *member, const char *id) {
    size_t i;
    const json_t *row;
    json_array_foreach(rows, i, row) {
        const char *text = json_string_value(json_object_get(row, member));
        if (text && strcmp(text, id) == 0)
            return row;
    }
    return NULL;
}

void table_cell(const char *text, int width) {
    int n = (int)strlen(text);
    safe_name(stdout, text);
    printf("%*s", n < width ? width - n + 2 : 2, "");
}

void table_age(const char *since, char ret[16]) {
    static const struct {
        long seconds;
        char unit;
    } units[] = {{86400, 'd'}, {3600, 'h'}, {60, 'm'}, {1, 's'}};
    struct tm tm = {0};
    if (!strptime(since, "%Y-%m-%dT%H:%M:%S", &tm)) {
        snprintf(ret, 16, "-");
        return;
    }
    long n = (long)(time(NULL) - timegm(&tm));
    size_t at = 0;
    n = n < 0 ? 0 : n;
    while (at < 3 && n < units[at].seconds)
        at++;
    snprintf(ret, 16, "%ld%c", n / units[at].seconds, units[at].unit);
}

void table_left(long long until_ms, char ret[TABLE_LEFT_SIZE]) {
    static_assert((int)TABLE_LEFT_SIZE == AMOUNT_SIZE, "amount_duration() writes to ret");
    long long seconds = until_ms / 1000 - (long long)time(NULL);
    if (!until_ms)
        snprintf(ret, TABLE_LEFT_SIZE, "-");
    else if (seconds <= 0)
        snprintf(ret, TABLE_LEFT_SIZE, "expired");
    else
        amount_duration((uint64_t)seconds * 1000000, ret);
}

void table_bytes(long long n, char ret[16]) {
    static const char units[] = "BKMGT";
    size_t at = 0;
    double v = (double)n;
    for (; v >= 1024 && at < 4; at++)
        v /= 1024;
    snprintf(ret, 16, v < 10 && at && v != (double)(long long)v ? "%.1f%c" : "%.0f%c", v,
             units[at]);
}
