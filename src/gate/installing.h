/*
 * Requests that installing packages needs: reading indexes and packages of a registry. A preset
 * allows only these once a guarded machine is tainted; publishing, search and account requests are
 * refused. Pure.
 */
#pragma once

#include <stdbool.h>

/* Whether the preset is for packages, so that its requests must be inspected. */
bool installing_is(const char *preset);
/* Returns NULL if installing packages needs the request, else the reason of the refusal. */
const char *installing_refuses(const char *preset, const char *method, const char *path);
