#include "registry/document.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/defer.h"

static const char *document_text(const json_t *object, const char *name) {
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

static int descriptor_read(const json_t *d, uint64_t max, struct descriptor *ret, struct err *err) {
    const char *digest = document_text(d, "digest");
    const json_t *size = json_object_get(d, "size");
    if (!reference_digest_ok(digest))
        return err_set(err, ERR_INVALID, "the manifest has an invalid digest '%.80s'", digest);
    if (!json_is_integer(size) || json_integer_value(size) < 0)
        return err_set(err, ERR_INVALID, "the manifest has a part without a valid size");
    if ((uint64_t)json_integer_value(size) > max)
        return err_set(err, ERR_LIMIT, "the manifest has a part of %lld bytes; the limit is %llu",
                       (long long)json_integer_value(size), (unsigned long long)max);
    snprintf(ret->digest, sizeof(ret->digest), "%s", digest);
    ret->size = (uint64_t)json_integer_value(size);
    return 0;
}

static int index_read(const json_t *list, const char *arch, struct document *ret, struct err *err) {
    size_t i;
    json_t *d;
    if (json_array_size(list) > DOCUMENT_MANIFESTS_MAX)
        return err_set(err, ERR_LIMIT, "the index has more than %d manifests",
                       DOCUMENT_MANIFESTS_MAX);
    ret->is_index = true;
    json_array_foreach(list, i, d) {
        const json_t *platform = json_object_get(d, "platform");
        if (strcmp(document_text(platform, "architecture"), arch) == 0 &&
            strcmp(document_text(platform, "os"), "linux") == 0)
            return descriptor_read(d, DOCUMENT_BYTES_MAX, &ret->child, err);
    }
    return err_set(err, ERR_NOT_FOUND, "the registry has no image for this processor (linux/%s)",
                   arch);
}

static int layers_read(const json_t *list, struct document *ret, struct err *err) {
    size_t i;
    json_t *d;
    if (json_array_size(list) > DOCUMENT_LAYERS_MAX)
        return err_set(err, ERR_LIMIT, "the image has more than %d layers", DOCUMENT_LAYERS_MAX);
    json_array_foreach(list, i, d) {
        if (strstr(document_text(d, "mediaType"), "foreign") || json_object_get(d, "urls"))
            return err_set(err, ERR_UNSUPPORTED, "layer %zu is not in the registry (a foreign one)",
                           i + 1);
        if (descriptor_read(d, DOCUMENT_IMAGE_MAX, &ret->layers[ret->count], err) < 0)
            return -1;
        ret->bytes += ret->layers[ret->count++].size;
        if (ret->bytes > DOCUMENT_IMAGE_MAX)
            return err_set(err, ERR_LIMIT, "the image is larger than %llu GiB",
                           DOCUMENT_IMAGE_MAX >> 30);
    }
    return 0;
}

int document_read(const char *bytes, size_t len, const char *arch, struct document *ret,
                  struct err *err) {
    json_t *root DEFER(json_decrefp) =
        len > DOCUMENT_BYTES_MAX ? NULL : json_loadb(bytes, len, JSON_REJECT_DUPLICATES, NULL);
    const json_t *manifests = json_object_get(root, "manifests");
    const json_t *layers = json_object_get(root, "layers");
    *ret = (struct document){0};
    if (!json_is_object(root))
        return err_set(err, ERR_INVALID, "the manifest in the registry is not JSON");
    if (json_integer_value(json_object_get(root, "schemaVersion")) != 2)
        return err_set(err, ERR_UNSUPPORTED, "the manifest in the registry is not of version 2");
    if (json_is_array(manifests) && !layers)
        return index_read(manifests, arch, ret, err);
    if (!json_is_array(layers) || manifests)
        return err_set(err, ERR_INVALID, "the manifest in the registry has no list of layers");
    if (descriptor_read(json_object_get(root, "config"), DOCUMENT_BYTES_MAX, &ret->config, err) < 0)
        return -1;
    ret->bytes = ret->config.size;
    return layers_read(layers, ret, err);
}
