/*
 * Host names of exposed ports: PORT-MACHINE.localhost, and with a domain in the settings also
 * PORT-MACHINE.DOMAIN. MACHINE is the id or its label (base/id.h). Without "PORT-" the name means
 * the only port that the machine exposes. Programs that resolve no such names send the name in the
 * field Carrel-Port, to the address of the listener. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/id.h"
#include "io/http.h"

#define INGRESS_DOMAIN ".localhost"
#define INGRESS_PORT_FIELD "Carrel-Port"

struct ingress_door {
    char machine[ID_SIZE];
    uint16_t port; /* 0: the only one */
};

/* Reads the part of a Host field before the domain: NAME.DOMAIN or NAME.DOMAIN:PORT. */
bool ingress_name_read(struct http_text host, const char *domain, struct http_text *ret);
/* Parses such a part: PORT-MACHINE. */
bool ingress_door_named(struct http_text name, struct ingress_door *ret);
/* Parses a Host field such as "8000-m-abc.localhost:7071". domain: "" for none. */
bool ingress_door_read(struct http_text host, const char *domain, struct ingress_door *ret);

/* Whether a Host field names no domain, but this host: an IPv4 address or "localhost". */
bool ingress_host_is_address(struct http_text host);

/* Writes the domain below which ports have names, such as "localhost:7071"; without the port if it
 * is the usual one. */
bool ingress_domain_put(struct buf *out, const char *domain, bool tls, uint16_t listens);

/* Writes the URL of a port, "/" at its end. `listens` is the port of the listener. */
bool ingress_name_put(struct buf *out, const struct ingress_door *door, const char *domain,
                      bool tls, uint16_t listens);
/* Writes the origins of all ports, as a Content-Security-Policy names them. */
bool ingress_origins_put(struct buf *out, const char *domain, bool tls, uint16_t listens);
