/*
 * The worker of a command in a cell machine, seen by the guest: the memory in which it counts fuel,
 * and the socket over which its program is stored in a file (base/cell_command.h).
 */
#pragma once

#include "guest/guest.h"
#include "guest/serve.h"

enum pause_state {
    PAUSE_NONE,
    PAUSE_ASKED,   /* the worker was asked to store its program */
    PAUSE_STORED,  /* it has done so, and waits */
    PAUSE_REFUSED, /* it cannot, or the pause was given up */
};

/* Makes memory and socket; *ret is the worker's end of the socket. -1 with errno on failure. */
int worker_open(struct guest *g, struct cmd *cmd, int *ret);
/* Reads the fuel into cmd->fuel. It is the worker's word: it may be any number. */
void worker_read_fuel(struct cmd *cmd);

enum serve_result cmd_put_away(struct guest *g, struct conn *c, const struct frame *f);
enum serve_result cmd_go_on(struct guest *g, struct conn *c, const struct frame *f);
enum serve_result cmd_leave(struct guest *g, struct conn *c, const struct frame *f);

/* True if the pending PAUSE can be answered. All output must be in the log before. */
bool pause_has_news(const struct cmd *cmd);
void pause_answer(struct conn *c, struct cmd *cmd);
/* The connection that asked is gone, or no longer has the command. */
void pause_forget(struct cmd *cmd);
