/*
 * Runs a command in the machine for a tool's own work, to its end.
 *
 * The client does not see the command as a session. Its output is limited, and it ends with the
 * call of the tool.
 */
#pragma once

#include "service/exec/exec.h"
#include "tools/tool.h"

/* Called when the command has ended; must end the act (the call of the tool). The exec belongs to
 * the helper and is valid only during this function. */
typedef void helper_fn(struct act *a, struct exec *x, const struct exec_view *view);

enum { HELPER_WORDS = 24 };

/* Copies up to HELPER_WORDS arguments and the numbers of the request, nothing else. The command is
 * killed when the call is cancelled or after it has printed max bytes. */
void helper_run(struct act *a, const struct exec_request *r, uint64_t max, helper_fn *ended);
