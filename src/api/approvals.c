#include "service/approvals.h"

#include <string.h>

#include "api/bodies.h"
#include "api/route.h"

static void answer_text(void *arg, const char *json, const struct err *err) {
    struct call *c = arg;
    if (err)
        call_error(c, err);
    else
        call_text(c, 200, "application/json", json, strlen(json));
}

void api_pending_list(struct call *c) {
    service_pending(c->service, &c->who, answer_text, c);
}

void api_pending_decide(struct call *c) {
    service_approve(c->service, &c->who, c->params[0], c->request, answer_text, c);
}
