#include "service/secrets.h"

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

static void answer_done(void *arg, const struct err *err) {
    answer_text(arg, "{}", err);
}

void api_secret_list(struct call *c) {
    service_secret_list(c->service, &c->who, answer_text, c);
}

void api_secret_set(struct call *c) {
    service_secret_set(c->service, &c->who, c->params[0], c->request, answer_done, c);
}

void api_secret_remove(struct call *c) {
    service_secret_remove(c->service, &c->who, c->params[0], answer_done, c);
}
