#include "io/http_crowd.h"

/* Shares of all connections, as 1/N: reserved for the owner, for each user id, for TCP. */
enum { RESERVED_PARTS = 4, USER_PARTS = 4, TCP_PARTS = 2, TOLD_MAX = 64 };

static unsigned strangers_max(const struct crowd *c) {
    return c->max - c->max / RESERVED_PARTS;
}

/* Connections that only get a 503 may use at most half of the part reserved for the owner. */
static unsigned told_max(const struct crowd *c) {
    unsigned half = c->max / RESERVED_PARTS / 2;
    return half < TOLD_MAX ? half : TOLD_MAX;
}

bool crowd_admits(const struct crowd *c, enum crowd_kind kind) {
    if (c->all >= c->max)
        return false;
    if (kind == CROWD_OWNER)
        return true;
    unsigned share = c->max / (kind == CROWD_USER ? USER_PARTS : TCP_PARTS);
    return c->strangers < strangers_max(c) && c->same < (share ? share : 1);
}

bool crowd_answers(const struct crowd *c, enum crowd_kind kind) {
    if (kind == CROWD_OWNER)
        return c->all < c->max + TOLD_MAX;
    return c->all < c->max && c->strangers < strangers_max(c) + told_max(c);
}
