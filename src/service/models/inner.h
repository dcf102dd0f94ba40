/* The functions that the files of src/service/models share. No other file includes this header. */
#pragma once

#include "service/models/live.h"
#include "service/models/models.h"
#include "service/state.h"

/* accounts.c: creates the accounts of a machine and its owner, if they do not exist. */
int account_ensure_machine(struct service *s, const char *owner, const char *machine,
                           char ret[ACCOUNT_ID_SIZE], struct err *err);
/* logins.c: the callback `login` of struct gateway_config; arg is the service. */
int models_login(void *arg, const char *account, const char *vendor, char owner[STORE_NAME_SIZE],
                 struct err *err);
/* models.c */
struct logins *models_logins(const struct service *s);
/* accounts.c: writes millionths as a number such as 1.500000. */
void models_put_money(struct jot *j, const char *name, uint64_t micro);
