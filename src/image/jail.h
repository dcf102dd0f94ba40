/*
 * Where hostile archives are read: a process whose root is the one directory it works on, with five
 * capabilities over files, and a list of system calls that holds neither networks nor processes.
 */
#pragma once

#include "base/err.h"

/* dir becomes "/". Only descriptors up to `last` stay open. */
int jail_enter(int dir, int last, struct err *err);
