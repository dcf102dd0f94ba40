/*
 * Pushes an image: reads it from a descriptor as an OCI layout in a tar archive, whose index comes
 * before the blobs.
 *
 * Blobs that the registry has are not sent. A blob is sent in parts, and a part whose connection
 * broke is sent again from where the registry says it ended. The manifest is sent last.
 */
#pragma once

#include "registry/client.h"

/* Writes the digest of the manifest. */
int registry_push(struct registry *r, const struct reference *ref, int fd,
                  char ret[REFERENCE_DIGEST_SIZE], struct err *err);
