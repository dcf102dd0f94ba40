#include "api/e2b/key.h"

#include <string.h>

static const char base32[] = "abcdefghijklmnopqrstuvwxyz234567";
static const char digits[] = "0123456789abcdef";
enum { LEAD = 4, LETTERS = TOKEN_SIZE - 1 - LEAD, DIGITS = E2B_KEY_SIZE - 1 - LEAD };
_Static_assert(LETTERS * 5 == DIGITS * 4, "both spellings have the same number of bits");

/*
 * Writes the bits of `n` characters of one alphabet in characters of the other one. The alphabets
 * have 1 << from and 1 << to characters.
 */
static bool respell(const char *text, size_t n, const char *alphabet, unsigned from,
                    const char *others, unsigned to, char *ret) {
    unsigned bits = 0, held = 0;
    for (size_t i = 0; i < n; i++) {
        const char *at = text[i] ? strchr(alphabet, text[i]) : NULL;
        if (!at)
            return false;
        bits = (bits << from | (unsigned)(at - alphabet)) & 0xfff;
        for (held += from; held >= to; held -= to)
            *ret++ = others[bits >> (held - to) & ((1u << to) - 1)];
    }
    *ret = '\0';
    return true;
}

bool e2b_key_from_token(const char *token, char ret[E2B_KEY_SIZE]) {
    if (strlen(token) != TOKEN_SIZE - 1 || memcmp(token, "crl_", LEAD) != 0)
        return false;
    memcpy(ret, "e2b_", LEAD);
    return respell(token + LEAD, LETTERS, base32, 5, digits, 4, ret + LEAD);
}

bool e2b_key_to_token(const char *key, size_t len, char ret[TOKEN_SIZE]) {
    if (len != E2B_KEY_SIZE - 1 || memcmp(key, "e2b_", LEAD) != 0)
        return false;
    memcpy(ret, "crl_", LEAD);
    return respell(key + LEAD, DIGITS, digits, 4, base32, 5, ret + LEAD);
}
