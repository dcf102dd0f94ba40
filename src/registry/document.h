/*
 * Reads manifests and indexes of a registry. Pure; the text is hostile.
 *
 * Sizes and counts have caps, and digests are checked for their form. The caller compares them with
 * the bytes that it receives.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "registry/reference.h"

enum {
    DOCUMENT_BYTES_MAX = 4 << 20,
    DOCUMENT_LAYERS_MAX = 128,
    DOCUMENT_MANIFESTS_MAX = 256,
};
#define DOCUMENT_IMAGE_MAX (64ull << 30) /* bytes of all blobs of an image */

struct descriptor {
    char digest[REFERENCE_DIGEST_SIZE];
    uint64_t size;
};

struct document {
    bool is_index;
    struct descriptor child;  /* of an index: the manifest for this processor */
    struct descriptor config; /* of a manifest */
    struct descriptor layers[DOCUMENT_LAYERS_MAX];
    size_t count;
    uint64_t bytes; /* of configuration and layers */
};

/* `arch` is a name such as arm64. */
int document_read(const char *bytes, size_t len, const char *arch, struct document *ret,
                  struct err *err);
