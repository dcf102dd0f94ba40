/* The query of an MCP connection: its machine, its tools, and the MCP servers that it joins. */
#include <string.h>

#include "api/mcp/inner.h"
#include "io/http_uri.h"

static int mcp_take_word(struct http_text value, char *to, size_t size, struct err *err) {
    size_t n;
    if (http_decode_query(value, to, size, &n) < 0 || strlen(to) != n)
        return err_set(err, ERR_INVALID, "a query parameter is malformed or too long");
    return 0;
}

static int mcp_take_set(struct http_text value, enum tool_set *ret, struct err *err) {
    char text[64];
    return mcp_take_word(value, text, sizeof(text), err) < 0 ? -1 : tool_set_parse(text, ret, err);
}

/* NAME=COMMAND. The command runs in the machine, where the caller may run any command. */
static int mcp_take_join(struct http_text value, struct mcp_who *ret, struct err *err) {
    char text[JOIN_NAME_SIZE + JOIN_COMMAND_SIZE];
    struct join join;
    if (ret->join_count == JOINS_MAX)
        return err_set(err, ERR_LIMIT, "a connection can join at most %d MCP servers", JOINS_MAX);
    if (mcp_take_word(value, text, sizeof(text), err) < 0 || join_parse(text, &join, err) < 0)
        return -1;
    for (size_t i = 0; i < ret->join_count; i++)
        if (strcmp(ret->joins[i].name, join.name) == 0)
            return err_set(err, ERR_INVALID, "two MCP servers have the name '%s'", join.name);
    ret->joins[ret->join_count++] = join;
    return 0;
}

int mcp_read_words(struct http_text query, struct mcp_who *ret, struct err *err) {
    struct http_text key, value;
    while (query.s && http_query_next(&query, &key, &value)) {
        int r;
        if (http_text_is(key, "machine"))
            r = mcp_take_word(value, ret->machine, sizeof(ret->machine), err);
        else if (http_text_is(key, "key"))
            r = mcp_take_word(value, ret->key, sizeof(ret->key), err);
        else if (http_text_is(key, "tools"))
            r = mcp_take_set(value, &ret->set, err);
        else if (http_text_is(key, "join"))
            r = mcp_take_join(value, ret, err);
        else
            r = err_set(err, ERR_INVALID,
                        "unknown query parameter '%.*s'; known parameters: machine, key, tools, "
                        "join",
                        (int)(key.n < 40 ? key.n : 40), key.s);
        if (r < 0)
            return -1;
    }
    return 0;
}
