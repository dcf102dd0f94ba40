/*
 * The HTTP answer to a refused request, for the program in the machine and for whoever reads its
 * output.
 *
 * Programs print different parts of an answer: apt and wget (and pip with -vv) the reason phrase,
 * npm the text `error` of a JSON body, git and go a plain text. So the cause and the remedy are in
 * all of them. Pure.
 */
#pragma once

#include "gate/policy.h"
#include "io/http.h"

/* How the refusal can be resolved, by its cause. */
enum remedy {
    REMEDY_NONE,         /* the request itself is wrong: no command of the owner helps */
    REMEDY_ALLOW,        /* no rule allows the host */
    REMEDY_RULE,         /* a rule denies the host */
    REMEDY_CONF,         /* a rule of carrel.conf denies the host */
    REMEDY_LOCAL,        /* the address of the host is not public */
    REMEDY_TAINT,        /* the machine is guarded and tainted */
    REMEDY_APPROVE,      /* nobody approved the request in time, or too many wait */
    REMEDY_RETRY,        /* the owner can approve the request, which must then be sent again */
    REMEDY_SECRET_HOST,  /* the secret is not granted for the host */
    REMEDY_SECRET_PLACE, /* the placeholder is where its grant does not allow it */
    REMEDY_SECRET_TLS,   /* the placeholder is outside of TLS */
    REMEDY_SECRET_LOST,  /* the secret was deleted */
    REMEDIES,
};

/* A reason to refuse, with its remedy; why is NULL if there is none. */
struct denial {
    const char *why;
    enum remedy remedy;
};

/* The remedy of a denial by the policy. */
enum remedy remedy_of(const struct policy_answer *a);

struct refusal {
    const char *machine;
    const char *host; /* empty: not known */
    uint16_t port;
    bool knows_protocol;
    enum policy_protocol protocol;
    uint64_t rule; /* REMEDY_RULE: id of the rule that denies */
    const char *why;
    enum remedy remedy;
    bool timed_out;
    bool wants_json; /* refusal_wants_json() of the request */
    bool no_body;    /* the request has the method HEAD */
};

/* True if the field Accept of the request names a JSON type. */
bool refusal_wants_json(const struct http_head *h);

enum { REMEDY_SIZE = 2 * NAME_SIZE + 256 };
/* Writes the remedy; empty if there is none. */
void refusal_remedy(const struct refusal *r, char ret[REMEDY_SIZE]);
/* Writes the whole answer. False: the buffer is full. */
bool refusal_put(const struct refusal *r, struct buf *out);
/* Writes a status line whose reason phrase tells why; bytes that a phrase cannot hold become "?".
 */
bool refusal_put_status(int status, const char *why, struct buf *out);
