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
/* Call it after the machines are gone: frees all commands. */
void service_execs_stop(struct service *s);
void service_execs_free(struct service_execs *e);
struct live_execs *live_execs_new(void);
void live_execs_free(struct live_execs *e);

/* Commands, tools and programs that run in the machine. */
uint32_t execs_running(const struct live *l);
/* The same without those that are part of another action (EXEC_NO_STEP). */
uint32_t execs_shown(const struct live *l);
/* Commands, tools and programs without those that only wait for their caller (EXEC_LAZY). */
uint32_t execs_busy(const struct live *l);

/* Call it when the machine has ended: the outcome of its running commands becomes unknown. */
void execs_lose(struct live *l, const char *reason);
/*
 * For a command that only the store knows: exec_row_put_end() writes its event in a transaction,
 * and exec_row_note() writes the journal record afterwards.
 */
int exec_row_put_end(struct service *s, const struct exec_row *row, struct err *err);
void exec_row_note(struct service *s, const struct exec_row *row);
/* Writes the row, the event and the record. Takes the row's texts. */
void exec_row_conclude(struct live *l, struct exec_row *row);
/*
 * For a command in the table of the guest. exec_adopt() takes the row's texts and the descriptor of
 * the log (-1: none).
 */
bool exec_is_listed(const struct live *l, uint32_t number);
void exec_adopt(struct live *l, struct exec_row *row, const struct msg_row *state, int log_fd);

/* Call it when the guest has a new connection: attaches to the commands again. */
void execs_reattach(struct live *l);

/* Called by the tick: commands wait no longer for readers that an earlier daemon had. */
void execs_readers_look(struct service *s, uint64_t now_ms);
/* Called by the tick: saves output of long commands. */
void execs_keep_look(struct service *s, uint64_t now_ms, int64_t wall_ms);
/* Called by the tick: deletes kept output and rows of commands beyond the limits of carrel.conf. */
void outputs_look(struct service *s, uint64_t loop_ms);

/* Call it when the daemon stops: releases every command, which keeps running. */
void execs_release(struct live *l);
