/*
 * Decides how many of a server's connections each kind of peer may have: pure arithmetic.
 *
 * A part of the connections is reserved for the owner of the server (by the user id that the kernel
 * reports). All other peers share the rest: each user id of this host may have a quarter of all,
 * and TCP, where the kernel reports no user id, a half.
 */
#pragma once

#include <stdbool.h>

enum crowd_kind { CROWD_OWNER, CROWD_USER, CROWD_TCP };

/* Numbers of open connections, without the new one. */
struct crowd {
    unsigned max;
    unsigned all;
    unsigned strangers; /* connections of all peers except the owner */
    unsigned same;      /* connections of the same user id, or over TCP */
};

/* True if the new connection may be served; otherwise it is answered with 503. */
bool crowd_admits(const struct crowd *c, enum crowd_kind kind);

/*
 * True if a connection that is not served may get the 503; otherwise it is closed at once. An
 * answer needs a connection too.
 */
bool crowd_answers(const struct crowd *c, enum crowd_kind kind);
