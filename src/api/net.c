/* Network rules of a machine; the checks are in service/net/net.h. */
#include "service/net/net.h"

#include "api/bodies.h"
#include "api/route.h"
#include "base/parse.h"

void api_net_show(struct call *c) {
    service_net_show(c->service, &c->who, c->params[0], call_told, c);
}

void api_net_add(struct call *c) {
    service_net_add(c->service, &c->who, c->params[0], c->request, call_told, c);
}

void api_net_guard(struct call *c) {
    service_net_guard_told(c->service, &c->who, c->params[0], call_told, c);
}

void api_net_remove(struct call *c) {
    uint64_t rule;
    struct err err;
    if (parse_u64(c->params[1], 1, UINT64_MAX, &rule, &err) < 0)
        call_error(c, &err);
    else
        service_net_remove(c->service, &c->who, c->params[0], rule, call_told, c);
}
