/* The head of a message. Bodies are in http_body.c, writing in http_put.c, texts in http_text.c. */
#include "io/http.h"

#include <string.h>

#include "io/http_inner.h"

enum state { AT_START, AT_LINE, AT_FIELDS };

/* Header fields that decide where a message ends, or for which host it is, may occur only once. */
enum { SEEN_HOST = 1, SEEN_LENGTH = 2, SEEN_CODING = 4, SEEN_UPGRADE = 8, ASKED_UPGRADE = 16 };

void http_parse_begin(struct http_parser *p, enum http_kind kind, const struct http_limits *limits,
                      struct http_head *head) {
    *p = (struct http_parser){.head = head, .limits = *limits};
    if (p->limits.fields_max > HTTP_FIELDS_MAX)
        p->limits.fields_max = HTTP_FIELDS_MAX;
    /* `fields` is large and only its first `count` entries are used, so it is not cleared. */
    memset(head, 0, offsetof(struct http_head, fields));
    memset(&head->count, 0, sizeof(*head) - offsetof(struct http_head, count));
    head->kind = kind;
}

static int http_refuse(struct http_parser *p, int status, const char *why) {
    if (p->head->kind == HTTP_RESPONSE)
        status = 502;
    p->refusal = (struct http_refusal){status, why};
    p->failed = true;
    return -1;
}

/* Authorities: a name, IPv4 or [IPv6] address, and an optional port */

static size_t host_span(struct http_text a) {
    if (a.n == 0 || a.s[0] != '[')
        return http_span(a.s, a.n, HTTP_CH_HOST);
    size_t i = 1;
    while (i < a.n && (http_ch(a.s[i], HTTP_CH_HEX) || a.s[i] == ':' || a.s[i] == '.'))
        i++;
    return i > 2 && i < a.n && a.s[i] == ']' ? i + 1 : 0;
}

static bool is_authority(struct http_text a, bool needs_port) {
    size_t host = host_span(a);
    if (host == a.n)
        return !needs_port && (a.n == 0 || a.s[0] != ':');
    if (host == 0 || a.s[host] != ':')
        return false;
    size_t digits = a.n - host - 1;
    if (digits == 0 || digits > 5)
        return digits == 0 && !needs_port;
    unsigned port = 0;
    for (size_t i = host + 1; i < a.n; i++) {
        if (!http_ch(a.s[i], HTTP_CH_DIGIT))
            return false;
        port = port * 10 + (unsigned)(a.s[i] - '0');
    }
    return port <= 65535;
}

/* Request line */

static void split_query(struct http_head *h, const char *s, size_t n) {
    const char *mark = n ? memchr(s, '?', n) : NULL;
    h->path = (struct http_text){s, mark ? (size_t)(mark - s) : n};
    if (mark)
        h->query = (struct http_text){mark + 1, n - h->path.n - 1};
}

static int absolute_form(struct http_parser *p, struct http_text t) {
    struct http_head *h = p->head;
    size_t scheme = 0;
    if (t.n > 7 && memcmp(t.s, "http://", 7) == 0)
        scheme = 4;
    else if (t.n > 8 && memcmp(t.s, "https://", 8) == 0)
        scheme = 5;
    if (!scheme)
        return http_refuse(p, 400, "the request target is not a path or an http URL");
    const char *rest = t.s + scheme + 3;
    size_t left = t.n - scheme - 3, host = 0;
    while (host < left && rest[host] != '/' && rest[host] != '?')
        host++;
    h->form = HTTP_ABSOLUTE;
    h->scheme = (struct http_text){t.s, scheme};
    h->authority = (struct http_text){rest, host};
    split_query(h, rest + host, left - host);
    if (host == 0 || !is_authority(h->authority, false))
        return http_refuse(p, 400, "the host in the request target is malformed");
    return 0;
}

static int parse_target(struct http_parser *p) {
    struct http_head *h = p->head;
    struct http_text t = h->target;
    if (t.n == 0 || http_span(t.s, t.n, HTTP_CH_TARGET | HTTP_CH_HOST) != t.n)
        return http_refuse(p, 400,
                           "the request target contains a byte that must be percent-encoded");
    if (http_text_is(h->method, "CONNECT")) {
        h->form = HTTP_AUTHORITY;
        h->authority = t;
        return is_authority(t, true) && t.s[0] != ':'
                   ? 0
                   : http_refuse(p, 400, "the target of CONNECT is not host:port");
    }
    if (t.s[0] == '/') {
        split_query(h, t.s, t.n);
        return 0;
    }
    if (http_text_is(t, "*")) {
        h->form = HTTP_ASTERISK;
        h->path = t;
        return http_text_is(h->method, "OPTIONS")
                   ? 0
                   : http_refuse(p, 400, "the request target '*' is allowed only with OPTIONS");
    }
    return absolute_form(p, t);
}

/* Parses "HTTP/1.1", which has exactly eight bytes. */
static int parse_version(struct http_parser *p, const char *s, size_t n) {
    if (n != 8 || memcmp(s, "HTTP/", 5) != 0 || !http_ch(s[5], HTTP_CH_DIGIT) || s[6] != '.' ||
        !http_ch(s[7], HTTP_CH_DIGIT))
        return http_refuse(p, 400,
                           "the first line of the message does not contain a valid HTTP version");
    if (s[5] != '1' || s[7] > '1')
        return http_refuse(p, 505, "only HTTP/1.0 and HTTP/1.1 are supported");
    p->head->minor = s[7] - '0';
    return 0;
}

static int request_line(struct http_parser *p, const char *s, size_t n) {
    struct http_head *h = p->head;
    h->method = (struct http_text){s, http_span(s, n, HTTP_CH_TOKEN)};
    if (h->method.n == 0 || h->method.n == n || s[h->method.n] != ' ')
        return http_refuse(p, 400, "the HTTP method is missing or contains an invalid character");
    size_t at = h->method.n + 1;
    const char *end = memchr(s + at, ' ', n - at);
    if (!end)
        return http_refuse(p, 400,
                           "the first line of the message does not contain a valid HTTP version");
    h->target = (struct http_text){s + at, (size_t)(end - s) - at};
    if (parse_version(p, end + 1, n - (size_t)(end + 1 - s)) < 0)
        return -1;
    return parse_target(p);
}

/* Some servers leave out the space before an empty reason, so that it is optional here. */
static int status_line(struct http_parser *p, const char *s, size_t n) {
    struct http_head *h = p->head;
    if (n < 12 || s[8] != ' ' || http_span(s + 9, 3, HTTP_CH_DIGIT) != 3 ||
        (n > 12 && s[12] != ' '))
        return http_refuse(p, 502, "the status line of the HTTP answer is malformed");
    if (parse_version(p, s, 8) < 0)
        return -1;
    h->status = (s[9] - '0') * 100 + (s[10] - '0') * 10 + (s[11] - '0');
    if (h->status < 100 || h->status > 599)
        return http_refuse(p, 502, "the status of the answer is not between 100 and 599");
    if (n > 12)
        h->reason = (struct http_text){s + 13, n - 13};
    if (http_span(h->reason.s, h->reason.n, HTTP_CH_VALUE) != h->reason.n)
        return http_refuse(
            p, 502, "the reason in the status line of the HTTP answer contains a control byte");
    return 0;
}

/* Fields that the codec itself understands */

static int once(struct http_parser *p, unsigned which, const char *why) {
    if (p->seen & which)
        return http_refuse(p, 400, why);
    p->seen |= (uint8_t)which;
    return 0;
}

static int field_host(struct http_parser *p, struct http_text v) {
    if (p->head->kind != HTTP_REQUEST)
        return 0;
    if (once(p, SEEN_HOST, "header field Host is given twice") < 0)
        return -1;
    if (!is_authority(v, false))
        return http_refuse(p, 400, "header field Host is malformed");
    if (p->head->form == HTTP_ORIGIN || p->head->form == HTTP_ASTERISK)
        p->head->authority = v;
    return 0;
}

/*
 * RFC 9110 allows tabs around a value, but some parsers do not trim them, so they are refused in
 * fields that decide where a message ends. The value lies between a colon and a CR, which end the
 * search.
 */
static bool has_tabs_around(struct http_text v) {
    for (const char *s = v.s - 1; *s != ':'; s--)
        if (*s == '\t')
            return true;
    for (const char *s = v.s + v.n; *s != '\r'; s++)
        if (*s == '\t')
            return true;
    return false;
}

static int field_length(struct http_parser *p, struct http_text v) {
    uint64_t n = 0;
    if (once(p, SEEN_LENGTH, "Content-Length is given twice") < 0)
        return -1;
    if (has_tabs_around(v))
        return http_refuse(p, 400, "Content-Length is surrounded by tabs");
    if (v.n == 0 || http_span(v.s, v.n, HTTP_CH_DIGIT) != v.n)
        return http_refuse(p, 400, "Content-Length is not a number");
    for (size_t i = 0; i < v.n; i++) {
        if (n > (INT64_MAX - 9) / 10)
            return http_refuse(p, 400, "Content-Length is out of range");
        n = n * 10 + (uint64_t)(v.s[i] - '0');
    }
    p->head->length = n;
    return 0;
}

static int field_coding(struct http_parser *p, struct http_text v) {
    struct http_text rest = v, last = {0};
    if (once(p, SEEN_CODING, "Transfer-Encoding is given twice") < 0)
        return -1;
    if (has_tabs_around(v))
        return http_refuse(p, 400, "Transfer-Encoding is surrounded by tabs");
    p->chunked = http_text_is_like(v, "chunked");
    if (p->chunked)
        return 0;
    while (http_list_next(&rest, &last))
        ;
    if (http_text_is_like(last, "chunked"))
        return http_refuse(p, 501, "only the transfer coding chunked is supported");
    return http_refuse(p, 400, "Transfer-Encoding does not end in chunked");
}

static int field_connection(struct http_parser *p, struct http_text v) {
    struct http_text token;
    while (http_list_next(&v, &token)) {
        p->close |= http_text_is_like(token, "close");
        p->keep |= http_text_is_like(token, "keep-alive");
        if (http_text_is_like(token, "upgrade"))
            p->seen |= ASKED_UPGRADE;
    }
    return 0;
}

static int field_expect(struct http_parser *p, struct http_text v) {
    if (p->head->kind != HTTP_REQUEST || p->head->minor == 0)
        return 0;
    if (!http_text_is_like(v, "100-continue"))
        return http_refuse(p, 417, "header field Expect must be 100-continue");
    p->head->expect_continue = true;
    return 0;
}

static int field_upgrade(struct http_parser *p, struct http_text v) {
    if (v.n)
        p->seen |= SEEN_UPGRADE;
    return 0;
}

/* The names have different lengths, so that the length alone finds the row. */
static const struct {
    const char *name;
    int (*fn)(struct http_parser *p, struct http_text value);
} known[] = {
    [4] = {"host", field_host},
    [6] = {"expect", field_expect},
    [7] = {"upgrade", field_upgrade},
    [10] = {"connection", field_connection},
    [14] = {"content-length", field_length},
    [17] = {"transfer-encoding", field_coding},
};

static int field_line(struct http_parser *p, const char *s, size_t n) {
    struct http_head *h = p->head;
    size_t name = http_span(s, n, HTTP_CH_TOKEN);
    if (s[0] == ' ' || s[0] == '\t')
        return http_refuse(p, 400, "a header field is folded over two lines");
    if (name == 0 || name == n || s[name] != ':')
        return http_refuse(p, 400, "a header field has no valid name followed by a colon");
    struct http_text value = {s + name + 1, n - name - 1};
    if (http_span(value.s, value.n, HTTP_CH_VALUE) != value.n)
        return http_refuse(p, 400, "a header field contains a control byte");
    for (; value.n && (value.s[0] == ' ' || value.s[0] == '\t'); value.n--)
        value.s++;
    while (value.n && (value.s[value.n - 1] == ' ' || value.s[value.n - 1] == '\t'))
        value.n--;
    if (h->count == p->limits.fields_max)
        return http_refuse(p, 431, "too many header fields");
    h->fields[h->count++] = (struct http_field){{s, name}, value};
    if (name < sizeof(known) / sizeof(*known) && known[name].fn &&
        http_text_is_like((struct http_text){s, name}, known[name].name))
        return known[name].fn(p, value);
    return 0;
}

/* Finding the end of the body (RFC 9112 section 6) */

static void frame_by_fields(struct http_parser *p) {
    struct http_head *h = p->head;
    if (p->chunked)
        h->framing = HTTP_CHUNKED;
    else if (p->seen & SEEN_LENGTH)
        h->framing = h->length ? HTTP_SIZED : HTTP_NO_BODY;
    else
        h->framing = h->kind == HTTP_REQUEST ? HTTP_NO_BODY : HTTP_UNTIL_CLOSE;
}

static int http_finish(struct http_parser *p) {
    struct http_head *h = p->head;
    if (p->chunked && (p->seen & SEEN_LENGTH))
        return http_refuse(p, 400, "both Content-Length and Transfer-Encoding are given");
    if (p->chunked && h->minor == 0)
        return http_refuse(p, 400, "Transfer-Encoding is not allowed in HTTP/1.0");
    if (h->kind == HTTP_REQUEST && h->minor == 1 && !(p->seen & SEEN_HOST))
        return http_refuse(p, 400, "header field Host is missing");
    frame_by_fields(p);
    if (h->kind == HTTP_RESPONSE &&
        (p->answers_head || h->status < 200 || h->status == 204 || h->status == 304))
        h->framing = HTTP_NO_BODY;
    h->keep_alive = !p->close && (h->minor == 1 || p->keep) && h->framing != HTTP_UNTIL_CLOSE;
    h->upgrade = h->minor == 1 && (p->seen & SEEN_UPGRADE) && (p->seen & ASKED_UPGRADE);
    h->expect_continue = h->expect_continue && h->framing != HTTP_NO_BODY;
    return 1;
}

/* Splitting the head into lines */

/*
 * Checks the first byte of a line, so that a peer that does not speak HTTP is refused before the
 * line is complete.
 */
static bool starts_well(const struct http_parser *p, const char *bytes) {
    char c = bytes[p->line];
    if (p->state == AT_FIELDS || (p->state == AT_START && c == '\r'))
        return true;
    return p->head->kind == HTTP_REQUEST ? http_ch(c, HTTP_CH_TOKEN) : c == 'H';
}

static int one_line(struct http_parser *p, const char *s, size_t n) {
    int r;
    if (p->state == AT_FIELDS)
        return n ? field_line(p, s, n) : http_finish(p);
    if (p->state == AT_START && n == 0) {
        p->state = AT_LINE; /* RFC 9112 2.2: one empty line before a message is ignored */
        return 0;
    }
    r = p->head->kind == HTTP_REQUEST ? request_line(p, s, n) : status_line(p, s, n);
    p->state = AT_FIELDS;
    return r;
}

static int too_long(struct http_parser *p) {
    return p->state == AT_FIELDS
               ? http_refuse(p, 431, "the header fields of the HTTP message are too long")
               : http_refuse(p, 414, "the first line of the HTTP message is too long");
}

/*
 * True if a head of at least `end` bytes whose last line has `length` bytes is within the limits.
 */
static bool http_fits(const struct http_parser *p, size_t end, size_t length) {
    return end <= p->limits.head_max && (p->state == AT_FIELDS || length <= p->limits.line_max + 1);
}

int http_parse(struct http_parser *p, const char *bytes, size_t n) {
    while (!p->failed) {
        if (p->line < n && !starts_well(p, bytes))
            return http_refuse(p, 400, "the message is not HTTP");
        const char *lf = p->scan < n ? memchr(bytes + p->scan, '\n', n - p->scan) : NULL;
        if (!lf) {
            p->scan = n;
            return http_fits(p, n + 1, n - p->line) ? 0 : too_long(p);
        }
        size_t end = (size_t)(lf - bytes), length = end - p->line;
        if (!http_fits(p, end + 1, length))
            return too_long(p);
        if (length == 0 || lf[-1] != '\r')
            return http_refuse(p, 400, "a line of the HTTP message ends without CR LF");
        int r = one_line(p, bytes + p->line, length - 1);
        p->line = p->scan = end + 1;
        if (r < 0)
            return -1;
        if (r > 0) {
            p->used = p->line;
            return 1;
        }
    }
    return -1;
}
