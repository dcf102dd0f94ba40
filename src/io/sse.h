/*
 * Writes server-sent events, the answer to a GET of "text/event-stream".
 *
 * Pure: appends to a buffer. On false the buffer is unchanged: it is full, or an id or name
 * contains a character that would break the stream.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* An event. A client sends the last `id` back in Last-Event-ID. NULL leaves a part out. */
struct sse_event {
    const char *id;
    const char *name;
    const char *data; /* may have several lines */
    size_t n;
    unsigned retry_ms; /* 0: left out */
};
bool sse_put(struct buf *b, const struct sse_event *event) __attribute__((warn_unused_result));

/* A comment line, which clients ignore: keeps proxies from timing out and detects dead peers. */
bool sse_put_comment(struct buf *b, const char *text) __attribute__((warn_unused_result));
