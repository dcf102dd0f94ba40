/*
 * The table of commands: from EXEC until the exit is acknowledged, the streams
 * have ended and nothing of the command's tree is left.
 */
#pragma once

#include "guest/guest.h"
#include "guest/serve.h"

enum serve_result cmd_take_exec(struct guest *g, struct conn *c, const struct frame *f);
enum serve_result cmd_stdin(struct guest *g, struct conn *c, const struct frame *f);
enum serve_result cmd_credit(struct guest *g, struct conn *c, const struct frame *f);
enum serve_result cmd_exit_ack(struct guest *g, struct conn *c, const struct frame *f);
enum serve_result cmd_signal(struct guest *g, struct conn *c, const struct frame *f);
enum serve_result cmd_kill(struct guest *g, struct conn *c, const struct frame *f);
enum serve_result cmd_resize(struct guest *g, struct conn *c, const struct frame *f);
enum serve_result cmd_attach(struct guest *g, struct conn *c, const struct frame *f);
enum serve_result cmd_log_wait(struct guest *g, struct conn *c, const struct frame *f);
enum serve_result cmd_log_open(struct guest *g, struct conn *c, const struct frame *f);
enum serve_result cmd_table(struct guest *g, struct conn *c, const struct frame *f);
enum serve_result cmd_busy(struct guest *g, struct conn *c, const struct frame *f);

/* Queue what the commands of this connection have to say, as far as there is room. */
void cmd_pump(struct guest *g, struct conn *c);

/* Its commands go on without a reader; what it may not have received is kept to be sent again. */
void cmd_detach_all(struct guest *g, struct conn *c);

/* Reaps every child there is. */
void cmd_reap(struct guest *g);

/* Kills what is overdue; returns when to call again, INT64_MAX for never. */
int64_t cmd_tick(struct guest *g, int64_t now);
