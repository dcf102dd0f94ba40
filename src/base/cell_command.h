/*
 * How a command of a cell machine is started: the daemon writes the arguments, the guest starts the
 * worker with them, and the worker reads them (cell/machine_main.h).
 */
#pragma once

/* The second name is for guests with MSG_FEATURE_ALLOW: two more words come before the program. */
#define CELL_MACHINE_NAME "carrel-cell-command"
#define CELL_ALLOWED_NAME "carrel-cell-allowed"

enum {
    CELL_METER_FD = 3,      /* memory of the guest that gets the fuel used so far */
    CELL_WORDS_BEFORE = 4,  /* arguments before the program's name */
    CELL_ALLOWED_BEFORE = 6 /* the same under CELL_ALLOWED_NAME */
};
