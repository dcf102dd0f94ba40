/*
 * The MCP face: the tool table, files, logs and the transcript of machines, over mcp/http.h.
 *
 * Whoever comes through here has the scopes read and run at most, also the owner itself, and sees
 * only the machines that its own connection made, or the one it is bound to.
 */
#pragma once

#include "io/http_server.h"
#include "service/service.h"

struct mcp_face;

struct mcp_face *mcp_face_new(struct loop *loop, struct service *service);
void mcp_face_free(struct mcp_face *f);
size_t mcp_face_busy(const struct mcp_face *f);

/* One request for /mcp, of somebody who was authenticated. */
void mcp_face_take(struct mcp_face *f, struct http_exchange *x, const struct caller *who);
