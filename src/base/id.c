#include "base/id.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>

#include "base/err.h"

static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz234567";

struct id id_new(char kind) {
    struct id id;
    uint8_t random[12];
    /* Up to 256 bytes, getrandom() returns all bytes once the kernel's generator is ready. */
    while (getrandom(random, sizeof(random), 0) != sizeof(random))
        ;
    id.text[0] = kind;
    id.text[1] = '-';
    for (size_t i = 0; i < sizeof(random); i++)
        id.text[2 + i] = alphabet[random[i] & 31];
    id.text[ID_SIZE - 1] = '\0';
    return id;
}

bool id_valid(const char *text, size_t len, char kind) {
    if (len != ID_SIZE - 1 || text[0] != kind || text[1] != '-')
        return false;
    for (size_t i = 2; i < len; i++)
        if (!text[i] || !strchr(alphabet, text[i]))
            return false;
    return true;
}

void id_to_label(const char *id, char ret[ID_LABEL_SIZE]) {
    assert(id_valid(id, strlen(id), id[0]));
    ret[0] = id[0];
    memcpy(ret + 1, id + 2, ID_LABEL_SIZE - 1);
}

bool id_from_label(const char *label, size_t len, char kind, char ret[ID_SIZE]) {
    char id[ID_SIZE] = {kind, '-'};
    if (len != ID_LABEL_SIZE - 1 || label[0] != kind)
        return false;
    memcpy(id + 2, label + 1, len - 1);
    if (!id_valid(id, sizeof(id) - 1, kind))
        return false;
    memcpy(ret, id, sizeof(id));
    return true;
}
