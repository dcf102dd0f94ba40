/* The MCP server: tools, files, logs and the transcript of machines, over mcp/http.h.
 * An MCP caller has at most the scopes read and run, even if it is the owner. It sees only the
 * machines that its session created, or the one machine it is bound to.
 */
#pragma once

#include "io/http_server.h"
#include "service/service.h"

struct mcp_face;

struct mcp_face *mcp_face_new(struct loop *loop, struct service *service);
void mcp_face_free(struct mcp_face *f);
size_t mcp_face_busy(const struct mcp_face *f);

/* Handles one request for /mcp of an authenticated caller. */
void mcp_face_take(struct mcp_face *f, struct http_exchange *x, const struct caller *who);
