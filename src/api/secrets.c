/* Secrets of an owner. A request can set a value, but no response contains one. */
#include "service/net/secrets.h"

#include "api/bodies.h"
#include "api/route.h"

static void answer_done(void *arg, const struct err *err) {
    call_told(arg, "{}", err);
}

void api_secret_list(struct call *c) {
    service_secret_list(c->service, &c->who, call_told, c);
}

void api_secret_set(struct call *c) {
    service_secret_set(c->service, &c->who, c->params[0], c->request, answer_done, c);
}

void api_secret_remove(struct call *c) {
    service_secret_remove(c->service, &c->who, c->params[0], answer_done, c);
}
