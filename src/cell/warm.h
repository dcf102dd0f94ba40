/*
 * Warm images: an interpreter that has started, stopped before anything that a run decides.
 *
 * `carrel cell warm python` runs the interpreter with a driver, a script that imports common
 * modules and then reads standard input. There the worker stops and saves the program. A run of a
 * script resumes a copy: the first bytes of its standard input are a request with arguments and
 * variables, the others those of the command. The image has the hash secret that the interpreter
 * drew from the seed, so it fits only runs with that seed.
 *
 * A driver would be seen by scripts of PHP and QuickJS. They have none, and stop at their first
 * call of WASI, before they have seen arguments, variables, directories, time or random bytes. Such
 * an image saves the load of the program, and fits every run.
 *
 * An image is untrusted, like every saved state.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "base/sha256.h"
#include "cell/options.h"

enum { WARM_HEAD_SIZE = 64 }; /* bytes in front of the state: see warm_head() */

/* An interpreter that can be saved after its start. */
struct warm_program {
    const char *name;
    const char *ending; /* of scripts that the driver takes; NULL: there is no driver */
    const char *option; /* goes before code in the place of a script */
    const char *driver; /* or NULL: the program stops at its first call of WASI */
};

/* Returns the interpreter of this name; NULL: it cannot be saved. */
const struct warm_program *warm_program(const char *name);
/* Writes the bytes that an image of this interpreter and seed starts with. */
void warm_head(const struct warm_program *p, uint64_t seed, char head[WARM_HEAD_SIZE]);
/*
 * Computes the digest of the WASI part in front of a state, as host_wasi_save() writes it: 8 bytes,
 * its length (4 bytes), the part. False: it is cut off.
 */
bool warm_digest(const uint8_t *state, size_t len, uint8_t digest[SHA256_BYTES]);
/* True if a run with these options can start from an image with the same seed. */
bool warm_fits(const struct warm_program *p, const struct cell_options *o);
/* True if an image can run a command of a machine: a script by its ending, or code. */
bool warm_takes(const struct warm_program *p, const struct cell_options *o);
/*
 * Writes the request of a script: its path and arguments (the words after `skip`), and variables. A
 * program without a driver gets none.
 */
bool warm_request(const struct warm_program *p, const struct cell_options *o, int skip,
                  struct buf *ret);
