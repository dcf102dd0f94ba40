/*
 * Warm images: an interpreter that has started, stopped before it reads its first request.
 *
 * `carrel cell warm python` runs the interpreter with a driver, a script that imports common
 * modules and then reads standard input. There the worker stops and saves the program. A run of a
 * script resumes a copy: the first bytes of its standard input are a request with arguments and
 * variables, the others those of the command.
 *
 * The image has the hash secret that the interpreter drew from the seed, so it fits only runs with
 * that seed. It is untrusted, like every saved state.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "base/sha256.h"
#include "cell/options.h"

enum { WARM_HEAD_SIZE = 64 }; /* bytes in front of the state: see warm_head() */

/* Returns the driver of an interpreter; NULL: it has none. */
const char *warm_driver(const char *program);
/* Writes the bytes that an image of this interpreter and seed starts with. */
void warm_head(const char *program, uint64_t seed, char head[WARM_HEAD_SIZE]);
/*
 * Computes the digest of the WASI part in front of a state, as host_wasi_save() writes it: 8 bytes,
 * its length (4 bytes), the part. False: it is cut off.
 */
bool warm_digest(const uint8_t *state, size_t len, uint8_t digest[SHA256_BYTES]);
/* True if a run with these options can start from an image with the same seed. */
bool warm_fits(const struct cell_options *o);
/* Writes the request of a script: its path and arguments (the words after `skip`), and variables.
 */
bool warm_request(const struct cell_options *o, int skip, struct buf *ret);
