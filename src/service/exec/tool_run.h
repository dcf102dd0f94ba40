/*
 * Runs the guest's own tools (src/guest/tool.h) with their streams: pack, unpack, atomic write.
 *
 * A tool is a command of the machine without a row in the store: it ends with its caller. Both
 * directions have flow control, so a slow side makes the other wait and no buffer grows.
 */
#pragma once

#include "service/service.h"

struct tool_run;

struct tool_events {
    void *arg;
    /*
     * How long it may take, its wait to be started included: then `ended` comes with ERR_TIMEOUT.
     * For who reads with no client who would leave: a machine need not answer. 0: without end.
     */
    uint64_t limit_ms;
    /* Output; say tool_consumed() once it is out of the way. */
    void (*data)(void *arg, const uint8_t *p, uint32_t n);
    /* The tool has read: tool_feed() takes more. */
    void (*room)(void *arg);
    /*
     * The last word; the run is gone after it. status: enum msg_tool_status, or -1 with err. said:
     * what it wrote to stderr; answer: its stdout when `data` is NULL.
     */
    void (*ended)(void *arg, int status, const char *answer, const char *said,
                  const struct err *err);
};

/* verb: for the journal. argv: NULL-terminated. NULL with *err: it was not started. */
struct tool_run *service_tool(struct service *s, const struct caller *who, const char *machine,
                              const char *verb, const char *const *argv, const char *user,
                              const struct tool_events *events, struct err *err);

/* Standard input; returns how much was taken. With eof and all taken the input is closed. */
size_t tool_feed(struct tool_run *t, const void *bytes, size_t n, bool eof);
void tool_consumed(struct tool_run *t, uint64_t bytes);

/* Kills it; no more events come. Not from one of its events. */
void tool_cancel(struct tool_run *t);
/* The same from anywhere: it says no more, and `ended` comes with that error soon. */
void tool_stop(struct tool_run *t, const struct err *why);

/* "ERRNO WHAT PATH", what a tool that failed said on stderr, as an error. */
void tool_said(const char *said, struct err *err);
