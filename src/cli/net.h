/*
 * The options `--net` and `--models` of commands that create machines.
 *
 * Rules are only split here: the daemon checks them.
 */
#pragma once

#include "base/err.h"
#include "base/jot.h"
#include "cli/options.h"

#define NET_OPTION_HELP "allow connections to HOST, tcp://HOST:PORT ... (see carrel net --help)"

#define MODELS_OPTION_HELP "allow models at http://models.carrel, within these limits"

/* The member "net" of a machine's request; nothing for an empty list or `none`. */
int net_put(struct jot *j, const struct option_list *list, struct err *err);
/* The member "models", of any | tokens=N[,money=X]; nothing for NULL. */
int net_put_models(struct jot *j, const char *text, struct err *err);
