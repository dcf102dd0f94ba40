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

/* mcp.c */
const char *mcp_member(const json_t *object, const char *name);
void mcp_put_id(struct jot *j, const char *name, const json_t *id);
void mcp_begin_message(struct jot *j);
const json_t *mcp_id_of(const json_t *message);
void mcp_send_text(struct mcp_session *s, void *stream, const struct jot *j, bool last);
enum mcp_receipt mcp_refuse_message(struct mcp_session *s, const json_t *message, void *stream,
                                    int code, const char *text);
bool mcp_same_id(const json_t *a, const json_t *b);

/* methods.c */
void mcp_subscription_drop(struct mcp_session *s, struct subscription **at);
enum mcp_receipt mcp_take_request(struct mcp_session *s, const json_t *message, const char *method,
                                  const json_t *params, void *stream);
