/*
 * What a client asks of the spawner, and what it answers: the plan codec.
 *
 * One message is one packet of a SOCK_SEQPACKET socket: a header and fields of
 * (tag, length, bytes), little-endian. Decoding is pure and total: unknown tags,
 * wrong lengths, texts with NUL bytes and values out of range are refused, so
 * that privileged code never sees a half-made plan.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/id.h"

enum {
    PLAN_VERSION = 1,
    PLAN_MAX_BYTES = 32768, /* one packet, either way */
    PLAN_MAX_GRANTS = 16,
    PLAN_PATH_SIZE = 1024,
    PLAN_NAME_SIZE = 64,
    PLAN_TEXT_SIZE = 16384,
};

enum plan_type {
    PLAN_CREATE =
        1,        /* plan + one descriptor a grant  -> PLAN_CREATED + guest connection + uppers */
    PLAN_FACTS,   /* id                             -> PLAN_FACTS_ARE */
    PLAN_DESTROY, /* id                             -> PLAN_DONE, when nothing is left of it */
    PLAN_STATUS,  /*                                -> PLAN_TEXT, JSON */
    PLAN_STOP,    /* leave, if there is no box      -> PLAN_DONE */
    PLAN_CREATED = 64,
    PLAN_FACTS_ARE,
    PLAN_DONE,
    PLAN_TEXT,
    PLAN_ERROR,
};

enum plan_grant_mode { PLAN_GRANT_RO = 1, PLAN_GRANT_COW, PLAN_GRANT_RW };

struct plan_grant {
    enum plan_grant_mode mode;
    char path[PLAN_PATH_SIZE]; /* absolute, inside the machine */
    bool private;              /* what others own in it stays closed: it is one user's to give */
};

struct plan {
    char id[ID_SIZE];
    char image[PLAN_NAME_SIZE];
    char hostname[PLAN_NAME_SIZE];
    uint64_t mem_bytes;  /* 0: the default */
    uint64_t cpu_milli;  /* thousandths of a cpu; 0: no limit */
    uint64_t pids;       /* 0: the default */
    uint64_t disk_bytes; /* 0: the default */
    uint64_t deadline_ms;
    uint64_t linger; /* 0: the box ends with its creator's connection */
    size_t grant_count;
    struct plan_grant grants[PLAN_MAX_GRANTS]; /* last, so that unused ones need not be copied */
};

/* What the kernel counted for a box: the reasons behind an end. */
struct plan_facts {
    uint64_t oom_kills;
    uint64_t pids_refused;
    uint64_t mem_peak_bytes;
    uint64_t cpu_us;
    uint64_t mem_limit_bytes;
    uint64_t lookups_refused; /* name lookups that had nowhere to go */
    uint64_t drifted;         /* the host's packages changed since its image was made */
};

/* A decoded message; which members are filled follows from type. */
struct plan_message {
    enum plan_type type;
    struct plan plan;        /* CREATE; for FACTS and DESTROY only plan.id */
    struct plan_facts facts; /* FACTS_ARE */
    struct err error;        /* ERROR, with error_code beside it */
    uint64_t error_code;
    char text[PLAN_TEXT_SIZE]; /* TEXT: JSON; CREATED: warnings, one a line, may be empty */
};

/* Makes an ERROR message of an error. */
void plan_error(struct plan_message *m, const struct err *err);

/* Bytes written into buf[PLAN_MAX_BYTES]. */
size_t plan_encode(const struct plan_message *m, char *buf);

int plan_decode(const char *bytes, size_t len, struct plan_message *ret, struct err *err);
