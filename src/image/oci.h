/*
 * Parses the documents of image archives: index and manifest of an OCI layout, manifest of a Docker
 * archive. Pure: bytes in, structs out. Input is hostile, so every list and string has a cap.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/sha256.h"

enum {
    OCI_LAYERS_MAX = 128,
    OCI_MANIFESTS_MAX = 256,
    OCI_JSON_MAX = 4 << 20,
    OCI_DIGEST_SIZE = 72, /* "sha256:" and 64 digits */
    OCI_NAME_SIZE = 256,  /* of a file in a Docker archive */
};

struct oci_blob {
    char digest[OCI_DIGEST_SIZE];
    uint64_t size;
    bool is_index; /* of an index: it leads to another one */
};

/* "sha256:<hex>", and nothing else. */
bool oci_digest_valid(const char *text);
void oci_digest_of(const uint8_t hash[SHA256_BYTES], char ret[OCI_DIGEST_SIZE]);

/*
 * The manifest for that processor in an index; one without a word about processors fits if it is
 * the only one.
 */
int oci_index_read(const char *json, size_t len, const char *arch, struct oci_blob *ret,
                   struct err *err);

struct oci_manifest {
    struct oci_blob config;
    size_t count;
    struct oci_blob layers[OCI_LAYERS_MAX]; /* lowest first */
};
int oci_manifest_read(const char *json, size_t len, struct oci_manifest *ret, struct err *err);

struct docker_manifest {
    char config[OCI_NAME_SIZE];
    size_t count;
    char layers[OCI_LAYERS_MAX][OCI_NAME_SIZE];
};
/* Of an archive with one image. */
int docker_manifest_read(const char *json, size_t len, struct docker_manifest *ret,
                         struct err *err);

/* What the layers hash to unpacked, from a configuration; 0 where it does not say. */
int oci_diff_ids_read(const char *json, size_t len, char ret[OCI_LAYERS_MAX][OCI_DIGEST_SIZE],
                      size_t *ret_count, struct err *err);
