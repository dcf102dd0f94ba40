/*
 * Ingress: exposed ports of machines, served by host name on a separate listener, never on the
 * API's. A connection carries one request, or becomes a websocket: the Host field names the machine
 * and port, a token authorises it unless the port is public, and the body is passed through. Bytes
 * after the request are discarded and the answer closes the connection, because they could be
 * another request with its token.
 *
 * Names of the API (serves()) are the exception: their connections go to a server of this process
 * as they are, without the end of TLS.
 *
 * At an address instead of a name, the field Carrel-Port names the machine and port. Pages may not
 * do so: all machines would be of one origin, and have the cookies of every other port of this
 * host.
 *
 * The token comes in the field Carrel-Token, from clients of E2B in E2b-Traffic-Access-Token, or as
 * ?carrel_token=..., which is answered with a cookie for that host. The token never reaches the
 * machine (ingress_head.h).
 */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "gate/ingress_name.h"
#include "io/http.h"
#include "io/loop.h"

enum { INGRESS_TRAFFIC = 1403, INGRESS_CONNECTIONS = 512, INGRESS_TOKEN_MAX = 80 };
#define INGRESS_DEFAULT "127.0.0.1:7071"
enum { INGRESS_SPARE = 100 }; /* ports above the default that are tried if it is taken */
/* As certificate: certificates of an authority of the daemon's own. */
#define INGRESS_OWN "own"

struct ingress;

typedef void ingress_dialled_fn(void *arg, int fd, const struct err *err);

/* The other end of a connection. */
struct ingress_client {
    char address[64]; /* "192.0.2.7:54321" */
    bool tls;
};

struct ingress_hooks {
    /* The port that the machine exposes; 0: none, or several. */
    uint16_t (*only_port)(void *arg, const char *machine);
    /* Checks a token; a public port takes the token "". Returns 0, or the HTTP status of the
     * refusal: 404 the port is not exposed, 401 wrong token, 403 the machine is guarded and
     * tainted. INGRESS_TRAFFIC: as 401, and the client is one of E2B, which expects 403. */
    int (*check)(void *arg, const struct ingress_door *door, struct http_text token);
    /* Whether the port is still exposed. Called whenever bytes arrive. */
    bool (*is_open)(void *arg, const struct ingress_door *door);
    /* Connects to the port of the machine. fn is always called later, from the loop, with a
     * connected or connecting socket that fn owns. */
    void (*dial)(void *arg, const struct ingress_door *door, ingress_dialled_fn *fn, void *fn_arg);
    /* Whether a server of this process answers requests to NAME.DOMAIN. serve() gives it the
     * connection, with all that its client sends. It owns the socket. */
    bool (*serves)(void *arg, struct http_text name);
    void (*serve)(void *arg, int fd, const struct ingress_client *client);
    /* Whether a field of a request holds a token of this daemon, which the machine must not get. */
    bool (*is_key)(void *arg, const struct http_field *f);
    /* Reports a request that was passed in or, with `why`, refused. Strings are valid during the
     * call. */
    void (*entered)(void *arg, const struct ingress_door *door, const char *method,
                    const char *path, const char *why);
};

struct ingress_config {
    const char *domain;            /* of host names beside those below ".localhost"; "": none */
    const char *certificate, *key; /* files in PEM for TLS, or INGRESS_OWN; "": no TLS */
    const char *home, *run;        /* directories for the keys and the certificate of INGRESS_OWN */
};

/* The texts of the configuration must stay valid. */
struct ingress *ingress_new(struct loop *loop, const struct ingress_hooks *hooks, void *arg,
                            const struct ingress_config *config);
void ingress_free(struct ingress *g);
/*
 * Listens on `where`, "ADDRESS:PORT". "": the default address, or the next free port above it, for
 * example because another user's daemon has the default. Further calls do nothing.
 */
int ingress_listen(struct ingress *g, const char *where, struct err *err);
/* Writes the URL at which the listener is reached from this host, without TLS. */
enum { INGRESS_URL_SIZE = 48 };
void ingress_address_url(const struct ingress *g, char ret[INGRESS_URL_SIZE]);
/* The port of the last ingress_listen(), or the last one that it tried. */
uint16_t ingress_port(const struct ingress *g);
/* Ends open connections to a machine's port (0: to all its ports) that is no longer exposed. */
void ingress_close(struct ingress *g, const char *machine, uint16_t port);
