/*
 * Interpreters in a machine that keep their variables between pieces of code: what the tool python
 * and the code interpreter of the E2B face share.
 *
 * An interpreter is a coproc that runs a driver (python_driver.py, javascript_driver.js). A request
 * has an id, and so has each line about it. A stream answers with lines that have a member `event`
 * (count, stdout, stderr, result, error) and then with one that has a member `status`; any other
 * request with the latter only. Code of the machine can forge all of them: check each.
 */
#pragma once

#include "tools/coproc.h"

enum { INTERPRETER_LINE_MAX = 8 << 20 };

enum interpreter_language { INTERPRETER_PYTHON, INTERPRETER_JAVASCRIPT };

/* The program that runs it, which the machine must have. */
const char *interpreter_program(enum interpreter_language language);

/* Starts one. Of the options the caller sets machine, name, cwd, user and variables. */
struct coproc *interpreter_new(const struct coproc_place *place, enum interpreter_language language,
                               const struct coproc_options *options,
                               const struct coproc_events *events);

struct interpreter_request {
    const char *id, *code;
    uint64_t most;     /* bytes of output that the answer has; not of a stream */
    bool ping;         /* only asks if it is there; the code is ignored */
    bool stream;       /* only Python has requests that are not streams */
    bool typescript;   /* only of JavaScript */
    bool bash;         /* only of streams of Python: its driver keeps a shell, too */
    const json_t *env; /* variables for this code, texts by their names; NULL: none */
};

/* False: the interpreter does not read its input. */
bool interpreter_ask(struct coproc *c, const struct interpreter_request *r);
/* Interrupts the code that runs. It may catch that, so it may go on. */
bool interpreter_interrupt(struct coproc *c);
