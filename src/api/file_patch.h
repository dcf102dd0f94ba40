/* Writing into a file at an offset. */
#pragma once

#include "api/call.h"
#include "base/wire/msg.h"

/* Takes the body of the call and answers it; path->mode is for a file that is new. */
void file_patch(struct call *c, const struct msg_path *path, uint64_t offset);
