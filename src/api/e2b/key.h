/*
 * API keys in the form that E2B clients accept: "e2b_" and hexadecimal digits.
 *
 * A key is a token (store/owners.h) in another spelling: each character of its base32 is five bits,
 * so its 52 characters are 65 digits. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "service/service.h"

enum { E2B_KEY_SIZE = 4 + 65 + 1 };

/* False: the text is not a token. */
bool e2b_key_from_token(const char *token, char ret[E2B_KEY_SIZE]);
/* False: the text is not a key. */
bool e2b_key_to_token(const char *key, size_t len, char ret[TOKEN_SIZE]);
