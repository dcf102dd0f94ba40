/* Writes into a file in place, at an offset. */
#pragma once

#include "api/call.h"
#include "base/wire/msg.h"

/* Reads the body of the call and answers it; path->mode applies if the file is created. */
void file_patch(struct call *c, const struct msg_path *path, uint64_t offset);
