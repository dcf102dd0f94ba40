/*
 * MCP servers in a client's machine, joined to its list of tools: their tools are NAME__TOOL.
 *
 * The owner names the commands; no tool can. What a server sends is untrusted: names, descriptions
 * and schemas are limited and cleaned, its hints are ignored, and its machine is tainted before it
 * starts. A tool of a server cannot replace one of ours, whose names have no "__".
 */
#pragma once

#include "tools/tool.h"

enum {
    JOINS_MAX = 4,
    JOIN_NAME_SIZE = 17,
    JOIN_COMMAND_SIZE = 1024,
    JOINED_TOOLS_MAX = 64, /* per server */
    JOINED_NAME_SIZE = 65, /* NAME__TOOL; common clients and models take 64 bytes */
};

struct join {
    char name[JOIN_NAME_SIZE];
    char command[JOIN_COMMAND_SIZE]; /* a line for a shell in the machine */
};

/* Reads "NAME=COMMAND". */
int join_parse(const char *text, struct join *ret, struct err *err);

struct joins;
struct joined;

struct joined_tool {
    struct tool tool;
    struct joined *server;
    const char *remote; /* its name at the server */
    char *schema;       /* JSON of its arguments */
    char name[JOINED_NAME_SIZE];
};

struct joins *joins_new(struct toolbox *b, const struct join *joins, size_t n);
void joins_kill(struct joins *j); /* NULL is allowed, here and below */
void joins_free(struct joins *j);

/* True until each server has listed its tools, or failed. */
bool joins_are_pending(const struct toolbox *b);
/* Starts the servers and reads their lists; ends when joins_are_pending() is false. */
extern const struct tool join_tool;
/* Why a server could not be joined; NULL: it could, or there are no more than n servers. */
const char *joins_fault(const struct toolbox *b, size_t n);

size_t joined_tool_count(const struct toolbox *b);
const struct joined_tool *joined_tool(const struct toolbox *b, size_t n);
