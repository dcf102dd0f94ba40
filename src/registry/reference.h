/*
 * Names of images in registries: [HOST[:PORT]/]REPOSITORY[:TAG][@sha256:DIGEST]. Pure.
 *
 * A name without a host is one of Docker Hub. The parts have only characters that the OCI
 * distribution specification allows, so they can stand in a URL as they are.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

#define REFERENCE_HUB "docker.io"
enum { REFERENCE_DIGEST_SIZE = 72 };

struct reference {
    char host[256];       /* as it was typed, with its port; "docker.io" for Docker Hub */
    char repository[256]; /* "library/debian" */
    char tag[129];        /* "latest" if neither tag nor digest is given; empty: only a digest */
    char digest[REFERENCE_DIGEST_SIZE]; /* empty: none */
};

int reference_read(const char *text, struct reference *ret, struct err *err);

/* True for "sha256:" and 64 digits. */
bool reference_digest_ok(const char *digest);
/* True if the host, which may have a port, is this computer: localhost, 127.0.0.0/8 or [::1]. */
bool reference_is_loopback(const char *host);
