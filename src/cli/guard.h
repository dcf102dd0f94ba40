/*
 * Lets signals end the client while it waits for the daemon.
 *
 * In a session signals are blocked, and its loop forwards them to the command. While the loop waits
 * for an answer it cannot: a guard then takes the signals. The first one leaves GUARD_FIRST_MS for
 * the answer. A second one leaves only GUARD_SECOND_MS: a machine that runs answers earlier, and
 * then gets both. A third one ends the client at once.
 */
#pragma once

#include <stdbool.h>
#include <termios.h>

enum { GUARD_FIRST_MS = 5000, GUARD_SECOND_MS = 1000 };

/*
 * Takes signals from now on; `first` is the one that the client is handling, or 0. If a signal ends
 * the client, it restores the terminal (NULL: there is none), prints `fate`, and exits with 128 +
 * the number of the signal.
 */
void guard_begin(int first, const char *fate, const struct termios *terminal);

/* Blocks signals again. Those that came meanwhile are pending then. */
void guard_end(void);
