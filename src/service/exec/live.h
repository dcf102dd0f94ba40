/*
 * Commands of a live machine, for the rest of src/service: found again after a restart of the
 * daemon, lost with their machine, kept and trimmed on every tick. Only exec/ knows what is inside
 * struct exec, struct service_execs and struct live_execs.
 */
#pragma once

#include "service/service.h"
#include "store/execs.h"

struct live;
struct live_execs;
struct msg_row;
struct service_execs;

struct service_execs *service_execs_new(struct service *s);
/* After the machines are gone: no command is known any more. */
void service_execs_stop(struct service *s);
void service_execs_free(struct service_execs *e);
struct live_execs *live_execs_new(void);
void live_execs_free(struct live_execs *e);

/* Commands, tools and programs that run in the machine. */
uint32_t execs_running(const struct live *l);

/* The machine has ended: every command without an outcome becomes unknown. */
void execs_lose(struct live *l, const char *reason);
/* For a command that only the store knows: writes its event in a transaction, its record after. */
int exec_row_put_end(struct service *s, const struct exec_row *row, struct err *err);
void exec_row_note(struct service *s, const struct exec_row *row);
/* Both, with the row itself. Takes its texts. */
void exec_row_conclude(struct live *l, struct exec_row *row);
/* A command that the guest still has in its table. exec_adopt() takes the row's texts and the log's
 * descriptor (-1: none). */
bool exec_is_listed(const struct live *l, uint32_t number);
void exec_adopt(struct live *l, struct exec_row *row, const struct msg_row *state, int log_fd);

/* The guest is reached through a new connection. */
void execs_reattach(struct live *l);

/* On every tick: keeps output of commands that run for long. */
void execs_keep_look(struct service *s, uint64_t now_ms, int64_t wall_ms);
/* On every tick: removes kept output, and rows of commands, beyond the limits of the conf. */
void outputs_look(struct service *s, uint64_t loop_ms);

/* The daemon leaves: lets go of every command, which goes on. */
void execs_release(struct live *l);
