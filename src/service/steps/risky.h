/* Commands that are worth a restore point before they run, for machines with the policy `risky`. */
#pragma once

#include <stdbool.h>

/* A command word by word; of a shell's every word of its script counts. NULL-terminated. */
bool is_risky(const char *const *argv);
