/*
 * A request of a program as JSON: if it is accepted, the strict parser reads exactly one request
 * from it, to the host in the URL. Any bytes as an answer: what is made of them is JSON.
 */
#include <stdlib.h>

#include "base/defer.h"
#include "base/text/json_check.h"
#include "io/http.h"
#include "service/exec/ask_http.h"

static void must(bool holds) {
    if (!holds)
        abort();
}

static void check_request(const char *json, size_t len) {
    struct buf out DEFER(buf_done) = BUF(ASK_RAW_MAX);
    struct http_parser parser;
    struct http_head head;
    bool is_tls;
    struct err err;
    if (ask_http_write(json, len, &out, &is_tls, &err) < 0)
        return;
    http_parse_begin(&parser, HTTP_REQUEST, &HTTP_LIMITS_DEFAULT, &head);
    if (http_parse(&parser, out.data, out.len) <= 0)
        return; /* the gate refuses it */
    must(head.form == HTTP_ABSOLUTE && !http_text_is(head.method, "CONNECT"));
    must(http_text_is_like(head.scheme, is_tls ? "https" : "http"));
    must(http_field_count(&head, "Host") == 1 && head.framing != HTTP_CHUNKED);
    must(!head.keep_alive && !head.upgrade);
    must(out.len - parser.used == (head.framing == HTTP_SIZED ? head.length : 0));
}

static void check_answer(const char *bytes, size_t len) {
    struct buf body DEFER(buf_done) = BUF(ASK_BYTES_MAX), out DEFER(buf_done) = BUF(ASK_BYTES_MAX);
    struct buf headers DEFER(buf_done) = BUF(256 << 10);
    struct err err;
    int status = ask_answer_read(bytes, len, false, &body, &headers, &err);
    if (status >= 0 && ask_answer_write(status, &headers, &body, &out))
        must(status >= 200 && json_check(out.data, out.len));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *)data;
    check_request(text, size);
    if (size > 0)
        check_answer(text, size);
    return 0;
}
