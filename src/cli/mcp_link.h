/*
 * State that `carrel mcp` needs to continue a conversation over a new connection: the client's
 * initialize request, and the calls that were not answered.
 *
 * When the daemon dies, link_lost() makes the error answers for those calls. link_hello() makes the
 * initialize request for the next daemon; its answer is not passed to the client again.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"

struct mcp_link {
    struct buf hello;   /* the line of `initialize` */
    struct buf told;    /* and the one that follows its answer */
    json_t *first;      /* the id of `initialize` */
    json_t *pending;    /* ids of calls */
    bool greeted;       /* `initialize` was answered */
    bool answers_twice; /* and will be answered once more */
};

void link_init(struct mcp_link *l);
void link_done(struct mcp_link *l);

/* A line of the client, newline and all. */
void link_said(struct mcp_link *l, const char *line, size_t n);
/* A line of the daemon; false: not for the client. */
bool link_heard(struct mcp_link *l, const char *line, size_t n);

/* Adds an error for each pending call, and forgets the calls. */
bool link_lost(struct mcp_link *l, struct buf *ret);
/* Lines for the next daemon. */
bool link_hello(struct mcp_link *l, struct buf *ret);
