/*
 * Who may have how many of a server's connections: pure arithmetic.
 *
 * The owner of the server, by the kernel's word, always finds a part of them free. Everybody else
 * shares the rest: each user id of this host has a quarter of all, and TCP, where the kernel
 * vouches for nobody, has a half.
 */
#pragma once

#include <stdbool.h>

enum crowd_kind { CROWD_OWNER, CROWD_USER, CROWD_TCP };

/* Connections that are open now, without the one that is asked about. */
struct crowd {
    unsigned max;
    unsigned all;
    unsigned strangers; /* all but the owner's */
    unsigned same;      /* of this user id, or of TCP */
};

/* May it be served? If not it is told 503. */
bool crowd_admits(const struct crowd *c, enum crowd_kind kind);

/* May it even be told so? Who is only told takes a connection too. */
bool crowd_answers(const struct crowd *c, enum crowd_kind kind);
