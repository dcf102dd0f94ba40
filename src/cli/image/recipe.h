/*
 * Parses recipes, which describe how an image is built: one instruction per line. Pure.
 *
 *   base debian:bookworm          the image to start from, or debian:SUITE; must be first
 *   packages curl git             install with apt-get from the image's sources
 *   file app.conf /etc/app.conf   copy a file from the recipe's directory
 *   env NAME=VALUE                set a variable for later lines and for commands of the image
 *   net HOST                      allow this host in later lines
 *   run make install              run a shell command as root
 *   user app                      set the user of the image's commands
 *   workdir /srv/app              set their working directory
 *   command app --serve           set the default command
 *
 * A line that starts with `#` is a comment. A backslash at the end of a line joins the next one.
 */
#pragma once

#include <stddef.h>

#include "base/arena.h"
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
    /* only in recipes that were translated from a Dockerfile (dockerfile.h) */
    RECIPE_COPY, /* words: sources and destination */
    RECIPE_EXEC, /* words: program and arguments, run as the user and in the directory below */
    RECIPE_ARG,  /* text: NAME=VALUE, for later lines only */
    RECIPE_DIR,  /* the directory of later lines and of the image's commands; created */
    RECIPE_AS,   /* the user of later lines and of the image's commands */
    RECIPE_ENTRYPOINT, /* words, as those of a command */
};

struct recipe_line {
    enum recipe_verb verb;
    unsigned number;                     /* line number in the file, from 1 */
    const char *text;                    /* the text after the verb */
    const char *words[RECIPE_WORDS_MAX]; /* words of the text; unused for run and env */
    size_t count;
    const char *shown;         /* how the line is shown; NULL: verb and text */
    const char *chown, *chmod; /* of a copy; NULL: root, and the modes of the files */
};

struct recipe {
    const char *kind;   /* "recipe" or "Dockerfile", for errors */
    struct arena arena; /* texts and words of a Dockerfile */
    char *bytes;        /* the texts of lines point into it */
    char *split;        /* the words of lines point into it */
    size_t count;
    struct recipe_line *lines;
};

void recipe_done(struct recipe *r);
int recipe_read(const char *bytes, size_t len, struct recipe *ret, struct err *err);
const char *recipe_verb_name(enum recipe_verb verb);
