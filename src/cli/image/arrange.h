/*
 * Sends an OCI layout layer by layer, in the order in which the daemon keeps its layers: an index
 * of one manifest, the manifest, the configuration, and the layers, lowest first.
 *
 * The layout is a directory, or a tar that is not compressed. An archive of `docker save` is sent
 * in the same form: its layers are hashed, and must have the digests of its configuration. Nothing
 * is copied: the files are read where they are. The daemon verifies digests.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cli/layout.h"

struct arranged;

/*
 * Finds the image for this processor. fd: the directory or the archive; it must stay open. NULL: it
 * is not such a layout. The daemon then makes one tree of the archive as it is, or says what is
 * wrong with it.
 */
struct arranged *arrange_open(int fd, bool is_dir);
void arranged_free(struct arranged **a);

/* Bytes of the files that arranged_send() sends. */
uint64_t arranged_bytes(const struct arranged *a);
int arranged_send(const struct arranged *a, layout_write_fn *write, void *arg, struct err *err);
