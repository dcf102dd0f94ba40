/*
 * Debian packages of image builds: base images, made by mmdebstrap, and the mirrors of this host's
 * apt.
 */
#pragma once

#include "cli/image/build_wait.h"

/* Creates image `name` of that Debian suite, from the mirrors that this host's apt uses. */
int debian_make(struct build_wait *w, const char *name, const char *suite, struct err *err);

/* Hosts of the mirrors that apt of this host uses, as a list: they may have private addresses. */
json_t *debian_mirrors(void);
