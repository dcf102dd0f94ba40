/*
 * Ids and names of images.
 *
 * An id is made from the content: "i-" and the 52 base32 characters of a SHA-256. A name never
 * looks like an id.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/sha256.h"

enum {
    IMAGE_ID_SIZE = 55, /* with the NUL */
    IMAGE_NAME_SIZE = 64,
};

void image_id_of(const uint8_t hash[SHA256_BYTES], char ret[IMAGE_ID_SIZE]);
bool image_id_valid(const char *text);

/*
 * Whether a person may give an image this name, such as "debian:bookworm" or "team.web". A name has
 * letters, digits and "._-:", with a letter or digit at both ends. It is not "host" and does not
 * look like an id.
 */
bool image_name_ok(const char *name);
