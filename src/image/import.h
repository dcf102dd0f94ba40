/*
 * Imports an archive as a tree and a configuration. The name of the first entry shows the format:
 * an OCI layout, a Docker archive, one layer of an image, or a root filesystem.
 */
#pragma once

#include "image/config.h"
#include "image/unpack.h"

/* First entry of an archive that has one layer of an image, and its OCI configuration. */
#define LAYER_MARK "carrel-layer"
#define LAYER_NAME "layer" /* each of its layers */

/*
 * Reads the archive from descriptor `in`. spool: an empty directory for temporary files. After a
 * failure the tree is incomplete and the caller must delete it.
 */
int image_import(int in, int spool, struct unpack *u, struct image_config *ret, struct err *err);
