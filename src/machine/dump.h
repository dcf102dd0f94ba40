/*
 * Makes the dump of an interpreter of a cell image: runs the cell worker, which parses the program
 * in its jail (cell/dump.h).
 */
#pragma once

#include "base/err.h"

/*
 * Blocks until the worker has ended, which is killed if `stop` becomes readable. root: files of the
 * image, of which bin/PROGRAM.wasm and bin/PROGRAM.warm are read. The whole dump becomes the file
 * `name` in `dir`, or nothing does.
 */
int dump_run(const char *libexec, int root, const char *program, int dir, const char *name,
             int stop, struct err *err);
