/* What the files of the code interpreter share: contexts, and what is to be done in one. */
#pragma once

#include "api/e2b/code.h"
#include "tools/interpreter.h"

enum {
    CODE_CONTEXTS = 16, /* per machine, with the default ones */
    CODE_WAITING = 32,  /* pieces of code per context */
    CODE_MAX = 1 << 20, /* bytes of a piece of code */
    CODE_ID_SIZE = 32,
};

#define CODE_PREFIX "code."

/* A row of the languages. The default context of a language has its name as id. */
struct code_language {
    const char *name, *short_name;
    enum interpreter_language interpreter;
    bool typescript, bash;
};

enum code_work { CODE_EXECUTE, CODE_START, CODE_RESTART, CODE_REMOVE };

struct code_job {
    struct code_job *next;
    struct code_context *context;
    struct envd_call *call; /* NULL: the client left */
    enum code_work work;
    struct id number; /* each line about this job names it */
    size_t noise;     /* bytes of lines that do not */
    char died[200];   /* how the interpreter ended, in its own words */
};

struct code_context {
    struct code *code;
    struct code_context *next, **at;
    const struct code_language *language;
    char id[CODE_ID_SIZE], machine[ID_SIZE], user[ENVD_NAME_SIZE];
    char cwd[ENVD_PATH_SIZE], home[ENVD_PATH_SIZE];
    struct caller who;
    struct coproc *coproc; /* NULL: no job is running */
    struct code_job *jobs; /* the first one is running */
    struct loop_timer *limit;
};

struct code {
    struct loop *loop;
    struct service *service;
    struct code_context *contexts;
};

/* ---- code.c ---- */

void code_context_free(struct code_context *k);
/* The answer about a context. */
void code_tell_context(struct envd_call *c, const struct code_context *k);

/* ---- code_run.c ---- */

/* Does that in the context, after what was to be done before, and ends the call. */
void code_submit(struct code_context *k, struct envd_call *c, enum code_work work);
