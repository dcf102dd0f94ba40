/* Backups of machines. */
#include "service/backups/backups.h"

#include "api/bodies.h"
#include "api/route.h"

void api_backup_take(struct call *c) {
    service_backup_take(c->service, &c->who, c->params[0], call_told, c);
}

void api_backup_list(struct call *c) {
    service_backup_list(c->service, &c->who, call_query(c, "machine"), call_told, c);
}

void api_backup_verify(struct call *c) {
    service_backup_verify(c->service, &c->who, c->params[0], call_told, c);
}

void api_backup_forget(struct call *c) {
    service_backup_forget(c->service, &c->who, c->params[0], call_told, c);
}

void api_backup_prune(struct call *c) {
    service_backup_prune(c->service, &c->who, c->params[0], c->request, call_told, c);
}

void api_backup_restore(struct call *c) {
    service_backup_restore(c->service, &c->who, c->params[0], c->request, call_machine_told, c);
}
