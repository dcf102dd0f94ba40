/* Reads a WWW-Authenticate field of a registry: `Bearer realm="...",service="..."`, or Basic. Pure.
 */
#pragma once

#include <stdbool.h>

enum challenge_kind { CHALLENGE_NONE, CHALLENGE_BASIC, CHALLENGE_BEARER };

struct challenge {
    enum challenge_kind kind;
    char realm[1024], service[256], scope[512];
};

/* A field of another scheme, or a Bearer without a realm, is CHALLENGE_NONE. */
struct challenge challenge_read(const char *field);
