/*
 * Shows long lists in the user's pager: CARREL_PAGER, PAGER, or less if it is installed.
 *
 * A pager is used only if standard output is a terminal. An empty variable, or `cat`, means no
 * pager. Output for programs (--json) never goes through a pager.
 */
#pragma once

/* Starts the pager: later output goes to it, and the program waits for it at exit. */
void pager_start(void);
