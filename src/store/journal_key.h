/*
 * The Ed25519 key of the journal: `key` and `key.pub` (PEM) in its directory.
 *
 * The private key is readable only by the daemon's user and never leaves this module.
 */
#pragma once

#include "store/journal.h"

struct journal_key;

/* Reads the journal's key, or creates it if it is missing. */
int journal_key_open(int dir, struct journal_key **ret, struct err *err);
void journal_key_free(struct journal_key *key);

void journal_key_public(const struct journal_key *key, uint8_t ret[JOURNAL_PUBKEY_BYTES]);

/* Signs head->seq and head->hash; stores the signature in head->sig. */
int journal_head_sign(const struct journal_key *key, struct journal_head *head, struct err *err);
bool journal_head_verify(const uint8_t pubkey[JOURNAL_PUBKEY_BYTES],
                         const struct journal_head *head);
