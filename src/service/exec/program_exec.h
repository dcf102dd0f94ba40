/*
 * A program (programs.h) that runs in a cell machine, because its capabilities need the machine:
 * call, kv, http and model.
 *
 * It is a command of the machine, so steps, logs and limits treat it as one. The worker reads the
 * program from standard input and prints its result as JSON. Both are untrusted.
 */
#pragma once

#include "service/exec/programs.h"

struct program_exec;

/* The texts are valid during the call. err: there is no result, and why. */
typedef void program_exec_fn(void *arg, const struct program_result *result, const struct err *err);

/* Never calls `done` before it returns. The texts of *r must stay valid until `done`. */
struct program_exec *program_exec_start(struct service *s, const struct caller *who,
                                        const struct program_request *r,
                                        const struct exec_module *module, program_exec_fn *done,
                                        void *arg);
/* Kills the command; `done` is called soon. */
void program_exec_kill(struct program_exec *p);
