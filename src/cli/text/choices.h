/*
 * Choices: the allowed words of an option or a subcommand, written "one|two|three" in its row.
 *
 * Pure. An error names all of them, so that nobody has to look them up.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* True if the value of an option is a list of words, not a name such as SIZE. */
bool choices_are(const char *value);
bool choices_have(const char *choices, const char *word);
/* Writes "one, two or three". */
void choices_say(const char *choices, char *to, size_t size);
