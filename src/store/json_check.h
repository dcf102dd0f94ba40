/* Is this text one JSON value (RFC 8259)? Nothing is kept, nothing allocated, nesting is bounded.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

bool json_check(const char *text, size_t len);
