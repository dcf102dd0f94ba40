/*
 * The table of commands. A command stays in it until its exit is acknowledged, its streams have
 * ended and none of its processes is left.
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
enum serve_result cmd_log_read(struct guest *g, struct conn *c, const struct frame *f);
enum serve_result cmd_table(struct guest *g, struct conn *c, const struct frame *f);
enum serve_result cmd_busy(struct guest *g, struct conn *c, const struct frame *f);

/* Queues output and exits of the commands of this connection, as far as its buffer has room. */
void cmd_pump(struct guest *g, struct conn *c);

/*
 * Call it when a connection is gone: its commands continue, and output that it may not have
 * received is kept.
 */
void cmd_detach_all(struct guest *g, struct conn *c);

/*
 * Forgets every command: it runs on, but nobody can find it by its number, and its row is free
 * again once it has ended.
 */
void cmd_leave_all(struct guest *g);

/* Collects the exit status of every child that has ended. */
void cmd_reap(struct guest *g);

/* Kills commands whose timeout has passed. Returns when to call it again; INT64_MAX: never. */
int64_t cmd_tick(struct guest *g, int64_t now);
