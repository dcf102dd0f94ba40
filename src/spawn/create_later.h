/*
 * Requests for boxes that wait until their btrfs disk is made, and the disk that the pool of berths
 * waits for. Only for src/spawn/server.c and requests.c.
 *
 * Other requests are served meanwhile. A request about a box that waits is served after the box was
 * created, as if the disk had been made at once.
 */
#pragma once

#include "spawn/server.h"

/* True if the request was put aside; its descriptors are taken. */
bool create_put_aside(struct server *v, const struct client *c, struct fd_message *in);
/* Creates the box `id` now if its request waits. */
void create_settle(struct server *v, const char *id);
/* Called when a disk is made, or could not be made; fd: the socket of its job. */
void create_continue(struct server *v, int fd);
/* Forgets the requests of a client that disconnected; -1: all requests. */
void create_forget(struct server *v, int client);
/* True if the pool of berths waits for a disk. Starts to make it. */
bool pool_awaits_disk(struct server *v);
