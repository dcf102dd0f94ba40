/* The OpenAPI document of the whole API, made from the tables of routes and schemas. It depends on
 * the build only, not on a running daemon. */
#pragma once

#include "base/jot.h"

void openapi_write(struct jot *j);
