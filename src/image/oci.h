/*
 * Parses the documents of image archives: index and manifest of an OCI layout, manifest of a Docker
 * archive. Pure: bytes in, structs out. Input may be hostile, so every list and string has a limit.
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
    OCI_NAME_SIZE = 256,  /* name of a file in a Docker archive, with its NUL */
};

struct oci_blob {
    char digest[OCI_DIGEST_SIZE];
    uint64_t size;
    bool is_index; /* the blob is another index, not a manifest */
};

/* True only for "sha256:" and 64 hexadecimal digits. */
bool oci_digest_valid(const char *text);
void oci_digest_of(const uint8_t hash[SHA256_BYTES], char ret[OCI_DIGEST_SIZE]);

/*
 * Finds the manifest for processor `arch` in an index. A manifest that does not state its processor
 * is used if no other fits and it is the only one of its kind.
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
/* Refuses an archive that contains several images. */
int docker_manifest_read(const char *json, size_t len, struct docker_manifest *ret,
                         struct err *err);

/* Reads the digests of the uncompressed layers from a configuration. *ret_count is 0 if the
 * configuration does not list them. */
int oci_diff_ids_read(const char *json, size_t len, char ret[OCI_LAYERS_MAX][OCI_DIGEST_SIZE],
                      size_t *ret_count, struct err *err);
