/*
 * The folder of interpreters that scripts of cells run in: scripts/cell-guests fills it.
 */
#pragma once

#include <stddef.h>

#include "base/err.h"

/*
 * Writes the path, from the environment of this process: CARREL_CELL_GUESTS, or else
 * carrel/cell-guests in XDG_DATA_HOME (default ~/.local/share).
 */
int cell_guests_folder(char *ret, size_t size, struct err *err);
