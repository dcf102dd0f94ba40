/*
 * How a command of a cell machine is started: the daemon writes the arguments, the guest starts the
 * worker with them, and the worker reads them (cell/machine_main.h).
 */
#pragma once

#include <stdint.h>

/*
 * The second name is for guests with MSG_FEATURE_ALLOW: two more words come before the program. The
 * third is for guests with MSG_FEATURE_MODULE: the words are the same, and the program comes on
 * standard input.
 */
#define CELL_MACHINE_NAME "carrel-cell-command"
#define CELL_ALLOWED_NAME "carrel-cell-allowed"
#define CELL_MODULE_NAME "carrel-cell-module"
/* For guests with MSG_FEATURE_PAUSE: continues a stored program, which has the words of its start.
 */
#define CELL_RESUME_NAME "carrel-cell-resume"

/* A program on standard input: the bytes of its arguments or "-", a newline, arguments, program. */
#define CELL_NO_INPUT "-"

enum {
    CELL_ASKS_FD = 5,       /* socket to the daemon, if MSG_EXEC_ASKS was set */
    CELL_DUMP_FD = 6,       /* a dump (cell/dump.h), if MSG_EXEC_DUMP was set */
    CELL_CONTROL_FD = 7,    /* socket to the guest (struct cell_control) */
    CELL_STATE_FD = 8,      /* a stored program (cell/pause.h), if MSG_EXEC_STATE was set */
    CELL_METER_FD = 3,      /* memory of the guest that gets the fuel used so far */
    CELL_WORDS_BEFORE = 4,  /* arguments before the program's name */
    CELL_ALLOWED_BEFORE = 6 /* the same under CELL_ALLOWED_NAME */
};

/*
 * The socket of a command to the daemon. The worker sends one request, a head and its bytes, and
 * then waits for the answer: a head and its bytes. Numbers are those of the host.
 */
enum cell_ask { CELL_ASK_HTTP = 1, CELL_ASK_MODEL };

struct cell_ask_head {
    uint32_t kind; /* enum cell_ask */
    uint32_t len;
};

struct cell_answer_head {
    int32_t code; /* len, or a code below 0: then the bytes are the reason */
    uint32_t len;
};

/* Results of functions of carrel.1 that are not lengths. docs/reference/capabilities.md has them.
 */
enum cell_code {
    CELL_CODE_INVALID = -1,
    CELL_CODE_NOT_FOUND = -2,
    CELL_CODE_DENIED = -3,
    CELL_CODE_LIMIT = -4,
    CELL_CODE_FAILED = -5,
};

/*
 * Packets of the socket between the guest and the worker of a command. The guest asks for a pause,
 * with the descriptor of a file. The worker stops the program, writes it to the file, answers, and
 * waits. It goes on when it is told to; a stored program also waits for that when it starts.
 */
enum cell_control_kind {
    CELL_PAUSE = 1, /* to the worker: store the program; `max`: most bytes of the file */
    CELL_GO_ON,     /* to the worker: the program runs on; forget the file */
    CELL_STORED,    /* to the guest: the file is complete, and the program waits */
    CELL_CANNOT,    /* to the guest: the program cannot be stored, and runs on */
};

struct cell_control {
    uint32_t kind; /* enum cell_control_kind */
    uint32_t unused;
    uint64_t max;
};
