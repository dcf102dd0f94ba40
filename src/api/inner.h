/* What api.c, call.c and host.c know of each other. */
#pragma once

#include "api/call.h"

int api_status_of(enum err_code code);
void api_call_ended(struct call *c);

/* Splits and checks the query against the route's table. */
int call_read_query(struct call *c, struct err *err);

/* From now on the exchange tells the call what happens to it. */
void call_listen(struct call *c);

struct metrics *api_metrics_of(struct api *api);
struct loop *api_loop(struct api *api);
struct runs *api_operator(struct api *api);

/* "store": the disk that holds CARREL_HOME. */
struct room_view;
void host_put_room(struct jot *j, const struct room_view *v);
