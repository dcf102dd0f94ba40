/*
 * Commands of cell machines that are stored in files while their machine is paused. A file is
 * $CARREL_HOME/stored/MACHINE/EXEC; cell/pause.h has its format.
 *
 * exec_row.stored says whether a command is stored. It is written in one transaction for all
 * commands of a machine, when their files and output are on disk and their workers wait. From then
 * on only the file counts: a worker that still exists did not go on, and is killed. When the
 * command is resumed, the row is written before the new worker may go on. So a command never runs
 * twice from the same state, and is never lost between two.
 */
#pragma once

#include "service/service.h"
#include "store/execs.h"
#include "store/machines.h"

struct exec;
struct live;

/* What exec_row.stored says. */
struct stored_mark {
    bool is_stored;    /* false: it was resumed, and only the next two are known */
    uint64_t left_ms;  /* time until its timeout; if it was resumed, when that is; 0: none */
    uint64_t stdin_at; /* bytes of input that it was sent before */
    bool stdin_ended;
    uint8_t stdio[3]; /* enum msg_stdio, as it was started */
};

void stored_print(const struct stored_mark *m, char ret[STORE_STORED_SIZE]);
/* False: the text is empty or damaged. */
bool stored_parse(const char *text, struct stored_mark *ret);

/* ---- files ---- */

/* Creates an empty file, or opens one for reading. The caller owns the descriptor; -1 on failure.
 */
int stored_create(const char *home, const char *machine, const char *exec, struct err *err);
int stored_open(const char *home, const char *machine, const char *exec, struct err *err);
void stored_remove(const char *home, const char *machine, const char *exec);
/* Makes the names in the folder of a machine durable. */
int stored_sync(const char *home, const char *machine, struct err *err);
/* Removes the files of a machine for which `keeps` is false; keeps NULL: all. */
void stored_drop(const char *home, const char *machine, bool (*keeps)(void *arg, const char *exec),
                 void *arg);
/* Removes the files of machines for which `keeps` is false. */
void stored_sweep(const char *home, bool (*keeps)(void *arg, const char *machine), void *arg);

/* ---- for the rest of src/service ---- */

/*
 * Stores all running commands of a machine. On success they have no process any more, and the row
 * of the machine says that it is paused. On failure all of them run as before.
 */
bool execs_can_store(const struct live *l);
void execs_store(struct live *l, enum state_by by, service_done_fn *done, void *arg);
/* True if a command of the machine is stored. */
bool execs_are_stored(const struct live *l);
/* Resumes the stored commands of a machine that runs. Those that cannot be resumed end. */
void execs_resume(struct live *l);
/* For a machine of an earlier daemon: lists its stored commands, and removes files of others. */
int execs_adopt_stored(struct live *l, struct err *err);
/* True if this command is stored: a process that has its number is left over. */
bool exec_is_stored(const struct live *l, uint32_t number);
/* Ends all stored commands of a machine, as if they had been killed. */
void execs_end_stored(struct live *l);
