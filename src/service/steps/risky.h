/*
 * Recognises commands that are worth a restore point before they run (step policy `risky`).
 *
 * A guess by names: it may take a step too many, and it is not a defence.
 */
#pragma once

#include <stdbool.h>

/* argv of a command, NULL-terminated. For a shell, every word of its script counts. */
bool is_risky(const char *const *argv);
