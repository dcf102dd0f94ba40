/*
 * State of one MCP session. Private to src/mcp/mcp.c and methods.c.
 *
 * A session does not depend on a transport: it sends messages through `wire`.
 */
#pragma once

#include <inttypes.h>

#include "base/parse.h"
#include "mcp/mcp.h"

struct subscription {
    struct subscription *next;
    char uri[];
};

struct mcp_session {
    const struct mcp_backend *backend;
    void *backend_arg;
    struct mcp_wire wire;
    bool greeted; /* initialize was answered */
    unsigned abilities;
    enum mcp_level level;
    struct mcp_request *requests;
    size_t request_count;
    struct subscription *subscriptions;
    size_t subscription_count;
    uint64_t asked;
    char client[128];
};

extern const char *const mcp_level_names[8];

/* Members of results that clients must not keep: they depend on the client and change. */
#define MCP_UNCACHED "\"ttlMs\":0,\"cacheScope\":\"private\""

/* mcp.c */
const char *mcp_member(const json_t *object, const char *name);
void mcp_put_id(struct jot *j, const char *name, const json_t *id);
void mcp_begin_message(struct jot *j);
const json_t *mcp_id_of(const json_t *message);
void mcp_send_text(struct mcp_session *s, void *stream, const struct jot *j, bool last);
enum mcp_receipt mcp_refuse_message(struct mcp_session *s, const json_t *message, void *stream,
                                    int code, const char *text);
bool mcp_same_id(const json_t *a, const json_t *b);

void mcp_finish(struct mcp_request *r, const struct jot *j);
void mcp_put_result(struct jot *j, const char *result, size_t n, const char *members);
enum mcp_receipt mcp_refuse_with(struct mcp_session *s, const json_t *message, void *stream,
                                 int code, const char *text, const char *data, int status);

/* stateless.c */
enum mcp_receipt mcp_take_stateless(struct mcp_session *s, const json_t *message,
                                    const char *method, const json_t *params, void *stream);
unsigned mcp_abilities_in(const json_t *capabilities);
void mcp_stateless_request(struct mcp_request *r);

/* methods.c */
void mcp_put_capabilities(struct jot *j, bool subscribe);
/* Writes the instructions for the model, with a description of its machine. */
void mcp_put_instructions(const struct mcp_session *s, struct jot *j);
void mcp_put_server(struct jot *j, const struct mcp_backend *b, const char *name);
void mcp_answer_now(struct mcp_session *s, const json_t *message, void *stream,
                    const struct buf *result);
typedef enum mcp_receipt mcp_method_fn(struct mcp_session *s, const json_t *message,
                                       const json_t *params, void *stream);
/* NULL: unknown. stateless: only methods of version 2026-07-28. */
mcp_method_fn *mcp_method_find(const char *name, bool stateless, bool *ret_first);
void mcp_subscription_drop(struct mcp_session *s, struct subscription **at);
enum mcp_receipt mcp_take_request(struct mcp_session *s, const json_t *message, const char *method,
                                  const json_t *params, void *stream);
