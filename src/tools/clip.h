/*
 * Shortens output for a model: the beginning and the end of new output, and how much was left out.
 *
 * Pure, except for reading the log. Output is cut only between UTF-8 characters.
 */
#pragma once

#include <stdint.h>

#include "base/buf.h"
#include "base/wire/outlog.h"

/*
 * Appends the bytes of a stream from *from to its end, at most about max: half from the front, half
 * from the back, with a line in between that says how much is missing. Moves *from to the end.
 * Returns the number of bytes left out.
 */
uint64_t clip_stream(const struct outlog *log, int stream, uint64_t *from, uint64_t max,
                     struct buf *out);

/* Copies the last line of a stream that is not blank, at most size - 1 bytes of it. */
void clip_last_line(const struct outlog *log, int stream, char *ret, size_t size);
