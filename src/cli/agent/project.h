/*
 * .carrel/agent.conf: what the agents of a directory need.
 *
 * The file may come from somebody else. project_parse() only reads; nothing of it takes effect
 * before the owner accepted its hash (accept.c). It has no keys for directories, volumes, secrets
 * or exposed ports, so it can never grant them.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define PROJECT_PATH ".carrel/agent.conf"

enum {
    PROJECT_FILE_MAX = 32 << 10,
    PROJECT_LIST_MAX = 32,
    PROJECT_WORD_SIZE = 128,
    PROJECT_TEXT_SIZE = 2048,
};

struct project_pair {
    char name[64], text[PROJECT_TEXT_SIZE];
};

struct project {
    char setup[PROJECT_WORD_SIZE]; /* path of a script in the directory; empty: none */
    char packages[PROJECT_LIST_MAX][PROJECT_WORD_SIZE]; /* MANAGER:NAME */
    char allow[PROJECT_LIST_MAX][PROJECT_WORD_SIZE];    /* targets, as --net takes them */
    struct project_pair env[PROJECT_LIST_MAX], prompts[PROJECT_LIST_MAX];
    char notes[PROJECT_LIST_MAX][PROJECT_TEXT_SIZE];
    size_t package_count, allow_count, env_count, prompt_count, note_count;
    uint64_t tokens; /* 0: not given */
    char money[32];  /* empty: not given */
};

/* A package manager. Its preset of network rules has the same name. */
struct project_manager {
    const char *name;
    const char *install; /* shell words; the names of packages follow */
    bool as_root;        /* for the whole machine */
};
extern const struct project_manager project_managers[]; /* ended by a row without name */

/* Refuses text that a person cannot read as it is: the owner judges the file by what is shown. */
int project_check(const char *text, size_t len, struct err *err);
/* Reads the file. Errors name the line. *ret is unchanged on failure. */
int project_parse(const char *text, size_t len, struct project *ret, struct err *err);
