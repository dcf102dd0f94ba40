#include "service/net.h"

#include <string.h>

#include "api/bodies.h"
#include "api/route.h"
#include "base/parse.h"

static void answer_net(void *arg, const char *json, const struct err *err) {
    struct call *c = arg;
    if (err)
        call_error(c, err);
    else
        call_text(c, 200, "application/json", json, strlen(json));
}

void api_net_show(struct call *c) {
    service_net_show(c->service, &c->who, c->params[0], answer_net, c);
}

void api_net_add(struct call *c) {
    service_net_add(c->service, &c->who, c->params[0], c->request, answer_net, c);
}

void api_net_remove(struct call *c) {
    uint64_t rule;
    struct err err;
    if (parse_u64(c->params[1], 1, UINT64_MAX, &rule, &err) < 0)
        call_error(c, &err);
    else
        service_net_remove(c->service, &c->who, c->params[0], rule, answer_net, c);
}
