/* Words that requests about files have in common. */
#pragma once

#include "api/call.h"
#include "base/wire/msg.h"

/* Path and user of a request whose words are in the query; -1: answered already. */
int file_words(struct call *c, struct msg_path *ret);

/* An octal mode; what: "field" or "parameter", for the message. */
int file_mode(const char *text, const char *what, uint32_t *ret, struct err *err);
