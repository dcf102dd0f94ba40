/*
 * Counts failed authentications of each client address, to slow down those who guess.
 *
 * Pure: the caller gives the time. It remembers the FAILURES_ROWS addresses that failed last.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FAILURES_ROWS = 64, FAILURES_MOST = 30, FAILURES_PERIOD_MS = 60000, FAILURES_ADDRESS = 64 };

struct failures {
    struct failures_row {
        char address[FAILURES_ADDRESS]; /* empty: unused */
        unsigned count;                 /* since `since_ms` */
        uint64_t since_ms;
    } rows[FAILURES_ROWS];
};

/* peer: the text of a struct http_peer. Its port is left out: each connection has another one. */
void failures_add(struct failures *f, const char *peer, uint64_t now_ms);
/* Returns the seconds until the client may try again; 0: now. */
uint64_t failures_wait_s(const struct failures *f, const char *peer, uint64_t now_ms);
