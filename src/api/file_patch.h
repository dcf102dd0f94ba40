/*
 * Writes the body of a request into a file of a machine, at an offset.
 *
 * The file is changed in place, piece by piece. If the body ends early, written bytes stay.
 */
#pragma once

#include "api/call.h"
#include "base/wire/msg.h"

/* Reads the body of the call and answers it; path->mode applies if the file is created. */
void file_patch(struct call *c, const struct msg_path *path, uint64_t offset);
