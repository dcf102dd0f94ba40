#include "model/price.h"

#include <string.h>

/* Returns how well the pattern matches the model's name; SIZE_MAX: the exact name, 0: no match. */
static size_t match(const char *pattern, const char *model) {
    size_t n = strlen(pattern);
    if (n == 0 || pattern[n - 1] != '*')
        return strcmp(pattern, model) == 0 ? SIZE_MAX : 0;
    return strncmp(pattern, model, n - 1) == 0 ? n : 0;
}

const struct conf_model *model_row(const struct conf_model *rows, size_t count, const char *model) {
    const struct conf_model *best = NULL;
    size_t most = 0;
    for (size_t i = 0; i < count; i++) {
        size_t n = match(rows[i].name, model);
        if (n > most) {
            most = n;
            best = &rows[i];
        }
    }
    return best;
}

/* The sum cannot overflow: counts are at most 2^40, and prices in carrel.conf at most 10^12. */
static uint64_t money(const struct conf_model *row, const struct model_usage *u) {
    const unsigned million = 1000000;
    if (!row || !row->priced)
        return 0;
    __extension__ unsigned __int128 sum =
        (unsigned __int128)u->in * row->in + (unsigned __int128)u->out * row->out +
        (unsigned __int128)u->cache_read * row->cache_read +
        (unsigned __int128)u->cache_write * row->cache_write +
        (unsigned __int128)u->cache_write_long * row->cache_write_long;
    sum = (sum + million - 1) / million;
    return sum > STORE_NUMBER_MAX ? STORE_NUMBER_MAX : (uint64_t)sum;
}

struct cost model_cost(const struct conf_model *row, const struct model_usage *usage) {
    return (struct cost){.tokens = model_usage_total(usage), .micro = money(row, usage)};
}

uint64_t model_window(const struct conf_model *row) {
    return row && row->window ? row->window : MODEL_WINDOW_UNKNOWN;
}

uint64_t model_dearest_input(const struct conf_model *row) {
    uint64_t most = row->in;
    const uint64_t others[] = {row->cache_read, row->cache_write, row->cache_write_long};
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
        if (others[i] > most)
            most = others[i];
    return most;
}
