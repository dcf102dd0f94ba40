/*
 * Recipes: how an image is built, one line a step, read top to bottom. Pure.
 *
 *   base debian:bookworm         an image, or debian:SUITE from the distribution's mirror; comes
 * first packages curl git            installed with apt-get file app.conf /etc/app.conf  copied
 * from beside the recipe env NAME=VALUE               of later lines, and of commands net HOST may
 * be reached by later lines run make install             a line for the shell, as root user app
 * whom commands run as workdir /srv/app             where they start command app --serve kept for
 * others
 *
 * `#` begins a comment where a line begins. A backslash at the end of a line joins the next one.
 */
#pragma once

#include <stddef.h>

#include "base/err.h"

enum {
    RECIPE_BYTES_MAX = 256 << 10,
    RECIPE_LINES_MAX = 256,
    RECIPE_WORDS_MAX = 128,
};

enum recipe_verb {
    RECIPE_BASE = 1,
    RECIPE_PACKAGES,
    RECIPE_FILE,
    RECIPE_ENV,
    RECIPE_NET,
    RECIPE_RUN,
    RECIPE_USER,
    RECIPE_WORKDIR,
    RECIPE_COMMAND,
};

struct recipe_line {
    enum recipe_verb verb;
    unsigned number;                     /* in the file, from 1 */
    const char *text;                    /* all behind the verb */
    const char *words[RECIPE_WORDS_MAX]; /* the same, by blanks; not for run and env */
    size_t count;
};

struct recipe {
    char *bytes; /* the texts above lie here */
    char *split; /* and the words here */
    size_t count;
    struct recipe_line *lines;
};

void recipe_done(struct recipe *r);
int recipe_read(const char *bytes, size_t len, struct recipe *ret, struct err *err);
const char *recipe_verb_name(enum recipe_verb verb);
