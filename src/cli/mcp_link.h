/*
 * What `carrel mcp` must remember of a conversation to go on with it over a new connection: how it
 * began, and which calls were not answered.
 *
 * When the daemon dies, link_lost() says what the client is told: each call under way failed.
 * link_hello() is what the next daemon is told: the client's own first words, whose answer the
 * client has had already.
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
    bool answers_twice; /* and will be once more */
};

void link_init(struct mcp_link *l);
void link_done(struct mcp_link *l);

/* A line of the client, newline and all. */
void link_said(struct mcp_link *l, const char *line, size_t n);
/* A line of the daemon; false: not for the client. */
bool link_heard(struct mcp_link *l, const char *line, size_t n);

/* Lines for the client, and none of its calls is under way any more. */
bool link_lost(struct mcp_link *l, struct buf *ret);
/* Lines for the next daemon. */
bool link_hello(struct mcp_link *l, struct buf *ret);
