#include "service/exec/ask_http.h"

#include <jansson.h>
#include <string.h>
#include <strings.h>

#include "base/defer.h"
#include "base/jot.h"
#include "base/text/base64.h"
#include "base/utf8.h"
#include "io/http.h"
#include "service/models/models.h"

enum { ASK_URL_MAX = 8000, ASK_HEADERS_MAX = 64 };

static struct http_text ask_text(const char *s) {
    return (struct http_text){s, strlen(s)};
}

/* Fields that say where a request ends or goes; they are written here, or make no sense. */
static bool ask_is_framing(const char *name) {
    static const char *const names[] = {"Host",
                                        "Content-Length",
                                        "Transfer-Encoding",
                                        "Connection",
                                        "Keep-Alive",
                                        "Upgrade",
                                        "Trailer",
                                        "TE",
                                        "Expect",
                                        "Proxy-Authorization"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strcasecmp(names[i], name) == 0)
            return true;
    return false;
}

static int ask_put_headers(json_t *headers, struct buf *ret, struct err *err) {
    const char *name;
    json_t *value;
    if (headers && (!json_is_object(headers) || json_object_size(headers) > ASK_HEADERS_MAX))
        return err_set(err, ERR_INVALID, "'headers' must be an object with at most %d members",
                       ASK_HEADERS_MAX);
    json_object_foreach(headers, name, value) {
        if (ask_is_framing(name))
            return err_set(err, ERR_INVALID, "header '%.40s' cannot be set by a program", name);
        if (!json_is_string(value) ||
            !http_put_field(
                ret, ask_text(name),
                (struct http_text){json_string_value(value), json_string_length(value)}))
            return err_set(err, ERR_INVALID, "header '%.40s' is not valid", name);
    }
    return 0;
}

static int ask_body(json_t *o, struct buf *ret, struct err *err) {
    json_t *text = json_object_get(o, "body"), *coded = json_object_get(o, "body_base64");
    size_t n = 0;
    if (!text && !coded)
        return 0;
    if ((text && coded) || (text && !json_is_string(text)) || (coded && !json_is_string(coded)))
        return err_set(err, ERR_INVALID, "'body' or 'body_base64' must be a text");
    if (text)
        return buf_add(ret, json_string_value(text), json_string_length(text))
                   ? 0
                   : err_set(err, ERR_LIMIT, "the body is larger than 1 MiB");
    char *bytes DEFER_FREE = malloc(json_string_length(coded) + 1);
    if (!bytes || !base64_decode(json_string_value(coded), json_string_length(coded), bytes, &n) ||
        (n && !buf_add(ret, bytes, n)))
        return err_set(err, ERR_INVALID, "'body_base64' is not valid");
    return 0;
}

/* Writes the first lines. The gate checks the URL; here only the host is cut out of it. */
static int ask_put_start(const char *method, const char *url, struct buf *ret, bool *ret_tls,
                         struct err *err) {
    bool is_tls = strncasecmp(url, "https://", 8) == 0;
    bool is_url = is_tls || strncasecmp(url, "http://", 7) == 0;
    const char *host = url + (is_tls ? 8 : 7);
    if (!is_url || strlen(url) > ASK_URL_MAX)
        return err_set(err, ERR_INVALID, "'url' must be an http or https URL");
    size_t n = strcspn(host, "/?#");
    if (strchr(url, '#'))
        return err_set(err, ERR_INVALID, "'url' has a fragment, which is not sent");
    if (!http_is_token(ask_text(method)) || strcmp(method, "CONNECT") == 0 || strlen(method) > 16)
        return err_set(err, ERR_INVALID, "method '%.20s' is not valid", method);
    *ret_tls = is_tls;
    if (!http_put_request_line(ret, ask_text(method), ask_text(url)) ||
        !http_put_field(ret, HTTP_TEXT("Host"), (struct http_text){host, n}) ||
        !http_put_pairs(ret, HTTP_FIELDS({"Connection", "close"})))
        return err_set(err, ERR_INVALID, "'url' is not valid");
    return 0;
}

static int ask_put_end(const struct buf *body, struct buf *ret, struct err *err) {
    bool ok = (!body->len || http_put_number(ret, "Content-Length", body->len)) &&
              http_put_end(ret) && (!body->len || buf_add(ret, body->data, body->len));
    return ok ? 0 : err_set(err, ERR_LIMIT, "the request is larger than 1 MiB");
}

static int ask_write(json_t *o, struct buf *ret, bool *ret_tls, struct err *err) {
    struct buf body DEFER(buf_done) = BUF(ASK_BYTES_MAX);
    const char *url = json_string_value(json_object_get(o, "url"));
    json_t *method = json_object_get(o, "method");
    if (!url || (method && !json_is_string(method)))
        return err_set(err, ERR_INVALID, "the request must be an object with the text 'url'");
    if (ask_put_start(method ? json_string_value(method) : "GET", url, ret, ret_tls, err) < 0 ||
        ask_put_headers(json_object_get(o, "headers"), ret, err) < 0 || ask_body(o, &body, err) < 0)
        return -1;
    return ask_put_end(&body, ret, err);
}

int ask_http_write(const char *json, size_t len, struct buf *ret, bool *ret_tls, struct err *err) {
    json_t *o = json_loadb(json, len, JSON_REJECT_DUPLICATES, NULL);
    int r = o ? ask_write(o, ret, ret_tls, err)
              : err_set(err, ERR_INVALID, "the request is not a JSON object");
    json_decref(o);
    return r;
}

int ask_model_write(const char *json, size_t len, struct buf *ret, struct err *err) {
    struct buf body DEFER(buf_done) = BUF(ASK_BYTES_MAX);
    bool is_tls;
    if (ask_put_start("POST", "http://" MODELS_HOST "/v1/chat/completions", ret, &is_tls, err) < 0)
        return -1;
    if (!http_put_pairs(ret, HTTP_FIELDS({"Content-Type", "application/json"})) ||
        !buf_add(&body, json, len))
        return err_set(err, ERR_LIMIT, "the request is larger than 1 MiB");
    return ask_put_end(&body, ret, err);
}

/* ---- answers ---- */

static bool ask_keep_headers(const struct http_head *h, struct buf *ret) {
    struct jot j = JOT(ret);
    jot_array(&j, NULL);
    for (size_t i = 0; i < h->count; i++) {
        jot_array(&j, NULL);
        jot_bytes(&j, NULL, h->fields[i].name.s, h->fields[i].name.n);
        jot_bytes(&j, NULL, h->fields[i].value.s, h->fields[i].value.n);
        jot_end(&j, ']');
    }
    jot_end(&j, ']');
    return !j.failed;
}

static int ask_broken(struct err *err) {
    return err_set(err, ERR_UNKNOWN, "the answer is cut off or malformed");
}

static int ask_read_body(const struct http_head *h, const char *bytes, size_t len,
                         struct buf *ret_body, struct err *err) {
    struct http_body body;
    int r = h->framing == HTTP_NO_BODY;
    http_body_begin(&body, h);
    while (!r && len) {
        size_t used = 0;
        struct http_text data;
        r = http_body_next(&body, bytes, len, &used, &data);
        if (r < 0 || (data.n && !buf_add(ret_body, data.s, data.n)) || (!used && !r))
            return ask_broken(err);
        bytes += used;
        len -= used;
    }
    return r > 0 || http_body_at_close(&body) ? 0 : ask_broken(err);
}

int ask_answer_read(const char *bytes, size_t len, bool to_head, struct buf *ret_body,
                    struct buf *ret_headers, struct err *err) {
    struct http_parser parser;
    struct http_head head;
    do {
        http_parse_begin(&parser, HTTP_RESPONSE, &HTTP_LIMITS_DEFAULT, &head);
        parser.answers_head = to_head;
        if (http_parse(&parser, bytes, len) <= 0)
            return ask_broken(err);
        bytes += parser.used;
        len -= parser.used;
    } while (head.status < 200);
    if (!ask_keep_headers(&head, ret_headers))
        return err_set(err, ERR_LIMIT, "the head of the answer is too large");
    return ask_read_body(&head, bytes, len, ret_body, err) < 0 ? -1 : head.status;
}

bool ask_answer_write(int status, const struct buf *headers, const struct buf *body,
                      struct buf *ret) {
    const char *bytes = body->len ? body->data : "";
    struct jot j = JOT(ret);
    jot_object(&j, NULL);
    jot_u64(&j, "status", (uint64_t)status);
    jot_raw(&j, "headers", headers->data);
    if (utf8_valid(bytes, body->len)) {
        jot_bytes(&j, "body", bytes, body->len);
    } else {
        char *coded DEFER_FREE = malloc(BASE64_SIZE(body->len));
        if (!coded)
            return false;
        base64_encode(bytes, body->len, coded);
        jot_string(&j, "body_base64", coded);
    }
    jot_end(&j, '}');
    return !j.failed;
}
