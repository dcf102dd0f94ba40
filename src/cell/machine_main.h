/*
 * A command of a cell machine: the guest runs carrel-cell under the name CELL_MACHINE_NAME, with
 * the limits and the words of the command as arguments:
 *
 *   NAME FUEL FUEL_PER_SECOND PAGES PROGRAM WORD...
 *
 * or under CELL_ALLOWED_NAME, with the capabilities of the program ("log,args", or empty):
 *
 *   NAME FUEL FUEL_PER_SECOND PAGES CAPABILITIES MACHINE PROGRAM WORD...
 *
 * or under CELL_MODULE_NAME, with the program on standard input (base/cell_command.h). It has no
 * files, and the result is JSON, as that of `carrel cell run --json`:
 *
 *   NAME FUEL FUEL_PER_SECOND PAGES CAPABILITIES MACHINE program [--invoke FUNCTION ARG...]
 *
 * Descriptor CELL_METER_FD is memory that the guest reads: the fuel used so far, in 8 bytes.
 */
#pragma once

#include <stdbool.h>

/* True if the program was started under the name of a command of a cell machine. */
bool is_machine_command(const char *name);

/* Runs the program and returns its exit code, or one of enum cell_status. */
int machine_main(int argc, char **argv, char **env);
