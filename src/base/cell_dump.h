/* How the daemon makes dumps of interpreters for cell machines (cell/dump.h). */
#pragma once

/* argv[0] of the worker program; then come the name of the interpreter and the daemon's pid. */
#define CELL_DUMP_NAME "carrel-cell-dump"

/* The descriptors that it gets: the program and its warm image to read, the dump to write. */
enum { DUMP_PROGRAM_FD = 3, DUMP_IMAGE_FD = 4, DUMP_OUT_FD = 5 };
