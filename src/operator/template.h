/*
 * Fixed calls: a tool and its arguments, in which some values are holes (filled in later). The
 * model fixes the calls before it reads anything. Pure.
 *
 *   {"tool": "exec", "arguments": {"argv": ["grep", {"hole": {"type": "string", "maxLength": 40}},
 *    "/data/log"]}}
 *
 * A hole is a whole argument or a whole element of `argv`, never a part of a string, and its value
 * has a bounded schema (operator/shape.h). One table lists the arguments that may be holes. Free
 * text is allowed only where no program runs it: arguments and input of a program need an `enum`
 * unless the program only reads. A file written with free text must not be followed by a command
 * that could run it.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"

enum { TEMPLATES_MAX = 100 };

/* Checks a list of calls to known tools. in_order: each call is made once, in this order. */
int templates_check(const json_t *list, bool in_order, bool (*is_tool)(void *arg, const char *name),
                    void *arg, struct err *err);
/* Compares a tool call with a fixed call. On `invalid`, err tells the model the difference. */
int template_match(const json_t *call, const char *tool, const json_t *arguments, struct err *err);
