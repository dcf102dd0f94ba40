#include <stdio.h>
#include <string.h>

#include "io/http.h"
#include "io/http_inner.h"

static const struct {
    int status;
    const char *name;
} names[] = {
    {100, "100 Continue"},
    {101, "101 Switching Protocols"},
    {200, "200 OK"},
    {201, "201 Created"},
    {202, "202 Accepted"},
    {204, "204 No Content"},
    {206, "206 Partial Content"},
    {301, "301 Moved Permanently"},
    {302, "302 Found"},
    {303, "303 See Other"},
    {304, "304 Not Modified"},
    {307, "307 Temporary Redirect"},
    {308, "308 Permanent Redirect"},
    {400, "400 Bad Request"},
    {401, "401 Unauthorized"},
    {402, "402 Payment Required"},
    {403, "403 Forbidden"},
    {404, "404 Not Found"},
    {405, "405 Method Not Allowed"},
    {406, "406 Not Acceptable"},
    {407, "407 Proxy Authentication Required"},
    {408, "408 Request Timeout"},
    {409, "409 Conflict"},
    {410, "410 Gone"},
    {411, "411 Length Required"},
    {412, "412 Precondition Failed"},
    {413, "413 Content Too Large"},
    {414, "414 URI Too Long"},
    {415, "415 Unsupported Media Type"},
    {416, "416 Range Not Satisfiable"},
    {417, "417 Expectation Failed"},
    {421, "421 Misdirected Request"},
    {422, "422 Unprocessable Content"},
    {426, "426 Upgrade Required"},
    {428, "428 Precondition Required"},
    {429, "429 Too Many Requests"},
    {431, "431 Request Header Fields Too Large"},
    {451, "451 Unavailable For Legal Reasons"},
    {500, "500 Internal Server Error"},
    {501, "501 Not Implemented"},
    {502, "502 Bad Gateway"},
    {503, "503 Service Unavailable"},
    {504, "504 Gateway Timeout"},
    {505, "505 HTTP Version Not Supported"},
    {507, "507 Insufficient Storage"},
};

const char *http_status_name(int status) {
    size_t low = 0, high = sizeof(names) / sizeof(*names);
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (names[mid].status == status)
            return names[mid].name;
        if (names[mid].status < status)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

/* Appends all parts or none: a partly written line would merge with the next field. */
static bool http_put(struct buf *b, const struct http_text *parts, size_t count) {
    size_t before = b->len;
    for (size_t i = 0; i < count; i++)
        if (!buf_add(b, parts[i].s, parts[i].n)) {
            http_roll_back(b, before);
            return false;
        }
    return true;
}
#define PUT(b, ...)                                        \
    http_put((b), (const struct http_text[]){__VA_ARGS__}, \
             sizeof((const struct http_text[]){__VA_ARGS__}) / sizeof(struct http_text))

bool http_put_request_line(struct buf *b, struct http_text method, struct http_text target) {
    if (!http_is_token(method) || target.n == 0 ||
        http_span(target.s, target.n, HTTP_CH_TARGET | HTTP_CH_HOST) != target.n)
        return false;
    return PUT(b, method, HTTP_TEXT(" "), target, HTTP_TEXT(" HTTP/1.1\r\n"));
}

bool http_put_status_line(struct buf *b, int status) {
    const char *name = http_status_name(status);
    char number[8];
    if (status < 100 || status > 599)
        return false;
    if (!name)
        snprintf(number, sizeof(number), "%d ", status);
    name = name ? name : number;
    return PUT(b, HTTP_TEXT("HTTP/1.1 "), {name, strlen(name)}, HTTP_TEXT("\r\n"));
}

bool http_put_field(struct buf *b, struct http_text name, struct http_text value) {
    if (!http_is_token(name) || http_span(value.s, value.n, HTTP_CH_VALUE) != value.n)
        return false;
    return PUT(b, name, HTTP_TEXT(": "), value, HTTP_TEXT("\r\n"));
}

bool http_put_end(struct buf *b) {
    return PUT(b, HTTP_TEXT("\r\n"));
}

bool http_put_pairs(struct buf *b, const struct http_pair *pairs) {
    size_t before = b->len;
    for (; pairs && pairs->name; pairs++)
        if (!http_put_field(b, (struct http_text){pairs->name, strlen(pairs->name)},
                            (struct http_text){pairs->value, strlen(pairs->value)})) {
            http_roll_back(b, before);
            return false;
        }
    return true;
}

bool http_put_number(struct buf *b, const char *name, uint64_t value) {
    char digits[20];
    size_t at = sizeof(digits);
    do
        digits[--at] = (char)('0' + value % 10);
    while (value /= 10);
    return http_put_field(b, (struct http_text){name, strlen(name)},
                          (struct http_text){digits + at, sizeof(digits) - at});
}

static bool put_first_line(struct buf *b, const struct http_head *h) {
    struct http_text version = h->minor ? HTTP_TEXT("HTTP/1.1") : HTTP_TEXT("HTTP/1.0");
    char number[16];
    if (h->kind == HTTP_REQUEST)
        return PUT(b, h->method, HTTP_TEXT(" "), h->target, HTTP_TEXT(" "), version,
                   HTTP_TEXT("\r\n"));
    int n = snprintf(number, sizeof(number), " %d ", h->status);
    return PUT(b, version, {number, (size_t)n}, h->reason, HTTP_TEXT("\r\n"));
}

bool http_put_head(struct buf *b, const struct http_head *h) {
    size_t before = b->len;
    bool whole = put_first_line(b, h);
    for (size_t i = 0; whole && i < h->count; i++)
        whole = http_put_field(b, h->fields[i].name, h->fields[i].value);
    if (whole && http_put_end(b))
        return true;
    http_roll_back(b, before);
    return false;
}

size_t http_chunk_line(char to[HTTP_CHUNK_LINE_MAX], uint64_t n) {
    char digits[16];
    size_t count = 0;
    do {
        digits[count++] = "0123456789abcdef"[n & 15];
        n >>= 4;
    } while (n);
    for (size_t i = 0; i < count; i++)
        to[i] = digits[count - 1 - i];
    to[count] = '\r';
    to[count + 1] = '\n';
    return count + 2;
}
