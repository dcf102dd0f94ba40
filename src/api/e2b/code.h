/*
 * The code interpreter of the E2B face: contexts that keep the variables of Python or JavaScript,
 * and the code that runs in them.
 *
 * A context is a command of its machine, so it goes on when the daemon is restarted, and ends with
 * the processes of the machine. One piece of code runs in a context at a time; others wait.
 */
#pragma once

#include "api/e2b/envd_inner.h"

struct code;

struct code *code_new(struct loop *loop, struct service *service);
void code_free(struct code *code); /* after the last call has ended */

struct code *envd_code(struct envd *e);

/* The requests at the port of the code interpreter. NULL: the path does not exist. */
const struct envd_method *code_method(struct http_text method, struct http_text path);
