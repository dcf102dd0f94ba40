/* What a session needs of the daemon: which one, and which machine there. */
#pragma once

#include "cli/client.h"
#include "io/ws_client.h"

struct remote {
    struct client *client;
    const char *machine;        /* as the caller names it */
    char exec[32];              /* of our command, once it was sent */
    struct http_client *second; /* for signals while the first waits */
    struct ws_client *ws;       /* of a terminal */
    struct buf line;            /* of the stream of events, not whole yet */
};

void remote_done(struct remote *r);
