/*
 * The gateway to the data plane: finds the sandbox that a request is for, and checks its token.
 *
 * A request names the sandbox in the headers E2b-Sandbox-Id and E2b-Sandbox-Port. A sandbox that
 * does not run answers 502 on every path, by which clients know that it is gone. A signed path of a
 * file may come without the headers: then the signature says whose it is.
 */
#pragma once

#include "io/http_server.h"
#include "service/service.h"

struct e2b_data;

/* hosts: of requests by host name, see ports.h. */
struct e2b_data *e2b_data_new(struct loop *loop, struct service *service,
                              struct http_server *hosts);
void e2b_data_free(struct e2b_data *d); /* after the last request that waits for its sandbox */
size_t e2b_data_busy(const struct e2b_data *d); /* requests in progress */

/* True: the request was for the data plane and has been taken. */
bool e2b_data_take(struct e2b_data *d, struct http_exchange *x);
/* True: the request was for the files of a volume and has been taken. */
bool e2b_data_take_volume(struct e2b_data *d, struct http_exchange *x);
/* Takes a request to PORT-SANDBOX.DOMAIN. */
void e2b_data_take_named(struct e2b_data *d, struct http_exchange *x, struct http_text label,
                         uint16_t port);
/* Whether a page of another origin may send the request: it needs a token, or asks for that. */
bool e2b_data_is_for(const struct http_exchange *x);
