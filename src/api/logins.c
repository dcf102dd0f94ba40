/* Subscription logins of an owner. A request can set one, but no response contains a token. */
#include "api/bodies.h"
#include "api/route.h"
#include "service/models/models.h"

static void login_answer(void *arg, const struct err *err) {
    call_told(arg, "{}", err);
}

void api_login_list(struct call *c) {
    service_login_list(c->service, &c->who, call_told, c);
}

void api_login_set(struct call *c) {
    service_login_set(c->service, &c->who, c->params[0], c->request, login_answer, c);
}

void api_login_remove(struct call *c) {
    service_login_remove(c->service, &c->who, c->params[0], login_answer, c);
}
