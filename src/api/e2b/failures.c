#include "api/e2b/failures.h"

#include <stdio.h>
#include <string.h>

/* "127.0.0.1:54321" is 127.0.0.1; "uid 1000 pid 77" is uid 1000. */
static void address_of(const char *peer, char ret[FAILURES_ADDRESS]) {
    const char *end = strncmp(peer, "uid ", 4) == 0 ? strstr(peer, " pid") : strrchr(peer, ':');
    size_t n = end ? (size_t)(end - peer) : strlen(peer);
    snprintf(ret, FAILURES_ADDRESS, "%.*s", (int)(n < FAILURES_ADDRESS ? n : FAILURES_ADDRESS - 1),
             peer);
}

static bool is_current(const struct failures_row *row, uint64_t now_ms) {
    return row->address[0] && now_ms - row->since_ms < FAILURES_PERIOD_MS;
}

static const struct failures_row *row_of(const struct failures *f, const char *address,
                                         uint64_t now_ms) {
    for (size_t i = 0; i < FAILURES_ROWS; i++)
        if (is_current(&f->rows[i], now_ms) && strcmp(f->rows[i].address, address) == 0)
            return &f->rows[i];
    return NULL;
}

/* The row that began first. Unused rows began at 0. */
static struct failures_row *oldest(struct failures *f) {
    struct failures_row *found = &f->rows[0];
    for (size_t i = 1; i < FAILURES_ROWS; i++)
        if (f->rows[i].since_ms < found->since_ms)
            found = &f->rows[i];
    return found;
}

void failures_add(struct failures *f, const char *peer, uint64_t now_ms) {
    char address[FAILURES_ADDRESS];
    address_of(peer, address);
    const struct failures_row *known = row_of(f, address, now_ms);
    if (known) {
        f->rows[known - f->rows].count++;
        return;
    }
    struct failures_row *row = oldest(f);
    *row = (struct failures_row){.count = 1, .since_ms = now_ms};
    memcpy(row->address, address, sizeof(address));
}

uint64_t failures_wait_s(const struct failures *f, const char *peer, uint64_t now_ms) {
    char address[FAILURES_ADDRESS];
    address_of(peer, address);
    const struct failures_row *row = row_of(f, address, now_ms);
    return row && row->count >= FAILURES_MOST
               ? (row->since_ms + FAILURES_PERIOD_MS - now_ms + 999) / 1000
               : 0;
}
