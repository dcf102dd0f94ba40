#include "tests/unit/unit.h"

#include <string.h>

#include "base/buf.h"
#include "base/defer.h"
#include "base/image_id.h"
#include "image/config.h"
#include "image/fit.h"
#include "image/oci.h"
#include "image/path.h"

static struct err err;

static void an_id_is_52_characters_of_its_hash(void **state) {
    (void)state;
    uint8_t hash[SHA256_BYTES] = {0};
    char id[IMAGE_ID_SIZE], other[IMAGE_ID_SIZE];
    image_id_of(hash, id);
    assert_int_equal(strlen(id), 54);
    assert_true(image_id_valid(id));
    for (size_t bit = 0; bit < 256; bit++) {
        memset(hash, 0, sizeof(hash));
        hash[bit / 8] = (uint8_t)(1u << bit % 8);
        image_id_of(hash, other);
        assert_true(image_id_valid(other));
        assert_string_not_equal(id, other);
    }
    assert_false(image_id_valid("i-abc"));
    assert_false(image_id_valid("../../etc"));
}

static void a_name_looks_like_neither_a_path_nor_an_id(void **state) {
    (void)state;
    static const char *const good[] = {"debian:bookworm", "a", "web.2", "build:9f"};
    static const char *const bad[] = {"", "host", "i-x", ".a", "a.", "a/b", "a b", "a\n", "é"};
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
        assert_true(image_name_ok(good[i]));
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        assert_false(image_name_ok(bad[i]));
}

static void a_path_is_made_plain_or_refused(void **state) {
    (void)state;
    static const char *const good[][2] = {
        {"./usr//bin/", "usr/bin"}, {".", ""}, {"./", ""}, {"a/./b", "a/b"}, {"..a", "..a"}};
    static const char *const bad[] = {"", "/a", "..", "a/..", "a/../b", "./../a"};
    char path[IMAGE_PATH_SIZE];
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        assert_int_equal(image_path(good[i][0], path, &err), 0);
        assert_string_equal(path, good[i][1]);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        assert_int_equal(image_path(bad[i], path, &err), -1);
}

/* Fills to[] with `count` names of `length` letters with slashes between them. */
static void deep_path(char *to, size_t count, size_t length) {
    for (size_t i = 0; i < count * (length + 1); i++)
        to[i] = i % (length + 1) == length ? '/' : 'a';
    to[count * (length + 1) - 1] = '\0';
}

static void a_path_has_a_largest_depth_and_a_longest_name(void **state) {
    (void)state;
    static char raw[4 * IMAGE_DEPTH_MAX + 4 * IMAGE_PART_MAX], path[IMAGE_PATH_SIZE];
    deep_path(raw, IMAGE_DEPTH_MAX, 1);
    assert_int_equal(image_path(raw, path, &err), 0);
    deep_path(raw, IMAGE_DEPTH_MAX + 1, 1);
    assert_int_equal(image_path(raw, path, &err), -1);
    deep_path(raw, 1, IMAGE_PART_MAX);
    assert_int_equal(image_path(raw, path, &err), 0);
    deep_path(raw, 1, IMAGE_PART_MAX + 1);
    assert_int_equal(image_path(raw, path, &err), -1);
}

static void a_whiteout_can_hide_the_longest_name(void **state) {
    (void)state;
    static char raw[2 * IMAGE_PART_MAX], path[IMAGE_PATH_SIZE];
    size_t most = IMAGE_PART_MAX + strlen(IMAGE_WHITEOUT);
    memset(raw, 'a', most);
    memcpy(raw, IMAGE_WHITEOUT, strlen(IMAGE_WHITEOUT));
    assert_int_equal(image_path(raw, path, &err), 0);
    assert_string_equal(path, raw);
    raw[most] = '/';
    assert_int_equal(image_path(raw, path, &err), 0);
    raw[most + 1] = 'b'; /* a directory is not a whiteout */
    assert_int_equal(image_path(raw, path, &err), -1);
    raw[most] = 'a';
    raw[most + 1] = '\0';
    assert_int_equal(image_path(raw, path, &err), -1);
}

static void a_whiteout_can_hide_the_longest_path(void **state) {
    (void)state;
    static char raw[2 * IMAGE_PATH_SIZE], path[IMAGE_PATH_SIZE];
    deep_path(raw, 20, 200);
    size_t n = strlen(raw);
    raw[n++] = '/';
    char *name = raw + n;
    memset(name, 'b', IMAGE_PATH_MAX - n);
    assert_int_equal(image_path(raw, path, &err), 0);
    name[IMAGE_PATH_MAX - n] = 'b';
    assert_int_equal(image_path(raw, path, &err), -1);
    memcpy(name, IMAGE_WHITEOUT, strlen(IMAGE_WHITEOUT));
    memset(name + strlen(IMAGE_WHITEOUT), 'b', IMAGE_PATH_MAX - n);
    assert_int_equal(image_path(raw, path, &err), 0);
    assert_string_equal(path, raw);
    assert_int_equal(strlen(path), IMAGE_PATH_SIZE - 1);
    raw[IMAGE_PATH_SIZE - 1] = 'b';
    assert_int_equal(image_path(raw, path, &err), -1);
}

/* A configuration with `count` layers. */
static int read_diff_ids(size_t count, size_t *ret_count) {
    static char ids[OCI_LAYERS_MAX][OCI_DIGEST_SIZE];
    struct buf json DEFER(buf_done) = BUF(1 << 20);
    assert_true(buf_addf(&json, "{\"rootfs\":{\"diff_ids\":["));
    for (size_t i = 0; i < count; i++)
        assert_true(buf_addf(&json, "%s\"sha256:%064zx\"", i ? "," : "", i));
    assert_true(buf_addf(&json, "]}}"));
    return oci_diff_ids_read((const char *)json.data, json.len, ids, ret_count, &err);
}

static void an_image_has_a_largest_number_of_layers(void **state) {
    (void)state;
    size_t count;
    assert_int_equal(read_diff_ids(OCI_LAYERS_MAX, &count), 0);
    assert_int_equal(count, OCI_LAYERS_MAX);
    assert_int_equal(read_diff_ids(OCI_LAYERS_MAX + 1, &count), -1);
}

/* An archive of docker's with `count` layers. */
static int read_docker(size_t count) {
    static struct docker_manifest m;
    struct buf json DEFER(buf_done) = BUF(1 << 20);
    assert_true(buf_addf(&json, "[{\"Config\":\"c\",\"Layers\":["));
    for (size_t i = 0; i < count; i++)
        assert_true(buf_addf(&json, "%s\"%zu\"", i ? "," : "", i));
    assert_true(buf_addf(&json, "]}]"));
    return docker_manifest_read((const char *)json.data, json.len, &m, &err);
}

static int read_manifest(size_t count) {
    static struct oci_manifest m;
    struct buf json DEFER(buf_done) = BUF(1 << 20);
    assert_true(buf_addf(&json, "{\"config\":{\"digest\":\"sha256:%064d\"},\"layers\":[", 0));
    for (size_t i = 0; i < count; i++)
        assert_true(buf_addf(&json, "%s{\"digest\":\"sha256:%064zx\"}", i ? "," : "", i));
    assert_true(buf_addf(&json, "]}"));
    return oci_manifest_read((const char *)json.data, json.len, &m, &err);
}

static void so_has_every_list_of_them(void **state) {
    (void)state;
    assert_int_equal(read_docker(OCI_LAYERS_MAX), 0);
    assert_int_equal(read_docker(OCI_LAYERS_MAX + 1), -1);
    assert_int_equal(err.code, ERR_LIMIT);
    assert_int_equal(read_manifest(OCI_LAYERS_MAX), 0);
    assert_int_equal(read_manifest(OCI_LAYERS_MAX + 1), -1);
    assert_int_equal(err.code, ERR_LIMIT);
}

static int read_index(const char *manifests) {
    char json[1024];
    struct oci_blob blob;
    snprintf(json, sizeof(json), "{\"manifests\":[%s]}", manifests);
    return oci_index_read(json, strlen(json), "amd64", &blob, &err);
}

#define HASH "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define MANIFEST "{\"digest\":\"sha256:" HASH "\"}"

static void a_manifest_is_one_and_named_in_one_way(void **state) {
    (void)state;
    static const char *const bad[] = {
        "",
        MANIFEST "," MANIFEST,
        "{\"digest\":\"sha256:" HASH "\",\"size\":-1}",
        "{\"digest\":\"sha512:" HASH "\"}",
        "{\"digest\":\"sha256:" HASH "00\"}",
        ("{\"digest\":\"sha256:"
         "00112233445566778899AABBCCDDEEFF00112233445566778899aabbccddeeff\"}"),
    };
    assert_int_equal(read_index(MANIFEST), 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        assert_int_equal(read_index(bad[i]), -1);
        assert_int_equal(err.code, ERR_INVALID);
    }
}

static void one_configuration_is_one_text(void **state) {
    (void)state;
    static const char theirs[] =
        "{\"config\":{\"Cmd\":[\"sh\"],\"Env\":[\"B=2\",\"A=1\",\"B=3\"],\"User\":\"\"},"
        "\"architecture\":\"arm64\",\"created\":\"never\"}";
    struct image_config c DEFER(image_config_done) = {0};
    struct buf text DEFER(buf_done) = BUF(4096);
    assert_int_equal(image_config_read_oci(theirs, strlen(theirs), &c, &err), 0);
    assert_int_equal(image_config_print(&c, &text, &err), 0);
    assert_string_equal(text.data,
                        "{\"arch\":\"arm64\",\"command\":[\"sh\"],\"env\":[\"A=1\",\"B=3\"]}");
}

static void an_index_gives_the_manifest_for_the_processor(void **state) {
    (void)state;
    char json[1024];
    struct oci_blob blob;
    char a[65], b[65];
    memset(a, 'a', 64);
    memset(b, 'b', 64);
    a[64] = b[64] = '\0';
    snprintf(json, sizeof(json),
             "{\"manifests\":[{\"digest\":\"sha256:%s\",\"platform\":{\"architecture\":\"arm64\"}},"
             "{\"digest\":\"sha256:%s\",\"platform\":{\"architecture\":\"amd64\"}}]}",
             a, b);
    assert_int_equal(oci_index_read(json, strlen(json), "amd64", &blob, &err), 0);
    assert_string_equal(blob.digest + 7, b);
    assert_int_equal(oci_index_read(json, strlen(json), "riscv64", &blob, &err), -1);
    assert_int_equal(err.code, ERR_UNSUPPORTED);
}

static void users_are_found_by_name_and_number(void **state) {
    (void)state;
    static const char text[] = "root:x:0:0:root:/root:/bin/sh\nbad\napp:x:12:50:a:/srv:/bin/sh\n"
                               "big:x:99999:0::/:/bin/sh\n";
    struct image_user user = {.home = "/"};
    uint32_t gid;
    assert_true(image_passwd_find(text, "app", &user));
    assert_int_equal(user.uid, 12);
    assert_int_equal(user.gid, 50);
    assert_string_equal(user.home, "/srv");
    assert_true(image_passwd_find(text, "12", &user));
    assert_string_equal(user.name, "app");
    assert_false(image_passwd_find(text, "bad", &user));
    assert_false(image_passwd_find(text, "big", &user));
    assert_false(image_passwd_find(text, "ap", &user));
    assert_true(image_group_find("staff:x:50:\n", "staff", &gid));
    assert_int_equal(gid, 50);
}

UNIT_MAIN(cmocka_unit_test(an_id_is_52_characters_of_its_hash),
          cmocka_unit_test(a_name_looks_like_neither_a_path_nor_an_id),
          cmocka_unit_test(a_path_is_made_plain_or_refused),
          cmocka_unit_test(a_path_has_a_largest_depth_and_a_longest_name),
          cmocka_unit_test(a_whiteout_can_hide_the_longest_name),
          cmocka_unit_test(a_whiteout_can_hide_the_longest_path),
          cmocka_unit_test(an_image_has_a_largest_number_of_layers),
          cmocka_unit_test(so_has_every_list_of_them),
          cmocka_unit_test(a_manifest_is_one_and_named_in_one_way),
          cmocka_unit_test(one_configuration_is_one_text),
          cmocka_unit_test(an_index_gives_the_manifest_for_the_processor),
          cmocka_unit_test(users_are_found_by_name_and_number))
