/* State of joined MCP servers. Private to src/tools/joined*.c. */
#pragma once

#include "tools/coproc.h"
#include "tools/joined.h"
#include "tools/toolbox.h"

struct joined_call;

enum joined_state {
    JOINED_OFF,
    JOINED_REPLACES, /* an older process of this server ends first */
    JOINED_GREETS,
    JOINED_LISTS,
    JOINED_READY,
};

struct joined {
    struct joins *all;
    struct join join;
    enum joined_state state;
    struct coproc *coproc;
    char machine[ID_SIZE];
    uint64_t ids;     /* the last id that was used */
    uint64_t awaited; /* id of initialize or tools/list */
    size_t noise;     /* bytes since the last answer that was awaited */
    size_t pages;
    bool listed; /* its tools are known */
    bool failed; /* it did not list its tools: not tried again */
    char fault[200];
    struct loop_timer *patience;
    struct joined_call *calls;
    size_t call_count;
    struct joined_tool *tools[JOINED_TOOLS_MAX];
    size_t tool_count;
};

struct joins {
    struct toolbox *box;
    struct joined servers[JOINS_MAX];
    size_t count;
    struct act *waiting; /* calls of join_tool */
};

/* joined.c: the handler of all tools of servers, and their results as text. */
void tool_joined(struct act *a);
void plain_joined(const void *view, struct buf *out);

/* joined_list.c: adds the tools of a result of tools/list. */
void joined_take_tools(struct joined *s, const json_t *result);
/* Copies a text, without invisible characters and at most max bytes, to a buffer. */
void joined_clean_text(const char *text, size_t max, struct buf *out);
