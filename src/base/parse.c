#include "base/parse.h"

#include <string.h>

struct unit {
    const char *name;
    uint64_t factor;
};

static const struct unit size_units[] = {
    {"", 1},
    {"B", 1},
    {"K", 1ull << 10},
    {"KB", 1ull << 10},
    {"KiB", 1ull << 10},
    {"M", 1ull << 20},
    {"MB", 1ull << 20},
    {"MiB", 1ull << 20},
    {"G", 1ull << 30},
    {"GB", 1ull << 30},
    {"GiB", 1ull << 30},
    {"T", 1ull << 40},
    {"TB", 1ull << 40},
    {"TiB", 1ull << 40},
    {NULL, 0},
};
static const struct unit time_units[] = {
    {"", 1000}, {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}, {NULL, 0},
};
static const struct unit plain_units[] = {{"", 1}, {NULL, 0}};
static const struct unit milli_units[] = {{"", 1000}, {NULL, 0}};
static const struct unit micro_units[] = {{"", 1000000}, {NULL, 0}};

/* Reads digits [ "." digits ] unit and multiplies by the unit. False: malformed, or above 2^62. */
static bool scaled(const char *text, const struct unit *units, uint64_t *ret) {
    uint64_t whole = 0, part = 0, scale = 1;
    const char *p = text;
    if (*p < '0' || *p > '9')
        return false;
    for (; *p >= '0' && *p <= '9'; p++) {
        if (whole > (1ull << 62) / 10 - 10)
            return false;
        whole = whole * 10 + (uint64_t)(*p - '0');
    }
    if (*p == '.') {
        for (p++; *p >= '0' && *p <= '9'; p++)
            if (scale < 1000000) {
                scale *= 10;
                part = part * 10 + (uint64_t)(*p - '0');
            }
        if (scale == 1)
            return false;
    }
    for (; units->name; units++)
        if (strcasecmp(units->name, p) == 0)
            break;
    if (!units->name || (units->factor == 1 && scale > 1) || whole > (1ull << 62) / units->factor)
        return false;
    *ret = whole * units->factor + part * units->factor / scale;
    return true;
}

int parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *ret, struct err *err) {
    uint64_t n;
    if (!scaled(text, plain_units, &n) || n < min || n > max)
        return err_set(err, ERR_INVALID, "'%s' is not a number from %llu to %llu", text,
                       (unsigned long long)min, (unsigned long long)max);
    *ret = n;
    return 0;
}

bool parse_name(const char *name, uint64_t max, uint64_t *ret) {
    return (name[0] != '0' || !name[1]) && parse_u64(name, 0, max, ret, NULL) == 0;
}

int parse_size(const char *text, uint64_t *ret_bytes, struct err *err) {
    if (scaled(text, size_units, ret_bytes))
        return 0;
    err_set(err, ERR_INVALID, "'%s' is not a size", text);
    return err_remedy(err, "write a size such as 512M or 1.5G, or a number of bytes");
}

int parse_milli(const char *text, uint64_t *ret_milli, struct err *err) {
    if (scaled(text, milli_units, ret_milli))
        return 0;
    err_set(err, ERR_INVALID, "'%s' is not a number", text);
    return err_remedy(err, "write a number such as 2 or 0.5");
}

int parse_micro(const char *text, uint64_t *ret_micro, struct err *err) {
    const char *point = strchr(text, '.');
    bool exact = !point || strlen(point + 1) <= 6;
    if (exact && scaled(text, micro_units, ret_micro))
        return 0;
    err_set(err, ERR_INVALID, "'%s' is not a number", text);
    return err_remedy(err, "write a number such as 3 or 0.25, with at most six decimals");
}

int parse_duration(const char *text, uint64_t *ret_ms, struct err *err) {
    if (scaled(text, time_units, ret_ms))
        return 0;
    err_set(err, ERR_INVALID, "'%s' is not a time", text);
    return err_remedy(err, "write a time such as 30s, 5m or 2h");
}
