/* The functions that the files of src/service/models share. No other file includes this header. */
#pragma once

#include "service/models/live.h"
#include "service/models/models.h"
#include "service/state.h"

/* accounts.c: creates the accounts of a machine and its owner, if they do not exist. */
int account_ensure_machine(struct service *s, const char *owner, const char *machine,
                           char ret[ACCOUNT_ID_SIZE], struct err *err);
/* accounts.c: writes millionths as a number such as 1.500000. */
void models_put_money(struct jot *j, const char *name, uint64_t micro);
