/* Commands that are worth a restore point before they run, for machines with the policy `risky`. */
#pragma once

#include <stdbool.h>

/* argv of a command, NULL-terminated. For a shell, every word of its script counts. */
bool is_risky(const char *const *argv);
