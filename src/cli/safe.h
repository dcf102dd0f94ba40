/*
 * Text from elsewhere on somebody's terminal: names and contents of files that others wrote.
 *
 * Control characters could repaint what was shown, and characters that turn the direction of
 * writing could swap it: both are shown as \xNN, and so is what is no UTF-8.
 */
#pragma once

#include <stddef.h>
#include <stdio.h>

/* A name is one line whatever it holds; a text keeps its line breaks and tabs. */
void safe_name(FILE *to, const char *name);
char *safe_copy(const char *name); /* the same as a text of its own, to be freed */
void safe_text(FILE *to, const char *text, size_t len);
