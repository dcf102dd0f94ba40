/*
 * For the differential test: reads samples from stdin (kind, 4-byte length, bytes), and says how
 * the codec understands each: one line of JSON, a list of messages and how it ended.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/defer.h"
#include "io/http.h"

static void print_hex(const char *s, size_t n) {
    putchar('"');
    for (size_t i = 0; i < n; i++)
        printf("%02x", (unsigned char)s[i]);
    putchar('"');
}

/* The body, to its end; false when it is refused or cut off. */
static bool print_body(const struct http_head *h, const char *bytes, size_t n, size_t *used,
                       const char **end) {
    struct http_body b;
    int r = 0;
    http_body_begin(&b, h);
    putchar('"');
    for (*used = 0; r == 0;) {
        struct http_text piece;
        size_t took;
        r = http_body_next(&b, bytes + *used, n - *used, &took, &piece);
        if (r < 0)
            break;
        for (size_t i = 0; i < piece.n; i++)
            printf("%02x", (unsigned char)piece.s[i]);
        *used += took;
        if (r == 0 && *used == n)
            break;
    }
    putchar('"');
    *end = r < 0 ? b.refusal.why : "incomplete";
    return r > 0 || (r == 0 && http_body_at_close(&b));
}

static void print_sample(enum http_kind kind, const char *bytes, size_t n) {
    const char *end = "";
    const char *comma = "";
    printf("{\"messages\":[");
    for (size_t at = 0; at < n;) {
        struct http_parser p;
        struct http_head h;
        size_t used;
        http_parse_begin(&p, kind, &HTTP_LIMITS_DEFAULT, &h);
        int r = http_parse(&p, bytes + at, n - at);
        if (r <= 0) {
            end = r < 0 ? p.refusal.why : "incomplete";
            break;
        }
        at += p.used;
        printf("%s{\"first\":", comma);
        comma = ",";
        if (kind == HTTP_REQUEST)
            print_hex(h.method.s, h.method.n);
        else
            printf("%d", h.status);
        printf(",\"target\":");
        print_hex(h.target.s, h.target.n);
        printf(",\"fields\":%zu,\"upgrade\":%s,\"body\":", h.count,
               h.upgrade || h.form == HTTP_AUTHORITY ? "true" : "false");
        bool whole = print_body(&h, bytes + at, n - at, &used, &end);
        printf(",\"whole\":%s}", whole ? "true" : "false");
        at += used;
        if (!whole)
            break;
        end = "";
    }
    printf("],\"end\":\"%s\"}\n", end);
}

int main(void) {
    unsigned char head[5];
    while (fread(head, 1, sizeof(head), stdin) == sizeof(head)) {
        size_t n = (size_t)head[1] << 24 | (size_t)head[2] << 16 | (size_t)head[3] << 8 | head[4];
        char *bytes DEFER_FREE = malloc(n ? n : 1);
        if (n > 1 << 20 || !bytes || fread(bytes, 1, n, stdin) != n)
            return 1;
        print_sample(head[0] ? HTTP_RESPONSE : HTTP_REQUEST, bytes, n);
    }
    return 0;
}
