/*
 * Credentials of registries, from the file that `docker login` writes: the member `auths` of
 * $DOCKER_CONFIG/config.json, or ~/.docker/config.json. The file is only read, and programs that it
 * names (credsStore, credHelpers) are not run.
 */
#pragma once

#include "base/err.h"
#include "base/secret.h"

/* "user:password" for the host in base64, as Basic authentication sends it; NULL: none. */
struct secret *login_find(const char *host);
