/*
 * What installing packages needs of a registry: reading its lists and its packages. That is all
 * that a preset allows once a guarded machine is tainted; publishing, searching and everything
 * about accounts is not. Pure.
 */
#pragma once

#include <stdbool.h>

/* The preset is one of packages, whose requests have to be seen. */
bool installing_is(const char *preset);
/* NULL: it is needed. Else why it is refused. */
const char *installing_refuses(const char *preset, const char *method, const char *path);
