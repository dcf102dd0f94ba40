/*
 * Attacks on a box, one row each, run from inside a real one.
 *
 * A row names what is tried and which refusals are right. The very same row is run where the
 * defence is missing (outside, or in a box with that one defence left out): there it must get
 * through, otherwise any error would pass for a refusal.
 */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

/* What became of an attack: 0 it got through, else an errno or one of these. */
enum {
    ATTACK_KILLED = 1000, /* + signal number */
    ATTACK_TIMEOUT = 2000,
};

struct attack {
    int group; /* of the corpus table */
    const char *name;
    int (*run)(const struct attack *a);
    const char *path; /* what `run` works on */
    long n[6];
    int refusals[6]; /* right answers inside; 0 ends the list */
    int reached[4];  /* besides 0, outcomes of the control that show it got through */
    const char
        *control; /* NULL: outside; "outside CAPABILITY"; "weak DEFENCE,..."; "none: why not" */
    char who;     /* 'r' only root tries it, 'u' only user, else both */
};

struct attack_table {
    const struct attack *rows;
    size_t count;
};

#define ATTACK_TABLE(rows) \
    { rows, sizeof(rows) / sizeof(*(rows)) }

extern const struct attack_table proc_attacks, call_attacks, file_attacks, net_attacks,
    power_attacks, trace_attacks;

/* A key=value argument of the program, or NULL: facts about the host that the attacker is given. */
const char *attack_fact(const char *key);

/* Steps that several tables use; each returns an outcome. */
int attack_read(const struct attack *a); /* path: at least one byte */
int attack_write(
    const struct attack *a); /* path: open for writing; n[0]: and write its own text back */
int attack_list(const struct attack *a);    /* path: a directory with something in it */
int attack_syscall(const struct attack *a); /* n[0] is its number; n[1] to n[5] are its arguments */

/* An errno after a call that returned `r`. */
static inline int attack_outcome(long r) {
    return r < 0 ? errno : 0;
}
