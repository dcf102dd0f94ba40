/*
 * Files up and down: GET and POST /files of the data plane.
 *
 * A path is signed by hash of the token of the sandbox, so that a client without the token can read
 * or write this one file.
 */
#pragma once

#include "api/e2b/envd_inner.h"

/* What a request for a file is allowed by. */
enum transfer_right {
    TRANSFER_SIGNED,
    TRANSFER_UNSIGNED, /* there is no signature */
    TRANSFER_FORGED,
    TRANSFER_EXPIRED,
};
enum transfer_right transfer_right_of(const struct http_exchange *x, const char *token);

void envd_download(struct envd_call *c);
void envd_upload(struct envd_call *c);
