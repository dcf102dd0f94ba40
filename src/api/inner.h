/*
 * Functions that api.c, call.c and host.c share.
 *
 * Handlers of routes use call.h only.
 */
#pragma once

#include "api/call.h"

void api_call_ended(struct call *c);

/*
 * Authenticates the peer of a route without a scope. 1: *ret is the caller; 0: no credentials were
 * sent, and the peer is not on this host's socket; -1: they are wrong.
 */
int api_caller(const struct call *c, struct caller *ret, struct err *err);

/* Parses the query; unknown parameters are an error. */
int call_read_query(struct call *c, struct err *err);

/* Connects the events of the exchange (gone, drain) to the call, which then owns the exchange. */
void call_listen(struct call *c);

struct metrics *api_metrics_of(struct api *api);
struct loop *api_loop(struct api *api);
struct runs *api_operator(struct api *api);

/* Writes the member "store": the state of the disk that holds CARREL_HOME. */
struct room_view;
void host_put_room(struct jot *j, const struct room_view *v);
