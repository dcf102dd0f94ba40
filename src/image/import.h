/*
 * Imports an archive as a tree and a configuration. The first entry names show its format: an OCI
 * layout, a Docker archive or a root filesystem.
 */
#pragma once

#include "image/config.h"
#include "image/unpack.h"

/*
 * From descriptor `in`. spool: an empty directory for what has to be laid aside. After a failure
 * the tree holds anything and must go.
 */
int image_import(int in, int spool, struct unpack *u, struct image_config *ret, struct err *err);
