/*
 * State of an MCP session, shared by face.c and resources.c.
 *
 * A session sees only its own machines: every resource is checked against its toolbox.
 */
#pragma once

#include "api/mcp/face.h"
#include "mcp/http.h"
#include "tools/joined.h"
#include "tools/tool.h"

enum { TRANSCRIPT_MAX = 1 << 20, RESOURCE_MAX = 4 << 20, WATCHED_URI_SIZE = 1024 };

/* A subscribed resource, and its state when it was last checked. */
struct watched {
    struct watched *next;
    uint64_t seen[3];
    char uri[];
};

/* One MCP session. */
struct mcp_user {
    struct mcp_face *face;
    uint32_t refs;
    struct mcp_session *session; /* NULL: the session has ended */
    struct toolbox *box;
    struct caller who;
    struct buf transcript; /* one JSON line per tool call */
    struct watched *watched;
    struct mcp_user *next, **at;
};

struct mcp_face {
    struct loop *loop;
    struct service *service;
    struct mcp_http *http;
    struct mcp_user *users;
    bool leaving;
};

/* The caller of a request and the query, kept until the session is open. */
struct mcp_who {
    struct caller who;
    char key[40];                /* from `carrel mcp`: finds the machine of an earlier session */
    char machine[128];           /* machine that the session is bound to; "": none */
    char talk[TOOLBOX_KEY_SIZE]; /* from `carrel mcp`: id of the conversation, which outlives the
                                    daemon; "": a new conversation */
    enum tool_set set;
    struct join joins[JOINS_MAX];
    size_t join_count;
};

/* Reads the query of a connection. */
int mcp_read_words(struct http_text query, struct mcp_who *ret, struct err *err);

void user_ref(struct mcp_user *u);
void user_unref(struct mcp_user *u);

/* A URI carrel://MACHINE/KIND[/NAME]. resource_parse() accepts only machines of the session. */
enum resource_kind { RESOURCE_FILE, RESOURCE_LOG, RESOURCE_TRANSCRIPT };
struct resource {
    enum resource_kind kind;
    char machine[ID_SIZE];
    char path[4096]; /* file: absolute path; log: id of the command */
};
int resource_parse(struct mcp_user *u, const char *uri, struct resource *ret, struct err *err);

bool resources_list(struct mcp_user *u, size_t from, size_t max, struct jot *j);
bool templates_list(size_t from, size_t max, struct jot *j);
void resource_read(struct mcp_user *u, struct mcp_request *r);
int resource_watch(struct mcp_user *u, const char *uri, bool on, struct err *err);
void resources_unwatch_all(struct mcp_user *u);
/* Call it after a tool call in `machine` ("": none). It notifies the client of subscribed resources
 * that have changed. */
void resources_step(struct mcp_user *u, const char *machine);

bool prompts_list(size_t from, size_t max, struct jot *j);
void prompt_get(struct mcp_request *r);
void complete(struct mcp_user *u, struct mcp_request *r);

/* Answers with the JSON in j, or with an error if it became too large. */
void answer_jot(struct mcp_request *r, const struct jot *j);
