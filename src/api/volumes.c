/* Volumes of an owner: disks that outlive machines. */
#include "service/volumes/volumes.h"

#include "api/bodies.h"
#include "api/route.h"

void api_volume_list(struct call *c) {
    service_volume_list(c->service, &c->who, call_told, c);
}

void api_volume_create(struct call *c) {
    service_volume_create(c->service, &c->who, c->request, call_told, c);
}

void api_volume_show(struct call *c) {
    service_volume_show(c->service, &c->who, c->params[0], call_told, c);
}

void api_volume_snap(struct call *c) {
    service_volume_snap(c->service, &c->who, c->params[0], c->request, call_told, c);
}

void api_volume_remove(struct call *c) {
    service_volume_remove(c->service, &c->who, c->params[0], call_told, c);
}
