/*
 * Carrel's own text beside a command on a terminal: a notice that something waits for the owner,
 * and questions on a screen of their own after ASIDE_KEY.
 *
 * The command draws on the same terminal and is untrusted. So the notice is fixed text, the screen
 * is put into an ordinary state before a question (text/modes.h), and input that was on its way to
 * the command does not answer it.
 */
#pragma once

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <termios.h>

#include "cli/text/modes.h"

/* Ctrl and this character; it is not sent to the command. */
enum { ASIDE_KEY = '\\' };
#define ASIDE_KEY_NAME "Ctrl-\\"

/* Reads a line of the owner's answer; NULL: the input ended. The caller frees it. */
typedef char *aside_read_fn(void *arg);

struct aside {
    /* The caller sets these. fd: readable when something may wait; -1: it is not known. */
    int (*fd)(void *arg);
    /* Returns how many items wait. Called when fd is readable, and from time to time. */
    size_t (*count)(void *arg);
    /* Shows the items and asks about them. */
    void (*ask)(void *arg, aside_read_fn *read, void *read_arg);
    void *arg;

    struct modes modes;
    size_t waiting;
    bool is_wanted; /* the key was pressed */
    uint64_t wanted_ms, next_ms;
};

/* The terminal of a session, while questions are asked on it. */
struct aside_terminal {
    const struct termios *saved; /* as it was before the session */
    int signals;                 /* signalfd of the session */
    /* Handles a signal; true: the session has ended. */
    bool (*signalled)(void *arg);
    void *arg;
};

/* Call it with output that was written to the terminal. */
void aside_output(struct aside *a, const char *bytes, size_t n);
/* True if input is the key alone. A key within other input, such as a paste, is not one. */
bool aside_typed(struct aside *a, const char *bytes, size_t n);
/* Returns for how many milliseconds poll() may wait; -1: without a limit. */
int aside_wait_ms(struct aside *a);
/* Counts the items, if it is time or fd is readable, and writes the notice. True: nothing waits any
 * more, and the command must draw its screen again, without the notice. */
bool aside_turn(struct aside *a, bool readable);
/* True if questions are to be asked now. */
bool aside_is_due(const struct aside *a);
/* Asks them. True: the command must draw its screen again. */
bool aside_ask(struct aside *a, const struct aside_terminal *t);
/* Gives the terminal back to the shell, while the command goes on. */
void aside_leave(const struct aside *a);
