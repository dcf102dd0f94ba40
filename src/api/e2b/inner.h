/* What the files of the E2B face share: a request, its answers, and sandboxes. */
#pragma once

#include <jansson.h>

#include "api/e2b/e2b.h"
#include "base/buf.h"
#include "base/jot.h"
#include "service/access/machine_tokens.h"
#include "service/schema.h"

#define E2B_ENVD_VERSION "0.6.13"
#define E2B_CLIENT_ID "carrel"
enum { E2B_ANSWER_MAX = 8 << 20, E2B_TEXT_SIZE = 128 };

struct e2b_call;

/* E2B_TEMPLATE: `sandbox` is a snapshot if the parameter names one, else the handler looks. */
enum e2b_object { E2B_NONE, E2B_SANDBOX, E2B_SNAPSHOT, E2B_TEMPLATE };
struct e2b_templates;
struct histories;

struct e2b_route {
    const char *method, *path;          /* "{}" is a parameter; there are two at most */
    enum token_scope scope;             /* that the key needs */
    const struct schema *request;       /* NULL: the body is ignored */
    void (*handle)(struct e2b_call *c); /* ends the call exactly once, now or later */
    enum e2b_object object;             /* what of the caller the parameter must name */
};

/* A sandbox, from the view of its machine. */
struct e2b_sandbox {
    char id[ID_SIZE];          /* of the machine */
    char label[ID_LABEL_SIZE]; /* the id for clients */
    char state[16];            /* of the machine */
    bool paused;               /* stopped machines too: a client resumes both in the same way */
    uint64_t created_ms, expires_ms, cpu_milli, mem_bytes, disk_bytes;
    json_t *metadata; /* of the client */
    json_t *own;      /* what the face noted: template, ... */
    json_t *volumes;  /* of the machine, if it was asked for alone; NULL: none */
};

struct e2b_call {
    struct e2b_face *face;
    struct service *service;
    struct http_exchange *http; /* NULL after the answer */
    const struct e2b_route *route;
    struct caller who;
    struct e2b_templates *templates;
    struct histories *histories;
    char param[E2B_TEXT_SIZE], param2[E2B_TEXT_SIZE];
    struct e2b_sandbox sandbox; /* with route->object */
    json_t *body;
    void *request; /* the body as the struct of route->request */
    int status;    /* for handlers that answer later */
};

/* Each of these functions sends the answer and ends the call. */
void e2b_answer(struct e2b_call *c, int status, const struct buf *text,
                const struct http_pair *more);
void e2b_done(struct e2b_call *c); /* 204 */
void e2b_done_with(struct e2b_call *c, const char *field, const char *value);
void e2b_accepted(struct e2b_call *c); /* 202, without a body */
void e2b_error(struct e2b_call *c, const struct err *err);
uint64_t e2b_status_of(const struct err *err);
void e2b_error_status(struct e2b_call *c, int status, const struct err *err);

/* The value of a query parameter, which the caller frees. 0: it is absent. -1: it is malformed. */
int e2b_query(const struct e2b_call *c, const char *name, char **ret, struct err *err);

/* ---- views.c ---- */

/* False: the machine is not a sandbox. */
bool e2b_sandbox_read(const struct machine_view *v, struct e2b_sandbox *ret);
/* The same for a snapshot, which is a machine that never runs. */
bool e2b_snapshot_read(const struct machine_view *v, struct e2b_sandbox *ret);
void e2b_sandbox_done(struct e2b_sandbox *b);
/* True: the face noted that at the creation of the sandbox. */
bool e2b_notes(const struct e2b_sandbox *b, const char *name);
/* What its client wants at the end of its lifetime. */
const char *e2b_on_ttl(const struct e2b_sandbox *b);
/* Metadata by which machines of the face are known. The value of the second key is JSON. */
#define E2B_KEY_FACE "carrel.face"
#define E2B_KEY_OWN "carrel.e2b"
/* A note: requests that name no user and directory get those of the image, which is a template. */
#define E2B_AS_IMAGE "as_image"
/* Keys that clients neither see nor set, up to a NULL: those of the face, and of forks. */
extern const char *const e2b_own_keys[];
#define E2B_FACE_SANDBOX "e2b"
#define E2B_FACE_SNAPSHOT "e2b-snapshot"

/* How clients reach a sandbox. */
struct e2b_access {
    char token[MACHINE_TOKEN_SIZE];
    char traffic[MACHINE_TOKEN_SIZE]; /* empty: its ports need no token */
    struct buf domain;                /* of host names of its ports; empty: there are none */
};
int e2b_access_find(const struct e2b_call *c, const struct e2b_sandbox *b, struct e2b_access *ret,
                    struct err *err);
void e2b_access_done(struct e2b_access *a);

/* Write one object each: an answer to create and connect, to info, and in a list. */
void e2b_put_sandbox(struct jot *j, const char *name, const struct e2b_sandbox *b,
                     const struct e2b_access *a);
void e2b_put_detail(struct jot *j, const struct e2b_sandbox *b, const struct e2b_access *a);
void e2b_put_listed(struct jot *j, const struct e2b_sandbox *b);
void e2b_put_time(struct jot *j, const char *name, uint64_t ms);
uint64_t e2b_cores(const struct e2b_sandbox *b);

/* ---- create.c ---- */

extern const struct schema e2b_create_schema;
void e2b_create(struct e2b_call *c);

/* ---- sandboxes.c ---- */

extern const struct schema e2b_timeout_schema;
void e2b_info(struct e2b_call *c);
void e2b_kill(struct e2b_call *c);
void e2b_timeout(struct e2b_call *c);
void e2b_refresh(struct e2b_call *c);
void e2b_pause(struct e2b_call *c);
void e2b_connect(struct e2b_call *c);

/* The end of a call that only changes a machine. */
void e2b_changed(void *arg, const struct machine_view *v, const struct err *err);

/* For an end that nobody waits for: the service has logged an error. */
void e2b_ignore(void *arg, const struct machine_view *v, const struct err *err);

/* ---- network.c ---- */

enum { E2B_RULES_MAX = 64 };
/* The rules for a new sandbox or a changed network. The targets belong to the JSON read. */
struct e2b_network {
    struct net_request rules[E2B_RULES_MAX];
    size_t count;
    bool has_internet; /* as the answers about the sandbox say */
};
int e2b_network_read(const struct conf *conf, const json_t *network, bool is_off,
                     struct e2b_network *ret, struct err *err);
extern const struct schema e2b_network_schema;
void e2b_network_put(struct e2b_call *c);

/* ---- copies.c and metrics.c ---- */

extern const struct schema e2b_fork_schema, e2b_snapshot_schema;
void e2b_fork(struct e2b_call *c);
void e2b_snapshot(struct e2b_call *c);
void e2b_snapshot_delete(struct e2b_call *c);
void e2b_snapshots(struct e2b_call *c);
void e2b_metrics(struct e2b_call *c);
void e2b_metrics_many(struct e2b_call *c);
/* GET /metrics in a sandbox. Ends the exchange, then calls over(). */
void e2b_metrics_take(struct service *s, struct http_exchange *x, const struct caller *owner,
                      const char *machine, loop_fn *over, void *arg);

/* ---- logs.c ---- */

void e2b_logs_v1(struct e2b_call *c);
void e2b_logs(struct e2b_call *c);

/* ---- volumes.c ---- */

extern const struct schema e2b_volume_schema;
void e2b_volumes(struct e2b_call *c);
void e2b_volume_create(struct e2b_call *c);
void e2b_volume_show(struct e2b_call *c);
void e2b_volume_delete(struct e2b_call *c);

enum { E2B_MOUNTS_MAX = 16 };
/* The volumes of a new sandbox. The paths belong to the request. */
struct e2b_mounts {
    char *names[E2B_MOUNTS_MAX];
    struct volume_use_request uses[E2B_MOUNTS_MAX];
    size_t count;
};
int e2b_mounts_read(const json_t *list, struct e2b_mounts *ret, struct err *err);
void e2b_mounts_done(struct e2b_mounts *m);
/* Writes `volumeMounts`. volumes: of the machine; NULL: not known, or none. */
void e2b_put_mounts(struct jot *j, const json_t *volumes);

/* ---- list.c ---- */

void e2b_list(struct e2b_call *c);
