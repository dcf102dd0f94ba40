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
    struct buf hello;   /* the client's line `initialize` */
    struct buf told;    /* the client's line `notifications/initialized` */
    json_t *first;      /* the id of `initialize` */
    json_t *pending;    /* ids of calls that were not answered */
    bool greeted;       /* `initialize` was answered */
    bool answers_twice; /* the next daemon will answer `initialize` again */
};

void link_init(struct mcp_link *l);
void link_done(struct mcp_link *l);

/* Records a line of the client, with its newline. */
void link_said(struct mcp_link *l, const char *line, size_t n);
/* Records a line of the daemon; false: do not pass it to the client. */
bool link_heard(struct mcp_link *l, const char *line, size_t n);

/* Adds an error answer for each pending call to *ret, and forgets the calls. */
bool link_lost(struct mcp_link *l, struct buf *ret);
/* Adds the lines that a new daemon needs first to *ret. */
bool link_hello(struct mcp_link *l, struct buf *ret);
