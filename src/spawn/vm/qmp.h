/*
 * Talks to the monitor of a QEMU (QMP). The answers come from QEMU, which a vm may have taken over:
 * of an answer only its number is believed, and every wait has an end.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct qmp {
    int sock;
    uint64_t salt;   /* tells our answers from those to an earlier client */
    unsigned number; /* of the last command */
    char line[4096]; /* the last answer; a longer one is cut */
    size_t have;
    bool is_gone; /* QEMU has ended */
};

/* Says hello. Another client may have done it before. */
bool qmp_open(struct qmp *q, int sock, uint64_t until_ms);

/* command: JSON without the last brace. fd: passed with it; -1: none. True: QEMU has done it. */
bool qmp_do(struct qmp *q, const char *command, int fd, uint64_t until_ms);
