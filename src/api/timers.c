/* Timers of machines: commands at set times. */
#include "service/timers/timers.h"

#include "api/bodies.h"
#include "api/route.h"

void api_timer_list(struct call *c) {
    service_timer_list(c->service, &c->who, c->params[0], call_told, c);
}

void api_timer_add(struct call *c) {
    service_timer_add(c->service, &c->who, c->params[0], c->request, call_told, c);
}

void api_timer_remove(struct call *c) {
    service_timer_remove(c->service, &c->who, c->params[0], c->params[1], call_told, c);
}
