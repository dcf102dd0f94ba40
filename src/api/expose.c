/* Exposed ports of a machine; the rules are in service/net/expose.h. */
#include "service/net/expose.h"

#include "api/bodies.h"
#include "api/route.h"
#include "base/parse.h"

void api_expose(struct call *c) {
    service_expose(c->service, &c->who, c->params[0], c->request, call_told, c);
}

void api_expose_list(struct call *c) {
    service_expose_list(c->service, &c->who, c->params[0], call_told, c);
}

void api_expose_remove(struct call *c) {
    uint64_t port;
    struct err err;
    if (parse_u64(c->params[1], 1, 65535, &port, &err) < 0)
        call_error(c, &err);
    else
        service_expose_remove(c->service, &c->who, c->params[0], (uint16_t)port, call_told, c);
}
