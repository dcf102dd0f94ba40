/* CRIU, which writes processes down and brings them back: is it there, and does it run here? */
#pragma once

#include "base/err.h"

/* 0: its own check passes. `unsupported` says what it says. Takes up to a few seconds. */
int criu_check(struct err *err);
