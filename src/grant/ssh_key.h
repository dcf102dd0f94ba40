/*
 * SSH keys for agents: ed25519, in the formats of OpenSSH. A key is stored as its seed. Only
 * ssh_key_new() depends on anything but its arguments.
 */
#pragma once

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

enum { SSH_SEED = 32, SSH_NAME_MAX = 100, SSH_FILE_MAX = 4096 };

int ssh_key_new(uint8_t ret[SSH_SEED], struct err *err);
/* Writes the public key as a line of authorized_keys: "ssh-ed25519 AAAA... name". */
int ssh_key_public(const uint8_t seed[SSH_SEED], const char *name, struct buf *ret,
                   struct err *err);
/* Writes the private key as the text of a file id_ed25519, without a passphrase. */
int ssh_key_private(const uint8_t seed[SSH_SEED], const char *name, struct buf *ret,
                    struct err *err);
