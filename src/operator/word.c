#include "operator/word.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/sha256.h"

void word_hash(const struct model_part *call, char ret[WORD_HASH_SIZE]) {
    sha256_hex(call->text, call->n, ret);
}

void word_item(const struct run *r, uint64_t index, char ret[WORD_ITEM_SIZE]) {
    char hash[WORD_HASH_SIZE];
    word_hash(run_turn_now(r)->calls[index].part, hash);
    snprintf(ret, WORD_ITEM_SIZE, "%s.%zu.%" PRIu64 ".%.16s", r->start.run, r->count - 1, index,
             hash);
}

bool word_run(const char *item, char ret[ID_SIZE]) {
    size_t n = strcspn(item, ".");
    if (n >= ID_SIZE || !id_valid(item, n, 'r'))
        return false;
    snprintf(ret, ID_SIZE, "%.*s", (int)n, item);
    return true;
}
