/* The functions that the files of src/service/models share. No other file includes this header. */
#pragma once

#include "service/models/live.h"
#include "service/models/models.h"
#include "service/state.h"

/* accounts.c: makes the account of a machine, and that of its owner, if there is none. */
int account_ensure_machine(struct service *s, const char *owner, const char *machine,
                           char ret[ACCOUNT_ID_SIZE], struct err *err);
