#include "base/image_id.h"

#include <ctype.h>
#include <string.h>

static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz234567";

void image_id_of(const uint8_t hash[SHA256_BYTES], char ret[IMAGE_ID_SIZE]) {
    unsigned bits = 0, held = 0;
    char *to = ret;
    *to++ = 'i';
    *to++ = '-';
    for (size_t i = 0; i < SHA256_BYTES; i++) {
        bits = (bits << 8 | hash[i]) & 0xffff;
        for (held += 8; held >= 5; held -= 5)
            *to++ = alphabet[bits >> (held - 5) & 31];
    }
    *to++ = alphabet[bits << (5 - held) & 31];
    *to = '\0';
}

bool image_id_valid(const char *text) {
    return strncmp(text, "i-", 2) == 0 && strlen(text) == IMAGE_ID_SIZE - 1 &&
           strspn(text + 2, alphabet) == IMAGE_ID_SIZE - 3;
}

bool image_name_ok(const char *name) {
    size_t n = strlen(name);
    if (n == 0 || n >= IMAGE_NAME_SIZE || !isalnum((unsigned char)name[0]) ||
        !isalnum((unsigned char)name[n - 1]))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)name[i]) && !strchr("._-:", name[i]))
            return false;
    return strcmp(name, "host") != 0 && strncmp(name, "i-", 2) != 0;
}
