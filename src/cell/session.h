/*
 * One program in the worker process: it is loaded, linked to its granted host functions, and run to
 * its end.
 *
 * All functions here run inside the jail (cell/jail.h).
 */
#pragma once

#include "base/buf.h"
#include "cell/jail.h"
#include "cell/log.h"
#include "cell/options.h"
#include "cell/wasi/wasi.h"
#include "wasm/text/wat.h"
#include "wasm/wasm.h"

struct pause_parts;

/* Another program that a program may call by its name. */
struct named_program {
    const char *name;
    struct slice bytes;
};

/* The files that the parent process read, and the options. */
struct job {
    const struct cell_options *options;
    const char *file; /* name of the program's file, for messages */
    struct slice bytes, state;
    bool is_script;             /* the program is an interpreter that runs a script */
    struct slice warm, request; /* state of a warm image and its request; empty: start cold */
    bool is_untouched;          /* the image or dump has made no call of WASI (cell/warm.h) */
    const struct dump *dump; /* a dump of an interpreter instead of `bytes` and `warm`; or NULL */
    bool is_terminal[2];     /* standard input, standard output */
    /* A stored program of a machine (cell/pause.h), with `state` and `request`; NULL: none. */
    const struct pause_parts *stored;
    const struct named_program *programs; /* those of --program */
    int program_count;
};

/* How far a run is. */
enum run_phase {
    RUN_CALLS,       /* the function was called */
    RUN_BEGINS,      /* memories and tables are initialized, and the start function runs */
    RUN_INITIALIZES, /* _initialize of a library runs */
};

enum stop_at {
    STOP_NOWHERE,
    STOP_AT_INPUT, /* before the first read of standard input */
    STOP_AT_CALL,  /* before the first call of WASI */
};

/* Sizes of the parts of a dump, in bytes (cell/dump.h). */
struct dump_sizes {
    uint64_t wasi, arena, memory;
    uint64_t root;  /* struct wasm_dump */
    uint64_t store; /* wasm_store_bytes() */
};

struct session {
    struct link *link;
    const struct job *job;
    struct wasm_alloc alloc; /* of the engine; 0: malloc() */
    struct wasm_engine *engine;
    struct wasm_module *module;
    uint64_t pages; /* --memory */
    struct wasm_store *store;
    struct wasm_instance *instance;
    enum run_phase phase;
    const struct cell_options
        *call; /* the function and its arguments: those of the job or a state */
    bool is_text;
    struct wat_module text;
    struct slice input;
    struct buf output; /* bytes that the program passed to carrel.result */
    struct buf log;    /* the log that this run writes */
    bool recording;
    struct cell_log *replay; /* the log that this run repeats, or NULL */
    bool has_wasi;           /* the module imports WASI: standard output belongs to the program */
    struct wasi *wasi;       /* its descriptors and clocks; NULL in a replay */
    uint64_t began_ns;       /* when the first slice ended, for the limit of fuel per second */
    bool has_exited;         /* the exit code is the program's own */
    enum stop_at stop_at;    /* where the program stops to be saved */
    struct slice request;    /* bytes that standard input begins with */
    bool is_warm;            /* resumed from a warm image, after it had used fuel_before */
    uint64_t fuel_before;
    uint32_t allowed;       /* capabilities of carrel.1, as bits of base/capability.h */
    bool has_capabilities;  /* the module imports carrel.1 */
    struct buf answer;      /* of the last call of carrel.1 that has one */
    struct buf result;      /* the JSON text that the program passed to carrel.1.result */
    struct session *caller; /* the program that called this one, or NULL */
    int depth;              /* number of callers */
    uint64_t fuel_outside;  /* fuel that the callers had used before */
    char why[sizeof(((struct err *)0)->text)]; /* last error of session_fail() */
    char difference[300]; /* first difference between a replay and its log; or empty */
};

/* How a call ended; values are copies. */
struct ending {
    enum wasm_outcome outcome;
    bool suspended;
    bool has_exited; /* the program called proc_exit with exit_code */
    uint32_t exit_code;
    const char *text;
    uint64_t needed;
    struct cell_values values;
};

void session_init(struct session *s, struct link *l, const struct job *job);
void session_done(struct session *s);

/* Returns the bytes that a program may use: --memory, and 1 MiB for small objects. */
uint64_t cell_budget(uint64_t pages);
/* These functions return CELL_OK, or print the reason and return an exit code. */
int session_load(struct session *s, struct slice bytes, int spec, uint64_t pages);
/* Takes engine, module and store from job->dump. */
int session_load_dump(struct session *s);
int session_check_grants(struct session *s, const char *const *grants, int count);
int session_link(struct session *s);
/* Continues the call in progress to its end, and answers its host calls. */
int session_drive(struct session *s, struct ending *ret);
/* Tells the machine how much fuel was used, also if this process is killed later. */
void session_meter(struct session *s);
/* True if the program must be stored now. A program that another one called is not. */
bool session_must_pause(const struct session *s);
/* Sends the stopped program to its file, and returns when it may go on (session_pause.c). */
void session_pause(struct session *s);
int session_call(struct session *s, struct slice function, const struct cell_values *args,
                 struct ending *ret);

/* Prints an error as text or JSON. Returns `code`. */
int session_fail(struct session *s, int code, const struct err *err);
/*
 * Writes the place in the source that belongs to an offset of the module: "src.wat:3:5" or "byte
 * 0x2f".
 */
void session_place(const struct session *s, size_t offset, char *out, size_t size);
/* Writes the name of a function: "$name" or "func 3"; at most size bytes. */
void session_func_name(const struct session *s, uint32_t func, char *out, size_t size);

/* Returns the program that the command runs: s, or the first of its callers. */
struct session *session_top(struct session *s);

/* --- host functions (host.c, host_caps.c, host_call.c) --- */

/* The modules of host functions. Those of the second need --allow. */
#define HOST_MODULE "carrel"
#define HOST_CAPABILITIES "carrel.1"

/* The names of all host functions, for messages. */
#define HOST_NAMES "args_size,args_read,result,log,clock,random"

/* True if module "carrel" has a host function of this name. */
bool host_known(const char *name, size_t len);
/* True if the import is a function of carrel.1; *ret is the bit that --allow must give, or 0. */
bool host_has_capability(const struct wasm_import *in, uint32_t *ret);
/* True if the bytes are one JSON value in UTF-8. */
bool host_is_json(const void *bytes, size_t len);
/* Writes the answer and result of carrel.1 in front of the state of the store, and reads them. */
bool host_capabilities_save(const struct session *s, struct buf *ret);
int host_capabilities_resume(struct session *s, struct slice *state, struct err *err);

enum host_fit { HOST_FITS, HOST_OTHER_TYPE, HOST_NONE };

/* Tells if an import can be granted. *ret is the type of the host function with its name. */
enum host_fit host_fits(const struct wasm_import *in, struct wasm_func_type *ret);
/* True if `h` is the host function of that name in host.c, with the same type and cost. */
bool host_is(const struct wasm_host_info *h);
int host_define(struct session *s, const struct wasm_import *in, struct err *err);
enum { HOST_PAUSES = 2 };
/*
 * Answers the pending host call: 0; HOST_PAUSES if it still waits and a pause is wanted; or 1 and
 * the ending if the call is over (a trap, the exit of
 * the program) or stopped, because its data costs more fuel than is left.
 */
int host_answer(struct session *s, const struct wasm_event *ev, struct ending *ret,
                struct err *err);

/* Returns the memory that is exported as "memory"; NULL: there is none. */
uint8_t *host_memory(const struct session *s, size_t *ret_size);
/* Replaces the answer by the recorded one; fails if the call is not the recorded call. */
int host_use_recorded(struct session *s, struct cell_call *call, struct buf *given,
                      struct err *err);

/* --- WASI (host_wasi.c) --- */

/* Makes the descriptors, clocks and arguments of a new program from the options. */
int host_wasi_start(struct session *s, struct err *err);
/* Writes the state of a program with WASI in front of the state of its store, and reads it. */
bool host_wasi_save(const struct session *s, struct buf *ret);
/* Takes the WASI part from the front of *state, if it has one. */
int host_wasi_resume(struct session *s, struct slice *state, struct err *err);
/* Answers a call of WASI, as host_answer(). */
int host_wasi_answer(struct session *s, const struct wasi_func *f, const struct wasm_event *ev,
                     struct ending *ret, struct err *err);

/* --- verbs (verb_*.c): functions for jail_run() --- */
int verb_run(struct link *l, const void *job);
int verb_check(struct link *l, const void *job);
int verb_fuel(struct link *l, const void *job);
int verb_replay(struct link *l, const void *job);
int verb_wast(struct link *l, const void *job);
int verb_warm(struct link *l, const void *job);
int verb_dump(struct link *l, const void *job);
