/*
 * Parts of carrel-packages, the worker that reads documents of package archives. Documents are
 * hostile, so the worker confines itself before it reads one: it has only descriptors 0 to 4.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

enum {
    WORKER_DOCUMENT = 3, /* descriptor of the document */
    WORKER_INDEX = 4,    /* descriptor of the index that is written */
    WORKER_RELEASE_MAX = 8 << 20,
    WORKER_LIST_MAX = 256 << 20, /* limit of an unpacked package list */
    WORKER_NPM_MAX = 64 << 20,   /* limit of an unpacked document of a registry */
};

/* Gives up all rights but to read and write open descriptors. */
int worker_confine(struct err *err);
/* Called in the child before it becomes gpgv: no capability, no socket, no new process. */
int worker_confine_verifier(void);

/* Unpacks the document (gzip, xz or plain) and calls fn with each piece; fn returns false to fail.
 */
typedef bool worker_piece_fn(void *arg, const char *bytes, size_t n);
int worker_unpack(size_t max, worker_piece_fn *fn, void *arg, struct err *err);

/*
 * Verifies the clear signature of the document with gpgv and puts the signed text into *ret. At
 * least one signature must be good, and none may be bad. A signature of a key that is not in the
 * keyring does not count. Confines this process meanwhile.
 */
int worker_verify(const char *keyring, struct buf *ret, struct err *err);
