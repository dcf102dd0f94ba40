/* The REST API: authenticates the caller, finds the route, reads the body and calls the handler.
 * All knowledge of requests and responses is in tables (route.h, bodies.h). The kernel (unix
 * socket) or a bearer token (TCP) identifies the caller; cookies are ignored. Requests with a
 * foreign Host or Origin are refused, so a web page cannot use the API through a user's browser.
 */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "io/http_server.h"
#include "service/service.h"

struct api;
struct runs;

/* `runs` belongs to the caller and must outlive the api. */
struct api *api_new(struct loop *loop, struct service *service, struct runs *runs);
void api_free(struct api *api);

int api_listen_unix(struct api *api, const char *path, mode_t mode, struct err *err);
int api_listen_tcp(struct api *api, const char *host, uint16_t port, uint16_t *ret_port,
                   struct err *err);

/*
 * Listens on the port on which an earlier daemon served the console or clients of E2B. has_keys:
 * such clients have keys, so it listens even if no earlier port is known.
 */
void api_listen_again(struct api *api, bool has_keys);

/* Number of requests in progress: a daemon that exits when idle waits for 0. */
size_t api_busy(const struct api *api);
uint64_t api_taken(const struct api *api); /* number of requests since the start */
