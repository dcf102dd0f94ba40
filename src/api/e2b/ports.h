/*
 * Ports of programs in sandboxes: passes requests through, HTTP and WebSocket.
 *
 * The connection to the program ends with its answer. The traffic token never reaches the program.
 * The same ports have host names on the listener of exposed ports (service/net/expose.h), which
 * asks here for permission and for connections.
 */
#pragma once

#include "api/e2b/target.h"
#include "io/http_server.h"

#define E2B_TRAFFIC_FIELD "E2b-Traffic-Access-Token"

struct e2b_ports;

/* hosts: answers requests to names of the API, api.DOMAIN and those of control programs. */
struct e2b_ports *e2b_ports_new(struct service *service, struct http_server *hosts);
#define E2B_API_NAME "api"
void e2b_ports_free(struct e2b_ports *p);         /* cuts open connections */
size_t e2b_ports_busy(const struct e2b_ports *p); /* requests in progress */

/* Takes over the exchange. The sandbox runs, and the request may reach its ports. */
void e2b_ports_take(struct e2b_ports *p, struct http_exchange *x, const struct e2b_target *t,
                    uint16_t port);

/* Answers with an error in the words of E2B. port 0: none. */
void e2b_port_refuse(struct http_exchange *x, int status, struct http_text label, uint16_t port,
                     const char *message);
