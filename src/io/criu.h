/* Checks whether CRIU, which saves and restores processes, is installed and works on this host. */
#pragma once

#include "base/err.h"

/* 0: `criu check` passes. `unsupported` holds its message. Takes up to a few seconds. */
int criu_check(struct err *err);
