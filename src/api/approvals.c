#include "service/approvals.h"

#include "api/bodies.h"
#include "api/route.h"

void api_pending_list(struct call *c) {
    service_pending(c->service, &c->who, call_told, c);
}

void api_pending_decide(struct call *c) {
    service_approve(c->service, &c->who, c->params[0], c->request, call_told, c);
}
