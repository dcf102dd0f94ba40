/*
 * Programs: WebAssembly text that runs once in a cell.
 *
 * The engine is a separate process (libexec/carrel-cell) that jails itself. A program reads its
 * argument bytes, returns a result and writes a log; it has no files. It has only the capabilities
 * that the request lists, each of which a cell machine of the caller must have. If one of them is
 * call, kv, http or model, it runs as a command of that machine (program_exec.h), else beside all
 * machines. The engine limits fuel and memory, this module limits time.
 */
#pragma once

#include "service/service.h"

enum {
    PROGRAM_TEXT_MAX = 1 << 20,
    PROGRAM_WORDS_MAX = 32, /* arguments of the function */
    PROGRAM_AT_ONCE = 4,    /* more are refused: each uses a CPU */
    PROGRAM_MS = 60000,
    PROGRAM_PAGES_MAX = 4096,
    PROGRAM_PAGES_DEFAULT = 256,
    PROGRAM_ANSWER_MAX = 1 << 20,
    PROGRAM_LOG_MAX = 64 << 10,
};
#define PROGRAM_FUEL_DEFAULT UINT64_C(100000000)
#define PROGRAM_FUEL_MAX UINT64_C(10000000000)

struct program_request {
    const char *text;
    const char *script; /* text is a script in this language: x.py, x.js; NULL: it is a module */
    const char *invoke; /* exported function to call; NULL: _start or main */
    struct texts args;
    const char *input;         /* bytes that the program can read, or NULL */
    struct texts allow;        /* capabilities of carrel.1, which the machine must have */
    const char *machine;       /* a cell machine; NULL: none */
    struct given fuel, memory; /* memory in pages of 64 KiB */
    const char *key;           /* idempotency key of a program in a machine; NULL: none */
};

/* status: enum cell_exit of carrel-cell; json: its result; log: what the program logged. */
struct program_result {
    int status;
    const char *json, *log;
};
typedef void service_program_fn(void *arg, const struct program_result *result,
                                const struct err *err);

struct program;

/* True if one of these capabilities needs a machine, so that the program runs in it. */
bool program_needs_machine(const struct texts *allow);

/* True if the engine is installed. */
bool service_has_programs(const struct service *s);

/* NULL with *err: not started, and `done` is not called. */
struct program *service_program(struct service *s, const struct caller *who,
                                const struct program_request *r, service_program_fn *done,
                                void *arg, struct err *err);
/* Kills the program; `done` is called soon. */
void program_kill(struct program *p);
