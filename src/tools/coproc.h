/*
 * A command in a machine with which the daemon exchanges lines, such as an interpreter.
 *
 * It lives longer than one call of a tool. The machine can send anything: lines and their number
 * are bounded by `line_max` and by the pace of the reader, and the owner of the coproc checks each
 * line. Output counts, and the machine counts as used, only while the coproc listens.
 */
#pragma once

#include <jansson.h>

#include "service/exec/exec.h"

struct coproc;

/* Neither function is called after coproc_free(), which both may call. */
struct coproc_events {
    void *arg;
    /* A line, NUL-terminated, without its end. It may contain any bytes. */
    void (*line)(void *arg, const char *line, size_t n);
    /* The command is over, or could not be started: then with err. Called once. */
    void (*ended)(void *arg, const struct exec_view *view, const struct err *err);
};

/* Where commands run, and for whom. */
struct coproc_place {
    struct loop *loop;
    struct service *service;
    const struct caller *who;
};

/* All of it is copied. */
struct coproc_options {
    const char *machine;
    const char *name;         /* of the command; unique in its machine */
    const char *cwd, *user;   /* NULL: those of the machine's image */
    const char *const *argv;  /* NULL-terminated, at most 7 words; or NULL */
    const char *command;      /* a line for a shell, if argv is NULL */
    const char *const *pairs; /* variables of the environment: names and values; NULL: none */
    size_t pair_count;
    size_t line_max;   /* a longer line ends the command */
    size_t json_flags; /* of jansson, for coproc_json() */
    bool zero_ends;    /* NUL ends a line of its output, not a newline */
};

/* Starts the command. It listens from the start. */
struct coproc *coproc_new(const struct coproc_place *place, const struct coproc_options *o,
                          const struct coproc_events *events);
/* Continues with a command that runs already; takes over the reference. Its earlier output is
 * skipped. */
struct coproc *coproc_adopt(const struct coproc_place *place, struct exec *x,
                            const struct coproc_options *o, const struct coproc_events *events);
/* Running commands of a machine whose names start with a prefix, and the one with this name: a
 * reference, or NULL. */
struct coproc_found {
    struct exec *exec;
    size_t count;
};
int coproc_find(const struct coproc_place *place, const char *machine, const char *prefix,
                const char *name, struct coproc_found *ret, struct err *err);
/* Sends bytes to standard input, as soon as the command takes them. False: too many bytes wait. */
bool coproc_send(struct coproc *c, const char *bytes, size_t n);
/* Call it when the command has answered a request: a step follows, as after a command. */
void coproc_answered(struct coproc *c);
/* Lines come only while it listens. */
void coproc_listen(struct coproc *c, bool on);
/* A pause holds back lines, so that the command waits when it prints more. A line or two may still
 * come. */
void coproc_pause(struct coproc *c, bool on);
/* Kills the command and everything that it started; ended() follows if it listens. */
void coproc_kill(struct coproc *c);
/* Kills the command because of a fault, a text that stays valid: coproc_fault() returns it. */
void coproc_break(struct coproc *c, const char *fault);
/*
 * Reads a line as JSON. A short value takes up to a hundred times its bytes in memory, so a line
 * with more than `values` values ends the command. NULL: that happened, or it is not JSON.
 */
json_t *coproc_json(struct coproc *c, const char *line, size_t n, size_t values);
/* Frees the coproc. The command goes on: kill it first, if it is to end. */
void coproc_free(struct coproc *c);
/* True if the command has an outcome; ended() was or will be called. */
bool coproc_is_over(const struct coproc *c);
/* Copies the last line of standard error, at most size - 1 bytes. */
void coproc_last_error(const struct coproc *c, char *ret, size_t size);
/* Why Carrel killed the command, or NULL. */
const char *coproc_fault(const struct coproc *c);
