/*
 * Keys and values of programs, one file each in a directory: its name is the SHA-256 of the key.
 *
 * A file has a head, the key and the value, and a digest of the two. It is replaced as a whole, by
 * a rename. Everything in the directory is untrusted: a program with files may have put it there.
 * Functions here run in the jail and return 0, or an enum host_code with *why set.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "cell/jail.h"
#include "cell/log.h"

enum {
    KV_KEY_MAX = 256,        /* bytes of a key */
    KV_VALUE_MAX = 1 << 20,  /* bytes of a value */
    KV_KEYS_MAX = 1024,      /* keys of a machine */
    KV_BYTES_MAX = 16 << 20, /* bytes of all files */
};

/* True if the bytes can be a key: 1 to KV_KEY_MAX bytes of UTF-8. */
bool kv_key_ok(struct slice key);

int kv_get(int dir, struct slice key, struct buf *ret, const char **why);
int kv_put(struct link *l, int dir, struct slice key, struct slice value, const char **why);
int kv_delete(int dir, struct slice key, const char **why);
/* Writes the keys that begin with `prefix` as a sorted JSON list. *ret_files: files it looked at.
 */
int kv_list(int dir, struct slice prefix, struct buf *ret, uint32_t *ret_files, const char **why);
