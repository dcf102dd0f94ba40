/*
 * An HTTP request of a program, as bytes for the gate, and the gate's answer as JSON.
 *
 * Pure. The request is untrusted JSON; the gate parses and checks all of it again.
 */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"

enum { ASK_BYTES_MAX = 1 << 20, ASK_RAW_MAX = (1 << 20) + (128 << 10) };

/*
 * Reads {"url", "method", "headers", "body" or "body_base64"} and writes the request for a proxy.
 * *ret_tls: the URL is https.
 */
int ask_http_write(const char *json, size_t len, struct buf *ret, bool *ret_tls, struct err *err);
/* Writes the request of carrel.1.model.ask, whose body is `json`. */
int ask_model_write(const char *json, size_t len, struct buf *ret, struct err *err);

/* Splits a whole answer. The body is decoded into *ret_body. Returns the status, or -1. */
int ask_answer_read(const char *bytes, size_t len, bool to_head, struct buf *ret_body,
                    struct buf *ret_headers, struct err *err);
/* Writes {"status", "headers", "body" or "body_base64"}. False: it is too large. */
bool ask_answer_write(int status, const struct buf *headers, const struct buf *body,
                      struct buf *ret);
