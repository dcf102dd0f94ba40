/*
 * Runs the guest's own tools (src/guest/tool.h) with their streams: pack, unpack, atomic write.
 *
 * A tool is a command of the machine without a row in the store: it ends when its caller does. Both
 * directions have flow control, so a slow side makes the other wait and no buffer grows.
 */
#pragma once

#include "service/service.h"

struct tool_run;

struct tool_events {
    void *arg;
    /*
     * Time limit, including the wait for the start: then `ended` is called with ERR_TIMEOUT. Needed
     * by callers without a client that could give up, since a machine may never answer. 0: none.
     */
    uint64_t limit_ms;
    /* Output. Call tool_consumed() when it is processed. */
    void (*data)(void *arg, const uint8_t *p, uint32_t n);
    /* The tool has read input: tool_feed() takes more. */
    void (*room)(void *arg);
    /*
     * The last call; the run is freed after it. status: enum msg_tool_status, or -1 with err. said:
     * its stderr; answer: its stdout if `data` is NULL.
     */
    void (*ended)(void *arg, int status, const char *answer, const char *said,
                  const struct err *err);
};

/* verb: for the journal. argv: NULL-terminated. NULL with *err: not started. */
struct tool_run *service_tool(struct service *s, const struct caller *who, const char *machine,
                              const char *verb, const char *const *argv, const char *user,
                              const struct tool_events *events, struct err *err);

/*
 * Writes standard input and returns the number of bytes taken. eof closes the input once all is
 * taken.
 */
size_t tool_feed(struct tool_run *t, const void *bytes, size_t n, bool eof);
void tool_consumed(struct tool_run *t, uint64_t bytes);

/* Kills the tool; no more calls follow. Do not call it from one of the events. */
void tool_cancel(struct tool_run *t);
/* Like tool_cancel(), but may be called from an event: no more data follows, and `ended` is called
 * soon with this error. */
void tool_stop(struct tool_run *t, const struct err *why);

/* Turns "ERRNO WHAT PATH", the stderr of a failed tool, into an error. */
void tool_said(const char *said, struct err *err);
