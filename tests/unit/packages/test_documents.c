#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

#include "packages/apt.h"
#include "packages/npm.h"

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define OTHER "1123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static struct package_rows read_list(const char *text, size_t piece) {
    struct package_rows rows = {.v = NULL};
    struct apt_list list;
    apt_list_begin(&list, "/debian/", &rows);
    for (size_t at = 0, n = strlen(text); at < n; at += piece)
        assert_true(apt_list_feed(&list, text + at, n - at < piece ? n - at : piece));
    assert_true(apt_list_end(&list));
    package_rows_sort(&rows);
    return rows;
}

static void release_names_package_lists_only(void **state) {
    (void)state;
    static const char text[] =
        "Suite: stable\nMD5Sum:\n " HEX " 1 a/Packages.gz\nSHA256:\n " HEX
        " 12 main/binary-all/Packages.xz\n " HEX " 1 main/binary-all/Release\n " HEX
        " 1 ../../x/Packages\nSHA512:\n " HEX " 1 b/Packages\n";
    struct package_rows rows = {.v = NULL};
    assert_true(apt_release_read(text, strlen(text), "/debian/dists/stable/", &rows));
    assert_int_equal(rows.count, 1);
    assert_string_equal(rows.v[0].path, "/debian/dists/stable/main/binary-all/Packages.xz");
    assert_string_equal(rows.v[0].digest, "sha256:" HEX);
    package_rows_done(&rows);
}

static void list_is_read_in_pieces_of_any_size(void **state) {
    (void)state;
    static const char text[] =
        "Package: b\nFilename: pool/b.deb\nSHA256: " HEX
        "\n\nPackage: a\nfilename: pool/a++~1.deb\r\nSHA256: " HEX "\r\n\r\n"
        "Filename: pool/none.deb\n\nFilename: ../up.deb\nSHA256: " HEX "\n\n"
        "Filename: pool/one.deb\nFilename: pool/two.deb\nSHA256: " HEX "\n\n"
        "Filename: pool/x.deb more\nSHA256: " HEX "\n\nFilename: pool/%2e.deb\nSHA256: " HEX "\n";
    for (size_t piece = 1; piece < sizeof(text); piece += 13) {
        struct package_rows rows = read_list(text, piece);
        assert_int_equal(rows.count, 2);
        assert_string_equal(rows.v[0].path, "/debian/pool/a++~1.deb");
        assert_string_equal(rows.v[1].path, "/debian/pool/b.deb");
        package_rows_done(&rows);
    }
}

static void path_with_two_digests_is_left_out(void **state) {
    (void)state;
    struct package_rows rows =
        read_list("Filename: a.deb\nSHA256: " HEX "\n\nFilename: a.deb\nSHA256: " OTHER
                  "\n\nFilename: b.deb\nSHA256: " HEX "\n\nFilename: b.deb\nSHA256: " HEX "\n",
                  4096);
    assert_int_equal(rows.count, 1);
    assert_string_equal(rows.v[0].path, "/debian/b.deb");
    package_rows_done(&rows);
}

static const char sum[] =
    "MJ7MSJwS1utMxA9QyQLytNDtd+5RGnx6m808qG1M2G+YndNbxf9JlnDaNCVbRbDP2DDoH2Bdz33FVC6TrpzXbw==";

static void document_speaks_for_its_own_tarballs_only(void **state) {
    (void)state;
    static const char *const urls[] = {
        "https://r.test/thing/-/thing-1.tgz",     "https://r.test:443/thing/-/thing-2.tgz",
        "https://r.test/popular/-/popular-1.tgz", "https://evil.test/thing/-/thing-4.tgz",
        "http://r.test/thing/-/thing-5.tgz",      "https://r.test/thing/-/../../x.tgz",
        "https://r.test/things/-/x.tgz",
    };
    char text[4096];
    int n = snprintf(text, sizeof(text), "{\"versions\":{\"a\":{}");
    for (size_t i = 0; i < sizeof(urls) / sizeof(*urls); i++)
        n += snprintf(text + n, sizeof(text) - (size_t)n,
                      ",\"%zu\":{\"dist\":{\"tarball\":\"%s\",\"integrity\":\"sha512-%s\"}}", i,
                      urls[i], sum);
    snprintf(text + n, sizeof(text) - (size_t)n,
             ",\"b\":{\"dist\":{\"tarball\":\"https://r.test/thing/-/thing-9.tgz\","
             "\"integrity\":\"sha1-abc\"}}}}");
    struct package_rows rows = {.v = NULL};
    assert_true(npm_document_read(text, strlen(text), "https://r.test:443", "/thing", &rows));
    package_rows_sort(&rows);
    assert_int_equal(rows.count, 2);
    assert_string_equal(rows.v[0].path, "/thing/-/thing-1.tgz");
    assert_string_equal(rows.v[1].path, "/thing/-/thing-2.tgz");
    assert_string_equal(
        rows.v[0].digest,
        "sha512:309ecc489c12d6eb4cc40f50c902f2b4d0ed77ee511a7c7a9bcd3ca86d4cd86f989d"
        "d35bc5ff499670da34255b45b0cfd830e81f605dcf7dc5542e93ae9cd76f");
    package_rows_done(&rows);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(release_names_package_lists_only),
        cmocka_unit_test(list_is_read_in_pieces_of_any_size),
        cmocka_unit_test(path_with_two_digests_is_left_out),
        cmocka_unit_test(document_speaks_for_its_own_tarballs_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
