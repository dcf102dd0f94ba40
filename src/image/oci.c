#include "image/oci.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/defer.h"
#include "base/hex.h"

static json_t *oci_load(const char *json, size_t len, const char *what, struct err *err) {
    json_error_t why;
    if (len > OCI_JSON_MAX) {
        err_set(err, ERR_LIMIT, "the %s in the image archive is larger than %d MiB", what,
                OCI_JSON_MAX >> 20);
        return NULL;
    }
    json_t *root = json_loadb(json, len, JSON_REJECT_DUPLICATES, &why);
    if (!root)
        err_set(err, ERR_INVALID, "the %s in the image archive is not JSON: %s", what, why.text);
    return root;
}

bool oci_digest_valid(const char *text) {
    return strncmp(text, "sha256:", 7) == 0 && hex_is(text + 7, 64);
}

void oci_digest_of(const uint8_t hash[SHA256_BYTES], char ret[OCI_DIGEST_SIZE]) {
    int n = snprintf(ret, OCI_DIGEST_SIZE, "sha256:");
    hex_put(hash, SHA256_BYTES, ret + n);
}

static const char *oci_text_of(const json_t *object, const char *name) {
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static int read_blob(const json_t *d, const char *what, struct oci_blob *ret, struct err *err) {
    const char *digest = oci_text_of(d, "digest"), *type = oci_text_of(d, "mediaType");
    json_int_t size = json_integer_value(json_object_get(d, "size"));
    if (!oci_digest_valid(digest)) {
        err_set(err, ERR_INVALID, "the %s in the image archive has an unsupported digest '%.80s'",
                what, digest);
        return err_remedy(err, "only sha256 digests are supported");
    }
    if (size < 0)
        return err_set(err, ERR_INVALID, "the %s in the image archive has a negative size", what);
    snprintf(ret->digest, sizeof(ret->digest), "%s", digest);
    ret->size = (uint64_t)size;
    ret->is_index =
        ends_with(type, "image.index.v1+json") || ends_with(type, "manifest.list.v2+json");
    return 0;
}

/* 2: the image is for processor `arch`; 1: it does not state a processor; 0: it is for another. */
static int oci_fits(const json_t *d, const char *arch) {
    const json_t *platform = json_object_get(d, "platform");
    const char *theirs = oci_text_of(platform, "architecture"), *os = oci_text_of(platform, "os");
    if (!*theirs)
        return 1;
    return strcmp(theirs, arch) == 0 && (!*os || strcmp(os, "linux") == 0) ? 2 : 0;
}

int oci_index_read(const char *json, size_t len, const char *arch, struct oci_blob *ret,
                   struct err *err) {
    json_t *root DEFER(json_decrefp) = oci_load(json, len, "index", err);
    const json_t *list = json_object_get(root, "manifests"), *best = NULL;
    size_t i, silent = 0;
    json_t *d;
    bool exact = false;
    *ret = (struct oci_blob){.size = 0};
    if (!root)
        return -1;
    if (!json_is_array(list) || json_array_size(list) == 0)
        return err_set(err, ERR_INVALID, "the index of the OCI layout lists no manifest");
    if (json_array_size(list) > OCI_MANIFESTS_MAX)
        return err_set(err, ERR_LIMIT, "the index of the OCI layout lists more than %d manifests",
                       OCI_MANIFESTS_MAX);
    json_array_foreach(list, i, d) {
        int fit = oci_fits(d, arch);
        if (fit == 2 && !exact) {
            exact = true;
            best = d;
        } else if (fit == 1) {
            silent++;
            best = exact ? best : d;
        }
    }
    if (!best)
        return err_set(err, ERR_UNSUPPORTED, "the image is not for this processor (%s)", arch);
    if (!exact && silent > 1) {
        err_set(err, ERR_INVALID, "the OCI layout contains %zu images", silent);
        return err_remedy(err, "export an OCI layout that contains one image");
    }
    return read_blob(best, "manifest", ret, err);
}

int oci_manifest_read(const char *json, size_t len, struct oci_manifest *ret, struct err *err) {
    json_t *root DEFER(json_decrefp) = oci_load(json, len, "manifest", err);
    const json_t *layers = json_object_get(root, "layers");
    size_t i;
    json_t *d;
    ret->count = 0;
    if (!root)
        return -1;
    if (read_blob(json_object_get(root, "config"), "configuration", &ret->config, err) < 0)
        return -1;
    if (!json_is_array(layers))
        return err_set(err, ERR_INVALID, "the manifest of the image has no list of layers");
    if (json_array_size(layers) > OCI_LAYERS_MAX)
        return err_set(err, ERR_LIMIT, "the image has more than %d layers", OCI_LAYERS_MAX);
    json_array_foreach(layers, i, d) {
        const char *type = oci_text_of(d, "mediaType");
        if (strstr(type, "encrypted"))
            return err_set(err, ERR_UNSUPPORTED, "layer %zu of the image is encrypted", i + 1);
        if (read_blob(d, "layer", &ret->layers[ret->count], err) < 0)
            return -1;
        ret->count++;
    }
    return 0;
}

static int oci_take_name(const json_t *value, char ret[OCI_NAME_SIZE], struct err *err) {
    const char *text = json_string_value(value);
    if (!text || !*text || strlen(text) >= OCI_NAME_SIZE)
        return err_set(err, ERR_INVALID,
                       "the manifest of the Docker archive has an invalid file name");
    snprintf(ret, OCI_NAME_SIZE, "%s", text);
    return 0;
}

int docker_manifest_read(const char *json, size_t len, struct docker_manifest *ret,
                         struct err *err) {
    json_t *root DEFER(json_decrefp) = oci_load(json, len, "manifest", err);
    ret->count = 0;
    if (!root)
        return -1;
    if (json_array_size(root) != 1) {
        err_set(err, ERR_INVALID, "the Docker archive contains %zu images", json_array_size(root));
        return err_remedy(err, "save each image to its own archive");
    }
    const json_t *image = json_array_get(root, 0), *layers = json_object_get(image, "Layers");
    if (oci_take_name(json_object_get(image, "Config"), ret->config, err) < 0)
        return -1;
    if (!json_is_array(layers))
        return err_set(err, ERR_INVALID,
                       "the manifest of the Docker archive has no list of layers");
    if (json_array_size(layers) > OCI_LAYERS_MAX)
        return err_set(err, ERR_LIMIT, "the image has more than %d layers", OCI_LAYERS_MAX);
    for (; ret->count < json_array_size(layers); ret->count++)
        if (oci_take_name(json_array_get(layers, ret->count), ret->layers[ret->count], err) < 0)
            return -1;
    return 0;
}

int oci_diff_ids_read(const char *json, size_t len, char ret[OCI_LAYERS_MAX][OCI_DIGEST_SIZE],
                      size_t *ret_count, struct err *err) {
    json_t *root DEFER(json_decrefp) = oci_load(json, len, "configuration", err);
    const json_t *list = json_object_get(json_object_get(root, "rootfs"), "diff_ids");
    size_t i;
    json_t *value;
    *ret_count = 0;
    if (!root)
        return -1;
    if (json_array_size(list) > OCI_LAYERS_MAX)
        return err_set(err, ERR_LIMIT, "the image has more than %d layers", OCI_LAYERS_MAX);
    json_array_foreach(list, i, value) {
        const char *text = json_string_value(value);
        if (!text || !oci_digest_valid(text))
            return err_set(err, ERR_INVALID,
                           "the image's configuration has an unsupported digest '%.80s'",
                           text ? text : "");
        snprintf(ret[i], OCI_DIGEST_SIZE, "%s", text);
    }
    *ret_count = json_array_size(list);
    return 0;
}
