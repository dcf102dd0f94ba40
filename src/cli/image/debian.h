/*
 * Debian packages of image builds: base images, made by mmdebstrap, and the mirrors of this host's
 * apt.
 */
#pragma once

#include "cli/image/build_wait.h"

/* Creates image `name` of that Debian suite, from the mirrors that this host's apt uses. */
int debian_make(struct build_wait *w, const char *name, const char *suite, struct err *err);

/* Whether apt of this host uses a mirror on that host, which then may have a private address. */
bool debian_uses_mirror(const char *host);
