/*
 * The command line of carrel-cell: one table of options, one table of verbs.
 *
 * Exit codes are part of the interface: scripts and the daemon depend on them.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Exit codes; scripts depend on them. */
enum cell_exit {
    CELL_OK = 0,      /* success, or the run was suspended by --suspend-at */
    CELL_TRAP = 1,    /* the program trapped, or did not catch an exception */
    CELL_INVALID = 2, /* not a valid program, or a wrong call of its function */
    CELL_FUEL = 3,    /* the program used all its fuel (its budget of instructions) */
    CELL_DENIED = 4,  /* the program imports a host function that was not granted */
    CELL_LIMIT = 5,   /* a limit was reached */
    CELL_STATE = 6,   /* a state or log was refused, or a replay differed from the recorded run */
    CELL_USAGE = 64,
    CELL_INTERNAL = 70, /* a bug of Carrel, or a failure of the host */
};

/*
 * Exit codes of a command in a cell machine. There the codes of the program itself come through, so
 * these are the codes that shells use.
 */
enum cell_status {
    CELL_STATUS_FAILED = 125,    /* a limit was reached, or a failure of the host */
    CELL_STATUS_INVALID = 126,   /* not a valid program, or one that needs a missing ability */
    CELL_STATUS_NOT_FOUND = 127, /* the program does not exist */
    CELL_STATUS_TRAP = 134,      /* as a native program that aborts */
    CELL_STATUS_FUEL = 152,      /* as a native program that uses all its processor time */
};

enum {
    CELL_MAX_ARGS = 64,
    CELL_MAX_GRANTS = 16,
    CELL_MAX_ENV = 256,
    CELL_MAX_DIRS = 16,
    CELL_MAX_LISTEN = 4,
    CELL_MAX_PROGRAMS = 16
};

/* A directory of the host, and its name in the program. */
struct cell_dir {
    const char *host, *name;
    bool is_read_only;
};

struct cell_options {
    const char *verb;
    const char *const *files; /* verb wast: any number of files; other verbs: one */
    int file_count;
    const char *invoke;
    const char *args[CELL_MAX_ARGS];
    int arg_count;
    const char *grants[CELL_MAX_GRANTS];
    int grant_count;
    uint32_t allow;                          /* capabilities: bits of base/capability.h */
    const char *programs[CELL_MAX_PROGRAMS]; /* NAME=FILE: programs that carrel.1.call finds */
    int program_count;
    const char *script; /* a name with the ending that chooses the interpreter; NULL: FILE has it */
    const char *guests; /* folder of the interpreters; NULL: that of the environment */
    const char *kv;     /* directory of keys and values; NULL: none, or in a machine its own */
    /* for programs of WASI: arguments, the name of the program first; variables NAME=VALUE */
    const char *const *words;
    int word_count;
    const char *env[CELL_MAX_ENV];
    int env_count;
    struct cell_dir dirs[CELL_MAX_DIRS];
    int dir_count;
    const char *listen[CELL_MAX_LISTEN]; /* ADDRESS:PORT of granted sockets */
    int listen_count;
    const char *input; /* the text that host function carrel.args_read reads */
    uint64_t fuel, memory, suspend_at;
    uint64_t seed; /* of random bytes; verb wast: of the points to suspend at */
    bool has_fuel, has_suspend_at, has_seed;
    const char *out, *resume, *record;
    const char *for_machine; /* `warm`: file of an image for cell machines; NULL: for scripts */
    int spec;                /* version of WebAssembly: 10, 20 or 30 for 1.0, 2.0 or 3.0 */
    bool json;
    bool help;
    bool in_machine;          /* a command of a cell machine: machine_main.c */
    bool is_given;            /* there, the program came on standard input */
    const char *const *given; /* there, the words that this process was started with */
    int given_count;
    const char *machine;     /* its name, for messages; NULL: not known */
    uint64_t fuel_rate;      /* limit of fuel per second; 0: none */
    _Atomic uint64_t *meter; /* gets the fuel used so far; NULL: none */
};

/* Reads argv as given to main. ret->files points to file_room, which has argc entries. ret->json is
   set even after a failure. */
int cell_options_read(int argc, char **argv, const char **file_room, struct cell_options *ret,
                      struct err *err);

/* Returns the exit code in a cell machine (enum cell_status) for one of enum cell_exit. */
int cell_status_of(enum cell_exit code);

/* Prints the usage of a verb; NULL: of all verbs. */
void cell_usage(const char *verb, int fd);
