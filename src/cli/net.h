/*
 * The options `--net` and `--models` of commands that create machines.
 *
 * This file only splits rules into their parts. The daemon checks them.
 */
#pragma once

#include "base/err.h"
#include "base/jot.h"
#include "cli/options.h"

#define NET_OPTION_HELP \
    "allow connections to TARGET: HOST, tcp://HOST:PORT ... (see carrel net --help)"

#define MODELS_OPTION_HELP \
    "let the machine call models at http://models.carrel, within limits (any: no limit)"

/* Writes the member "net" of a request; nothing for an empty list or `none`. */
int net_put(struct jot *j, const struct option_list *list, struct err *err);
/* Writes the member "models" from any | tokens=N[,money=X]; nothing for NULL. */
int net_put_models(struct jot *j, const char *text, struct err *err);
