/*
 * Requests of protocol version 2026-07-28: each one says by itself what it needs, and a question to
 * the client is a result that the client answers by repeating its request.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "mcp/mcp.h"
#include "mcp/mcp_inner.h"

#define META "io.modelcontextprotocol/"

static const json_t *meta_of(const json_t *message) {
    return json_object_get(json_object_get(message, "params"), "_meta");
}

const char *mcp_stateless_version(const json_t *message) {
    return mcp_member(meta_of(message), META "protocolVersion");
}

bool mcp_is_stateless(const json_t *message) {
    const char *method = mcp_member(message, "method");
    return json_object_get(meta_of(message), META "protocolVersion") ||
           (method && strcmp(method, "server/discover") == 0);
}

unsigned mcp_abilities_in(const json_t *can) {
    return (json_is_object(json_object_get(can, "elicitation")) ? MCP_CAN_ELICIT : 0) |
           (json_is_object(json_object_get(can, "sampling")) ? MCP_CAN_SAMPLE : 0) |
           (json_is_object(json_object_get(can, "roots")) ? MCP_CAN_LIST_ROOTS : 0);
}

/* Without a log level in the request, its client gets no log messages. */
void mcp_stateless_request(struct mcp_request *r) {
    const json_t *meta = meta_of(r->message);
    const char *level = mcp_member(meta, META "logLevel");
    r->stateless = true;
    r->abilities = mcp_abilities_in(json_object_get(meta, META "clientCapabilities"));
    r->level = MCP_EMERGENCY + 1;
    for (int i = MCP_DEBUG; level && i <= MCP_EMERGENCY; i++)
        if (strcmp(mcp_level_names[i], level) == 0)
            r->level = i;
}

/* ---- server/discover ---- */

static enum mcp_receipt do_discover(struct mcp_session *s, const json_t *message, void *stream) {
    struct buf out DEFER(buf_done) = BUF(64 << 10);
    struct jot j = JOT(&out);
    json_t *versions DEFER(json_decrefp) = json_loads(mcp_versions_json(), 0, NULL);
    char *list DEFER_FREE = json_dumps(json_object_get(versions, "supported"), JSON_COMPACT);
    jot_object(&j, NULL);
    jot_raw(&j, "supportedVersions", list ? list : "[]");
    mcp_put_capabilities(&j, false);
    mcp_put_instructions(s, &j);
    jot_object(&j, "_meta");
    mcp_put_server(&j, s->backend, META "serverInfo");
    jot_end(&j, '}');
    jot_end(&j, '}');
    mcp_answer_now(s, message, stream, &out);
    return MCP_ASKED;
}

/* ---- requests ---- */

static enum mcp_receipt refuse_version(struct mcp_session *s, const json_t *message, void *stream,
                                       const char *version) {
    json_t *data DEFER(json_decrefp) = json_loads(mcp_versions_json(), 0, NULL);
    json_object_set_new(data, "requested", json_string(version));
    char *text DEFER_FREE = json_dumps(data, JSON_COMPACT);
    return mcp_refuse_with(s, message, stream, MCP_NO_VERSION,
                           "this version of the protocol is not supported", text, 400);
}

enum mcp_receipt mcp_take_stateless(struct mcp_session *s, const json_t *message,
                                    const char *method, const json_t *params, void *stream) {
    const char *version = mcp_stateless_version(message);
    char text[160];
    bool first;
    if (!version || !json_is_object(json_object_get(meta_of(message), META "clientCapabilities")))
        return mcp_refuse_with(s, message, stream, MCP_PARAMS,
                               "params._meta must have the fields " META "protocolVersion and " META
                               "clientCapabilities",
                               NULL, 400);
    if (strcmp(version, MCP_VERSION_STATELESS) != 0)
        return refuse_version(s, message, stream, version);
    if (strcmp(method, "server/discover") == 0)
        return do_discover(s, message, stream);
    mcp_method_fn *answer = mcp_method_find(method, true, &first);
    if (answer)
        return answer(s, message, params, stream);
    snprintf(text, sizeof(text), "unknown MCP method '%.100s'", method);
    return mcp_refuse_with(s, message, stream, MCP_NO_METHOD, text, NULL, 404);
}

/* ---- questions ---- */

const json_t *mcp_input(const struct mcp_request *r, const char *name) {
    const json_t *answer = json_object_get(json_object_get(r->params, "inputResponses"), name);
    return json_is_object(answer) ? answer : NULL;
}

void mcp_need_input(struct mcp_request *r, const char *questions, const char *state) {
    struct buf out DEFER(buf_done) = BUF(MCP_MESSAGE_MAX);
    struct jot j = JOT(&out);
    mcp_begin_message(&j);
    mcp_put_id(&j, "id", mcp_id_of(r->message));
    jot_object(&j, "result");
    jot_string(&j, "resultType", "input_required");
    jot_raw(&j, "inputRequests", questions);
    if (state)
        jot_string(&j, "requestState", state);
    jot_end(&j, '}');
    jot_end(&j, '}');
    mcp_finish(r, &j);
}
