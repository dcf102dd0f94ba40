/*
 * The sandbox that a request of the data plane is for. Traffic finds it by its id alone, so each
 * user of a target checks the token that the request needs.
 */
#pragma once

#include "io/http.h"
#include "service/access/machine_tokens.h"
#include "service/service.h"

/* Ports of envd and of the code interpreter, which are no programs of the sandbox. */
enum { E2B_CONTROL_PORT = 49983, E2B_CODE_PORT = 49999 };

struct e2b_target {
    char id[ID_SIZE];
    char token[MACHINE_TOKEN_SIZE]; /* the access token */
    struct caller owner;
    bool runs, resumes; /* resumes: it is paused, and traffic resumes it */
    bool is_private;    /* its ports need the traffic token */
    bool as_image;      /* E2B_AS_IMAGE */
    uint64_t ttl_ms;    /* its lifetime once traffic resumed it */
    const char *on_ttl; /* what ends it then */
};

/* client: for the journal. False: there is no such sandbox, or it neither runs nor resumes. */
bool e2b_target_find(struct service *s, struct http_text label, const char *client,
                     struct e2b_target *ret);
/* True: the token is the one that this use needs. */
bool e2b_target_has_token(struct service *s, const struct e2b_target *t, enum machine_token_use use,
                          struct http_text token);
/* Resumes a paused sandbox with a new lifetime. */
void e2b_resume(struct service *s, const struct caller *who, const char *id, const char *on_ttl,
                uint64_t ttl_ms, service_done_fn *done, void *arg);
/* Resumes it, and gives it the lifetime of its creation. */
void e2b_target_wake(struct service *s, const struct e2b_target *t, service_done_fn *done,
                     void *arg);
