/*
 * Machines of the kind cell: a box whose commands are WebAssembly programs of its image. Everything
 * that a cell machine cannot do is refused here with `unsupported`; docs/reference/cells.md has the
 * same table.
 */
#pragma once

#include "service/request.h"
#include "service/state.h"

bool live_is_cell(const struct live *l);
/* Refuses what the kind of machine in a request does not support. */
int cell_check_request(const struct machine_request *r, struct err *err);
/* Sets limits, capabilities and defaults of a new cell machine; leaves other rows alone. */
int cell_fill_row(const struct machine_request *r, struct machine_row *row, struct err *err);
/* Writes the capabilities of a request into the row, each once and in one order. */
int cell_allow(const char *allow, struct machine_row *row, struct err *err);
/* Refuses an operation on a cell machine, such as "terminals". Other machines: 0. */
int cell_refuse(const struct live *l, const char *what, struct err *err);
