/*
 * Runs a command in the machine for a tool's own work, to its end.
 *
 * The client does not see it as a session. It is limited in output and ends with the call.
 */
#pragma once

#include "service/exec/exec.h"
#include "tools/tool.h"

/* Called at the end. The exec belongs to the helper and is valid during the call, which must end
 * the act. */
typedef void helper_fn(struct act *a, struct exec *x, const struct exec_view *view);

enum { HELPER_WORDS = 24 };

/* Copies up to HELPER_WORDS arguments and the numbers of the request, nothing else. The command is
 * killed when the call is cancelled or after it has printed max bytes. */
void helper_run(struct act *a, const struct exec_request *r, uint64_t max, helper_fn *ended);
