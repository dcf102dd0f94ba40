/* The failed units of systemd in a machine that runs. */
#pragma once

#include "service/service.h"

struct live;
struct units;

/* failed: their names, or nothing. err: it cannot be told. */
typedef void units_fn(void *arg, const char *failed, const struct err *err);
/* Asks systemd by a command without a step. Calls `done` later, unless it is cancelled. */
struct units *units_list(struct live *l, units_fn *done, void *arg);
/* May be called at any time before `done`. */
void units_cancel(struct units *u);
