/*
 * Programs of a cell machine that are stored in a file while their machine is paused, and the
 * socket over which the guest asks for that (struct cell_control).
 *
 * The child in the jail notices between two slices of fuel that a pause is wanted. It sends itself
 * as a file and waits (link_stay()), so nothing is lost if the pause is given up. The file has all
 * that another worker needs: words, variables, module, state, and input that was not read yet. It
 * does not depend on the CPU, and is not trusted. Format: docs/internals/cell-state.md.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "cell/log.h"

/* The parent's side. */
struct pauser {
    int control; /* socket to the guest; -1: none */
    /* shared with the child: 1 if a pause is wanted */
    _Atomic uint32_t *wanted;
    int file; /* of the pause in progress; -1: none */
    uint64_t written, max;
    bool held;         /* a stored program was not told to go on yet */
    bool failed;       /* the file cannot be written */
    bool cannot;       /* this program is never stored */
    struct buf unread; /* input that was taken out of its pipe, and that the program did not read */
    bool input_ended;  /* the end of the input follows `unread` */
};

/* Takes the socket of this process, if it has one. */
void pauser_open(struct pauser *p);
/* Call it before a stored program starts: it waits in STAY_HELD until it is told to go on. */
void pauser_hold(struct pauser *p);
void pauser_close(struct pauser *p);
/* Reads one packet. in_fd: standard input, whose unread bytes belong to the program; -1: none. */
void pauser_hear(struct pauser *p, int in_fd);
/* For jail.take_state: adds a part of the child to the file. */
int pauser_take(void *pauser, const void *bytes, size_t len);
/*
 * The child waits: it has sent all parts, or has failed, or was just started. Returns when it may
 * go on.
 */
enum pause_stay { STAY_STORED = 1, STAY_FAILED, STAY_HELD };
void pauser_stay(struct pauser *p, uint32_t why, int in_fd);

/* ---- the file ---- */

enum { PAUSE_HEAD = 64, PAUSE_TAIL = 16, PAUSE_WORDS_MAX = 65536, PAUSE_INPUT_MAX = 1 << 20 };

/* What a file begins with, and then its parts, in this order. */
struct pause_parts {
    bool is_warm;
    uint64_t fuel_before;
    uint32_t argc, envc;
    struct slice text; /* argc words and envc variables, each with a NUL */
    struct slice module, request, state, input;
};

/* Writes the head for these parts; state and input need not be known. */
void pause_head(const struct pause_parts *p, uint8_t head[PAUSE_HEAD]);
/* Writes the end of a file. */
void pause_tail(uint64_t input, uint8_t tail[PAUSE_TAIL]);
/* Finds the parts of a file. All sizes and the number of words are checked, nothing else. */
int pause_split(struct slice file, struct pause_parts *ret, struct err *err);
