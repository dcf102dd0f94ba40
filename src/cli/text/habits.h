/*
 * Commands and options of other tools, above all Docker, and the names they have in Carrel.
 *
 * A word that can mean only one command of Carrel runs it (`ps`, `inspect`). Any other word is
 * answered with the command to type.
 */
#pragma once

#include <stdbool.h>

/* Returns the command that this word stands for; NULL: none. *ret_json: as if --json was given. */
const char *habit_command(const char *word, bool *ret_json);
/* Returns what to type instead of this command; NULL: not known. */
const char *habit_answer(const char *word);
/* Returns what to type instead of this option, given with its dashes; NULL: not known. */
const char *habit_option(const char *word);
