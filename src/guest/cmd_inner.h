/* Functions that cmd.c, cmd_attach.c and pause.c share. */
#pragma once

#include "guest/cmd.h"

/* True if the row is not needed any more, except for what the command left behind. */
static inline bool cmd_is_left(const struct cmd *cmd) {
    return cmd->state == MSG_STATE_LEFT || (cmd->state == MSG_STATE_EXITED && cmd->is_nobodys);
}

/* cmd.c */
struct cmd *cmd_find(struct guest *g, uint32_t id);
void cmd_sweep(struct guest *g);
void cmd_settle(struct guest *g, struct cmd *cmd);
void cmd_kill_tree(struct guest *g, struct cmd *cmd);
void cmd_note_news(struct cmd *cmd);
void cmd_answer_wait(struct cmd *cmd);
