/*
 * Words of other tools, above all Docker, and what they are called here.
 *
 * A word that can mean only one of our commands runs it (`ps`, `inspect`). Any other is answered
 * with the command to type.
 */
#pragma once

#include <stdbool.h>

/* The command that this word stands for; NULL: none. json: as if --json had been given. */
const char *habit_command(const char *word, bool *ret_json);
/* What to type instead of this command; NULL: not known. */
const char *habit_answer(const char *word);
/* What to type instead of this option, with its dashes; NULL: not known. */
const char *habit_option(const char *word);
