/*
 * The parts that requests about files share: query parameters, and transfers of whole files.
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

/* Answers with the file, whole or by Range, from machine c->params[0]. The path must stay valid. */
void file_download(struct call *c, const struct msg_path *m);
/* Reads the body into a file of machine c->params[0]. argv: arguments of the guest's tool `put`. */
void file_upload(struct call *c, const char *const *argv, const char *user);
