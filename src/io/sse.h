/*
 * Server-sent events, written: what a GET of "text/event-stream" is answered with.
 *
 * Pure: appends to a buffer. A false return leaves the buffer as it was: it is full, or an id or
 * a name holds what would break the stream apart.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* What a client repeats in Last-Event-ID; NULL leaves a part out. */
struct sse_event {
    const char *id;
    const char *name;
    const char *data; /* may hold line ends of any kind */
    size_t n;
    unsigned retry_ms; /* 0: not said */
};
bool sse_put(struct buf *b, const struct sse_event *event) __attribute__((warn_unused_result));

/* A line that no client shows: keeps proxies and dead peers from going unnoticed. */
bool sse_put_comment(struct buf *b, const char *text) __attribute__((warn_unused_result));
