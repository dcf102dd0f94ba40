/*
 * Pulls an image: writes it to a descriptor as an OCI layout in a tar archive.
 *
 * Every byte is checked against the digest and the size that the manifest has for it. The archive
 * has no end if a check fails, so that no reader takes it for complete.
 */
#pragma once

#include "registry/client.h"
#include "registry/document.h"

/*
 * Calls `plan` once, before the first byte, with the manifest and its number of layers; 0 if a
 * layer occurs twice, because a blob is written once. It returns how many of the lowest layers the
 * archive need not have, at most `layers`.
 */
struct pull_options {
    const char *arch;
    size_t (*plan)(void *arg, const struct document *doc, size_t layers);
    void *arg;
};
int registry_pull(struct registry *r, const struct reference *ref, int fd,
                  const struct pull_options *o, struct err *err);
