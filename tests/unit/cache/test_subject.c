#include "tests/unit/unit.h"

#include <string.h>

#include "cache/subject.h"

enum { NONE = -1 };

static void paths_are_recognised(void **state) {
    (void)state;
    static const struct {
        const char *preset, *raw;
        bool is_tls;
        int kind;
        const char *path;
    } rows[] = {
        {"apt", "/debian/dists/stable/InRelease", false, CACHE_RELEASE, NULL},
        {"apt", "/debian/dists/stable/Release", false, NONE, NULL},
        {"apt", "/debian/dists/stable/main/binary-all/Packages.xz", false, CACHE_LIST, NULL},
        {"apt", "/d/dists/s/main/binary-all/by-hash/SHA256/ab", false, CACHE_LIST, NULL},
        {"apt", "/debian/pool/a/a%7e1%2b2_all.deb", false, CACHE_PACKAGE,
         "/debian/pool/a/a~1+2_all.deb"},
        {"apt", "/debian/pool/a%2fb.deb", false, NONE, NULL},
        {"apt", "/debian/pool/a/%2e%2e/b.deb", false, NONE, NULL},
        {"apt", "/debian/pool/../b.deb", false, NONE, NULL},
        {"apt", "/debian//b.deb", false, NONE, NULL},
        {"apt", "/debian/a%00.deb", false, NONE, NULL},
        {"apt", "/debian/a%.deb", false, NONE, NULL},
        {"apt", "/debian/a%25b.deb", false, NONE, NULL},
        {"apt", "/debian/a;b.deb", false, NONE, NULL},
        {"npm", "/thing", true, CACHE_DOCUMENT, NULL},
        {"npm", "/@scope%2fthing", true, CACHE_DOCUMENT, "/@scope/thing"},
        {"npm", "/thing/-/thing-1.0.0.tgz", true, CACHE_PACKAGE, NULL},
        {"npm", "/thing/-/thing-1.0.0.tgz", false, NONE, NULL},
        {"npm", "/-/whoami", true, NONE, NULL},
        {"npm", "/thing/-rev/1", true, CACHE_DOCUMENT, NULL},
        {"pip", "/packages/a.whl", true, NONE, NULL},
        {"", "/a.deb", true, NONE, NULL},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct cache_subject s = {.origin = ""};
        bool found = cache_subject_read(rows[i].preset, rows[i].raw, rows[i].is_tls, &s);
        if (found != (rows[i].kind != NONE) || (found && (int)s.kind != rows[i].kind) ||
            (found && strcmp(s.path, rows[i].path ? rows[i].path : rows[i].raw) != 0))
            fail_msg("%s %s: %d %d '%s'", rows[i].preset, rows[i].raw, found, s.kind, s.path);
    }
}

static void directories_of_lists_are_found(void **state) {
    (void)state;
    char dir[CACHE_PATH_SIZE];
    assert_true(cache_root_of("/debian/dists/a/Packages", dir));
    assert_string_equal(dir, "/debian/");
    assert_false(cache_root_of("/debian/Packages", dir));
    assert_true(cache_by_hash("/d/dists/a/main/by-hash/SHA256/ab", dir));
    assert_string_equal(dir, "/d/dists/a/main/");
    assert_false(cache_by_hash("/d/dists/a/main/Packages", dir));
}

static bool request_is_plain(const char *text, bool conditions) {
    struct http_parser parser;
    struct http_head head;
    http_parse_begin(&parser, HTTP_REQUEST, &HTTP_LIMITS_DEFAULT, &head);
    assert_int_equal(http_parse(&parser, text, strlen(text)), 1);
    return cache_request_is_plain(&head, conditions);
}

#define GET "GET /a.deb HTTP/1.1\r\nHost: a\r\n"

static void only_plain_requests_are_used(void **state) {
    (void)state;
    assert_true(request_is_plain(GET "User-Agent: apt\r\nAccept: */*\r\n\r\n", false));
    assert_true(request_is_plain(GET "npm-command: install\r\n\r\n", false));
    static const char *const others[] = {
        GET "Authorization: Basic eDp5\r\n\r\n",
        GET "Cookie: a=b\r\n\r\n",
        GET "X-Api-Key: k\r\n\r\n",
        GET "npm-otp: 123456\r\n\r\n",
        GET "Range: bytes=0-\r\n\r\n",
        GET "If-None-Match: x\r\n\r\n",
        GET "Content-Length: 1\r\n\r\nx",
        "HEAD /a.deb HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a.deb?x HTTP/1.1\r\nHost: a\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
        if (request_is_plain(others[i], false))
            fail_msg("%s", others[i]);
    assert_true(request_is_plain(GET "If-None-Match: x\r\n\r\n", true));
    assert_false(request_is_plain(GET "Authorization: x\r\n\r\n", true));
}

static bool answer_is_whole(const char *text, bool packed) {
    struct http_parser parser;
    struct http_head head;
    http_parse_begin(&parser, HTTP_RESPONSE, &HTTP_LIMITS_DEFAULT, &head);
    assert_int_equal(http_parse(&parser, text, strlen(text)), 1);
    return cache_answer_is_whole(&head, packed);
}

#define OK "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n"

static void only_whole_answers_are_used(void **state) {
    (void)state;
    assert_true(answer_is_whole(OK "\r\n", false));
    assert_true(answer_is_whole(OK "Cache-Control: public, immutable\r\n\r\n", false));
    assert_true(answer_is_whole("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", false));
    assert_true(answer_is_whole(OK "Content-Encoding: gzip\r\n\r\n", true));
    static const char *const others[] = {
        OK "Content-Encoding: gzip\r\n\r\n",
        OK "Cache-Control: no-store\r\n\r\n",
        OK "Cache-Control: private\r\n\r\n",
        OK "Content-Range: bytes 0-4/9\r\n\r\n",
        "HTTP/1.1 206 Partial\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 404 No\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
        if (answer_is_whole(others[i], false))
            fail_msg("%s", others[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_are_recognised),
        cmocka_unit_test(directories_of_lists_are_found),
        cmocka_unit_test(only_plain_requests_are_used),
        cmocka_unit_test(only_whole_answers_are_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
