/*
 * The data plane of the E2B face: commands, files and watches of one sandbox, as E2B's envd
 * answers them. Procedures are Connect with JSON over HTTP/1.1, files are plain HTTP.
 *
 * The caller found the sandbox and knows if the request has its token. This face knows nothing of
 * sandboxes: it acts on a machine in the name of its owner.
 */
#pragma once

#include "io/http_server.h"
#include "service/service.h"

struct envd;

struct envd *envd_new(struct loop *loop, struct service *service);
/* Ends all streams. The last request in progress frees it. */
void envd_free(struct envd *e);
size_t envd_busy(const struct envd *e); /* number of requests in progress */

struct envd_sandbox {
    const struct caller *who; /* its owner */
    const char *machine;      /* id of its machine */
    const char *token;        /* for signatures of the paths of files */
    bool authorised;          /* the request has the token */
    bool as_image;            /* the user and directory of its image are the default ones */
};

/* Take over the exchange: at the port of envd, and at that of the code interpreter. */
void envd_take(struct envd *e, struct http_exchange *x, const struct envd_sandbox *sandbox);
void envd_take_code(struct envd *e, struct http_exchange *x, const struct envd_sandbox *sandbox);

/* The same for the files of a volume, which the machine serves. The call leaves it at its end. */
struct envd_method;
void envd_take_volume(struct envd *e, struct http_exchange *x, const struct caller *who,
                      const char *machine, const struct envd_method *m, bool has_body);

/* Answers a request that the HTTP server refuses, for example because its body is too long. */
void envd_refused(struct http_exchange *x, int status, const char *why);

/* True: the request has a signature; a valid one; or one of this token, perhaps expired. */
bool envd_has_signature(const struct http_exchange *x);
bool envd_is_signed_now(const struct http_exchange *x, const char *token);
bool envd_is_signed_by(const struct http_exchange *x, const char *token);
