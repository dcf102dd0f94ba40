/*
 * The REST face: authenticates, finds the route, reads the body, and hands the call to its
 * handler. Everything it knows about requests and answers is in tables (route.h, bodies.h).
 *
 * Who asks is told by the kernel (unix socket) or by a bearer token (TCP); no cookie counts. Every
 * request must name a host that is ours and come from no foreign page (Origin), so that a browser
 * that was lured cannot speak for its user.
 */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "io/http_server.h"
#include "service/service.h"

struct api;
struct runs;

/* The operator stays the caller's, and outlives this. */
struct api *api_new(struct loop *loop, struct service *service, struct runs *runs);
void api_free(struct api *api);

int api_listen_unix(struct api *api, const char *path, mode_t mode, struct err *err);
int api_listen_tcp(struct api *api, const char *host, uint16_t port, uint16_t *ret_port,
                   struct err *err);

/* For the daemon that leaves when it is idle: requests under way. */
size_t api_busy(const struct api *api);
