/*
 * How a command of a cell machine is started: the daemon writes the arguments, the guest starts the
 * worker with them, and the worker reads them (cell/machine_main.h).
 */
#pragma once

#define CELL_MACHINE_NAME "carrel-cell-command"

enum {
    CELL_METER_FD = 3,     /* memory of the guest that gets the fuel used so far */
    CELL_WORDS_BEFORE = 4, /* arguments before the program's name */
};
