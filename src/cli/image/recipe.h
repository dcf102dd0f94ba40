/*
 * Recipes: how an image is built, one instruction per line, from top to bottom. Pure.
 *
 *   base debian:bookworm          the image to start from, or debian:SUITE; comes first
 *   packages curl git             install with apt-get
 *   file app.conf /etc/app.conf   copy a file from the recipe's directory
 *   env NAME=VALUE                for later lines and for commands of the image
 *   net HOST                      allow this host in later lines
 *   run make install              run a shell command as root
 *   user app                      user of the image's commands
 *   workdir /srv/app              their working directory
 *   command app --serve           default command
 *
 * A line that starts with `#` is a comment. A backslash at the end of a line joins the next one.
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
    const char *text;                    /* the text after the verb */
    const char *words[RECIPE_WORDS_MAX]; /* the same, split at blanks; unused for run and env */
    size_t count;
};

struct recipe {
    char *bytes; /* owns the texts of lines */
    char *split; /* owns the words of lines */
    size_t count;
    struct recipe_line *lines;
};

void recipe_done(struct recipe *r);
int recipe_read(const char *bytes, size_t len, struct recipe *ret, struct err *err);
const char *recipe_verb_name(enum recipe_verb verb);
