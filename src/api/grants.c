/* Grants of a machine: list, add, diff and revoke. */
#include "service/grants/grants.h"

#include "api/bodies.h"
#include "api/route.h"

void api_grant_list(struct call *c) {
    service_grant_list(c->service, &c->who, c->params[0], call_told, c);
}

void api_grant_add(struct call *c) {
    struct err err;
    if (c->nfds > 1) {
        err_set(&err, ERR_INVALID,
                "a request for a grant takes at most one file descriptor, not %zu", c->nfds);
        call_error(c, &err);
        return;
    }
    service_grant_add(c->service, &c->who, c->params[0], c->request, c->nfds ? c->fds[0] : -1,
                      call_told, c);
}

void api_grant_diff(struct call *c) {
    service_grant_diff(c->service, &c->who, c->params[0], c->params[1], call_told, c);
}

void api_grant_revoke(struct call *c) {
    service_grant_revoke(c->service, &c->who, c->params[0], c->params[1], call_told, c);
}
