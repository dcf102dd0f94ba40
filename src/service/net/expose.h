/*
 * Exposed ports: ports inside machines that are reachable from outside, each with its own token or
 * public.
 *
 * A token is shown once, when the port is exposed.
 */
#pragma once

#include "gate/ingress.h"
#include "service/net/net.h"
#include "service/service.h"

struct expose_request {
    struct given port;
    bool is_public;
};

/* Answers {"machine","port","url","token"}; a port that is already exposed gets a new token. A
 * public port has none. */
void service_expose(struct service *s, const struct caller *who, const char *machine,
                    const struct expose_request *r, service_net_fn *done, void *arg);
/* Answers {"machine","exposures":[{"port","url"}]}. */
void service_expose_list(struct service *s, const struct caller *who, const char *machine,
                         service_net_fn *done, void *arg);
/* Writes the origins of exposed ports, as a Content-Security-Policy names them; nothing while no
 * port has been exposed. */
void service_expose_origins(const struct service *s, struct buf *out);
void service_expose_remove(struct service *s, const struct caller *who, const char *machine,
                           uint16_t port, service_net_fn *done, void *arg);

/*
 * A face of the API whose machines have reachable ports without a request for each port. An owner's
 * own exposure of a port comes first.
 */
typedef void service_dialled_fn(void *arg, int fd, const struct err *err);
struct expose_face {
    /* Returns 0, or the status of the refusal: INGRESS_TRAFFIC wrong token, 404 no port of this
     * face. A machine has all ports or none. */
    int (*check)(void *arg, const char *machine, uint16_t port, const char *token, size_t n);
    /* Connects to the port; fn owns the socket. */
    void (*dial)(void *arg, const char *machine, uint16_t port, service_dialled_fn *fn,
                 void *fn_arg);
    /* See struct ingress_hooks. */
    bool (*serves)(void *arg, struct http_text name);
    void (*serve)(void *arg, int fd, const struct ingress_client *client);
};
/*
 * Whether a field of a request holds a token of an owner, of a browser or of a machine, or a key of
 * E2B. Programs in machines must not get it. Their own credentials in the same field pass.
 */
bool service_is_credential(struct service *s, const struct http_field *f);
/* Reads the part of a Host field before the domain of exposed ports. */
bool service_expose_name(const struct service *s, struct http_text host, struct http_text *ret);
/* Parses such a part, PORT-MACHINE. */
bool service_expose_door(struct http_text name, struct ingress_door *ret);
/* NULL: none. Serves ports of machines that the face has from an earlier daemon. */
void service_set_expose_face(struct service *s, const struct expose_face *face, void *arg);
/* Serves the ports of faces. Port P of a machine has the host name P-LABEL.DOMAIN, where *ret is
 * the domain, with the port of the listener if it is not the usual one. */
int service_expose_domain(struct service *s, struct buf *ret, struct err *err);
/* False: the machine is guarded and tainted, and its owner did not expose the port since. */
bool service_port_shows(struct service *s, const char *machine, uint16_t port);
