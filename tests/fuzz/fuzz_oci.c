/*
 * The documents of images. Properties: what is read keeps its caps; a configuration that is read is
 * written and read again as the same; a path that is taken never leads out.
 */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/defer.h"
#include "base/text/accounts.h"
#include "image/config.h"
#include "image/fit.h"
#include "image/oci.h"
#include "image/path.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void configurations(const char *text, size_t size) {
    struct image_config a DEFER(image_config_done) = {0}, b DEFER(image_config_done) = {0};
    struct buf first DEFER(buf_done) = BUF(1 << 20), second DEFER(buf_done) = BUF(1 << 20);
    if (image_config_read_oci(text, size, &a, NULL) < 0 &&
        image_config_read(text, size, &a, NULL) < 0)
        return;
    assert(a.env.count <= CONFIG_ENV_MAX && a.command.count <= CONFIG_WORDS_MAX);
    for (size_t i = 1; i < a.env.count; i++)
        assert(strcmp(a.env.v[i - 1], a.env.v[i]) != 0);
    if (image_config_print(&a, &first, NULL) < 0)
        return;
    int r = image_config_read(first.data, first.len, &b, NULL);
    assert(r == 0);
    r = image_config_print(&b, &second, NULL);
    assert(r == 0 && strcmp(first.data, second.data) == 0);
}

static void documents(const char *text, size_t size) {
    static struct oci_manifest manifest;
    static struct docker_manifest docker;
    static char ids[OCI_LAYERS_MAX][OCI_DIGEST_SIZE];
    struct oci_blob blob;
    size_t count = 0;
    if (oci_index_read(text, size, "amd64", &blob, NULL) == 0)
        assert(oci_digest_valid(blob.digest));
    if (oci_manifest_read(text, size, &manifest, NULL) == 0) {
        assert(manifest.count <= OCI_LAYERS_MAX && oci_digest_valid(manifest.config.digest));
        for (size_t i = 0; i < manifest.count; i++)
            assert(oci_digest_valid(manifest.layers[i].digest));
    }
    if (docker_manifest_read(text, size, &docker, NULL) == 0)
        assert(docker.count <= OCI_LAYERS_MAX);
    if (oci_diff_ids_read(text, size, ids, &count, NULL) == 0)
        assert(count <= OCI_LAYERS_MAX);
}

static void paths(const char *text) {
    char path[IMAGE_PATH_SIZE], again[IMAGE_PATH_SIZE];
    if (image_path(text, path, NULL) < 0)
        return;
    assert(path[0] != '/' && strlen(path) < IMAGE_PATH_SIZE);
    for (const char *part = path; part; part = strchr(part, '/') ? strchr(part, '/') + 1 : NULL)
        assert(strncmp(part, "..", 2) != 0 || (part[2] != '/' && part[2] != '\0'));
    int r = *path ? image_path(path, again, NULL) : 0;
    assert(r == 0 && (!*path || strcmp(path, again) == 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct image_user user = {.home = "/"};
    uint32_t gid;
    char *text DEFER_FREE = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    configurations(text, size);
    documents(text, size);
    paths(text);
    uint32_t ids[4];
    assert(account_groups((const char *)data, size, (struct account_text){"app", 3}, ids, 0, 4) <=
           4);
    if (image_passwd_find(text, "app", &user))
        assert(user.uid <= 65535 && user.gid <= 65535 && user.home[0] == '/');
    if (image_group_find(text, "50", &gid))
        assert(gid == 50);
    return 0;
}
