/* A command that a tool runs for itself, to its end: how it is done is nobody's business. */
#pragma once

#include "service/exec/exec.h"
#include "tools/tool.h"

/* It has ended; the exec is the helper's, and alive during the call, which ends the act. */
typedef void helper_fn(struct act *a, struct exec *x, const struct exec_view *view);

enum { HELPER_WORDS = 24 };

/* The words are copied, and up to HELPER_WORDS; nothing else of the request but its numbers is.
 * Killed when the call is cancelled, or once it has printed more than max bytes. */
void helper_run(struct act *a, const struct exec_request *r, uint64_t max, helper_fn *ended);
