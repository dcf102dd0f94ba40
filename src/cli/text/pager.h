/*
 * Long lists through the user's pager: CARREL_PAGER, PAGER, or less if it is there.
 *
 * Only if standard output is a terminal. An empty variable, or `cat`, means no pager. Output for
 * programs (--json) never goes through it.
 */
#pragma once

/* What is printed from now on goes to the pager; the program's end waits for it. */
void pager_start(void);
