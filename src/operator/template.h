/*
 * Calls that were fixed before anything was read: a tool and its arguments, in which some values
 * are holes. Pure.
 *
 *   {"tool": "exec", "arguments": {"argv": ["grep", {"hole": {"type": "string", "maxLength": 40}},
 *    "/data/log"]}}
 *
 * A hole is a whole argument or a whole element of `argv`, never a part of a text, and what fills
 * it has a bounded schema (operator/shape.h). One table lists the arguments that may be holes. Free
 * text fits only where nothing runs it: a program's words and input need an `enum` unless the
 * program only reads, and a file that is written with it may not be followed by a command that
 * could run it.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"

enum { TEMPLATES_MAX = 100 };

/* A list of them, each of a tool that is known. in_order: each is made once, in this order. */
int templates_check(const json_t *list, bool in_order, bool (*is_tool)(void *arg, const char *name),
                    void *arg, struct err *err);
/* `invalid`: what differs, in words for the model. */
int template_match(const json_t *call, const char *tool, const json_t *arguments, struct err *err);
