#include "tests/unit/unit.h"

#include <string.h>

#include "registry/challenge.h"
#include "registry/document.h"
#include "registry/reference.h"

#define DIGEST "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static struct err err;

static void references_are_read_as_docker_reads_them(void **state) {
    (void)state;
    static const char *const rows[][5] = {
        {"debian", "docker.io", "library/debian", "latest", ""},
        {"debian:12", "docker.io", "library/debian", "12", ""},
        {"org/app:v1", "docker.io", "org/app", "v1", ""},
        {"docker.io/library/debian", "docker.io", "library/debian", "latest", ""},
        {"index.docker.io/org/app", "docker.io", "org/app", "latest", ""},
        {"ghcr.io/org/sub/app:1.2-x", "ghcr.io", "org/sub/app", "1.2-x", ""},
        {"localhost/app", "localhost", "app", "latest", ""},
        {"127.0.0.1:5000/app", "127.0.0.1:5000", "app", "latest", ""},
        {"[::1]:5000/app", "[::1]:5000", "app", "latest", ""},
        {"h.example/a__b/c--d.e@" DIGEST, "h.example", "a__b/c--d.e", "", DIGEST},
        {"h.example/app:1@" DIGEST, "h.example", "app", "1", DIGEST},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct reference r;
        if (reference_read(rows[i][0], &r, &err) < 0)
            fail_msg("%s: %s", rows[i][0], err.text);
        assert_string_equal(r.host, rows[i][1]);
        assert_string_equal(r.repository, rows[i][2]);
        assert_string_equal(r.tag, rows[i][3]);
        assert_string_equal(r.digest, rows[i][4]);
    }
}

static void wrong_references_are_refused(void **state) {
    (void)state;
    static const char *const bad[] = {
        "",
        "App",
        "a..b",
        "a/../b",
        "h.example/../b",
        "h.example//b",
        "a:",
        "a:b:c",
        "a:-x",
        "a@sha256:00",
        "a b",
        "h.example/a?x",
        "a%2f",
        "-a",
        "a-",
        "u@h.example/a",
        "h:x/a",
        "h.example:123456/a",
        "h..b.io/a",
        "https://h/a",
        "h.example/a/",
        "a\nb",
        "a___b",
        "h.example/",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct reference r;
        if (reference_read(bad[i], &r, &err) == 0)
            fail_msg("'%s' was accepted: %s %s %s", bad[i], r.host, r.repository, r.tag);
    }
}

static void only_addresses_of_this_host_are_loopback(void **state) {
    (void)state;
    static const char *const yes[] = {"localhost", "localhost:1", "127.0.0.1:5000", "127.1.2.3",
                                      "[::1]:5"};
    static const char *const no[] = {"localhost.example",
                                     "127.0.0.1.example",
                                     "0.0.0.0",
                                     "127.example.org",
                                     "128.0.0.1",
                                     "[::2]",
                                     "[::1]x"};
    for (size_t i = 0; i < sizeof(yes) / sizeof(*yes); i++)
        assert_true(reference_is_loopback(yes[i]));
    for (size_t i = 0; i < sizeof(no) / sizeof(*no); i++)
        assert_false(reference_is_loopback(no[i]));
}

static void challenges_are_read(void **state) {
    (void)state;
    struct challenge c = challenge_read("Bearer realm=\"https://a.example/t?x=1,2\",service=reg, "
                                        "scope=\"repository:a\\\"b:pull\",error=\"x\"");
    assert_int_equal(c.kind, CHALLENGE_BEARER);
    assert_string_equal(c.realm, "https://a.example/t?x=1,2");
    assert_string_equal(c.service, "reg");
    assert_string_equal(c.scope, "repository:a\"b:pull");
    assert_int_equal(challenge_read("basic realm=\"x\"").kind, CHALLENGE_BASIC);
    static const char *const none[] = {"",
                                       "Bearer",
                                       "Bearer service=\"x\"",
                                       "Bearer realm=\"x",
                                       "Bearer realm",
                                       "Digest realm=\"x\"",
                                       "Basically x",
                                       "Bearer realm=\"a\rb\""};
    for (size_t i = 0; i < sizeof(none) / sizeof(*none); i++)
        assert_int_equal(challenge_read(none[i]).kind, CHALLENGE_NONE);
}

static int read_document(const char *text, struct document *d) {
    return document_read(text, strlen(text), "arm64", d, &err);
}

#define PART(size) "{\"digest\":\"" DIGEST "\",\"size\":" #size "}"

static void manifests_and_indexes_are_read(void **state) {
    (void)state;
    static struct document d;
    assert_int_equal(read_document("{\"schemaVersion\":2,\"config\":" PART(5) ",\"layers\":[" PART(
                                       7) "," PART(8) "]}",
                                   &d),
                     0);
    assert_false(d.is_index);
    assert_int_equal(d.count, 2);
    assert_int_equal(d.bytes, 20);
    assert_string_equal(d.layers[1].digest, DIGEST);
    assert_int_equal(
        read_document("{\"schemaVersion\":2,\"manifests\":[{\"digest\":\"x\"},{\"digest\":\"" DIGEST
                      "\",\"size\":9,\"platform\":{\"os\":\"linux\",\"architecture\":\"arm64\"}}]}",
                      &d),
        0);
    assert_true(d.is_index);
    assert_int_equal(d.child.size, 9);
}

static void wrong_manifests_are_refused(void **state) {
    (void)state;
    static struct document d;
    static const char *const bad[][2] = {
        {"x", "not JSON"},
        {"[]", "not JSON"},
        {"{\"schemaVersion\":1}", "not of version 2"},
        {"{\"schemaVersion\":2}", "no list of layers"},
        {"{\"schemaVersion\":2,\"layers\":[]}", "invalid digest"},
        {"{\"schemaVersion\":2,\"manifests\":[],\"layers\":[]}", "no list of layers"},
        {"{\"schemaVersion\":2,\"manifests\":[]}", "no image for this processor"},
        {"{\"schemaVersion\":2,\"config\":" PART(-1) ",\"layers\":[]}", "valid size"},
        {"{\"schemaVersion\":2,\"config\":" PART(1.5) ",\"layers\":[]}", "valid size"},
        {"{\"schemaVersion\":2,\"config\":" PART(99999999) ",\"layers\":[]}", "the limit is"},
        {"{\"schemaVersion\":2,\"config\":" PART(1) ",\"layers\":[" PART(68719476736) "]}",
         "larger than 64 GiB"},
        {"{\"schemaVersion\":2,\"config\":" PART(1) ",\"layers\":[{\"urls\":[]}]}", "foreign"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        assert_int_equal(read_document(bad[i][0], &d), -1);
        if (!strstr(err.text, bad[i][1]))
            fail_msg("%s: %s", bad[i][0], err.text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(references_are_read_as_docker_reads_them),
        cmocka_unit_test(wrong_references_are_refused),
        cmocka_unit_test(only_addresses_of_this_host_are_loopback),
        cmocka_unit_test(challenges_are_read),
        cmocka_unit_test(manifests_and_indexes_are_read),
        cmocka_unit_test(wrong_manifests_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
