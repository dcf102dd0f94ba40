/*
 * Query parameters that requests about files share: path, user and mode.
 *
 * Wrong parameters are answered here, in the same words for all routes.
 */
#pragma once

#include "api/call.h"
#include "base/wire/msg.h"

/* Reads path and user from the query. -1: the call was answered with an error. */
int file_words(struct call *c, struct msg_path *ret);

/* Parses an octal mode; `what` is "field" or "parameter", for the error. */
int file_mode(const char *text, const char *what, uint32_t *ret, struct err *err);
