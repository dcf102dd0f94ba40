/* Functions that cmd.c, cmd_attach.c and pause.c share. */
#pragma once

#include "guest/cmd.h"

/* cmd.c */
struct cmd *cmd_find(struct guest *g, uint32_t id);
void cmd_sweep(struct guest *g);
void cmd_settle(struct guest *g, struct cmd *cmd);
void cmd_kill_tree(struct guest *g, struct cmd *cmd);
void cmd_note_news(struct cmd *cmd);
void cmd_answer_wait(struct cmd *cmd);
