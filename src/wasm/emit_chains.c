/*
 * Makes chains of the instructions that are written (chains.h). An instruction joins the chain that
 * ends before it, if there is one for both; else it may begin a chain.
 */
#include "wasm/chains.h"
#include "wasm/emit_inner.h"

/* Per instruction or chain: its number + 1 among those that a further one can join, or 0. */
static const uint16_t chain_first[CHAINS_END] = {
#define X(number, first, words) [number] = CHAIN_FIRST_##first + 1,
    CHAIN_FIRSTS(X)
#undef X
};
/* Per chain: its last instruction. Chains with the same first part follow each other. */
static const uint16_t chain_last[CHAINS_END - I_CHAINS] = {
#define X(first, number, label) number,
#define ROW(number, first, words) CHAINS_OF_##first(X)
    CHAIN_FIRSTS(ROW)
#undef ROW
#undef X
};
static const uint16_t chain_begin[N_CHAIN_FIRSTS + 1] = {
#define X(number, first, words) I_CHAINS_OF_##first,
    CHAIN_FIRSTS(X)
#undef X
        CHAINS_END};

/* Returns the number of the chain that `first` and then `code` make, or 0. */
static uint32_t chain_of(uint32_t first, uint32_t code) {
    for (uint32_t i = first ? chain_begin[first - 1] : 0; first && i < chain_begin[first]; i++)
        if (chain_last[i - I_CHAINS] == code)
            return i;
    return 0;
}

static void set_number(struct scratch *w, uint32_t at, uint32_t number) {
    if (!w->no_memory)
        w->words[at] = (w->words[at] & ~UINT64_C(0xffff)) | number;
}

/* Lets instruction `code` at `at` join the chain before it, or begin one. */
static void chain_join(struct scratch *w, uint32_t at, uint32_t code) {
    struct chain before = w->chain_before;
    uint32_t number = chain_of(before.first, code);
    if (number)
        set_number(w, before.at, number);
    w->chain_joined = number != 0;
    w->chain = (struct chain){.first = chain_first[number ? number : code],
                              .at = number ? before.at : at,
                              .number = number ? number : code};
}

void em_chain_next(struct scratch *w, uint32_t code) {
    if (w->stepping)
        return;
    w->chain_before = w->chain;
    w->chain_last = w->n_words;
    chain_join(w, w->n_words, code);
}

void em_chain_break(struct scratch *w) {
    w->chain.first = 0;
    w->chain_last = NO_LINK;
}

void em_chain_renumber(struct scratch *w, uint32_t at, uint32_t code) {
    if (w->chain_last != at)
        return;
    if (w->chain_joined)
        set_number(w, w->chain_before.at, w->chain_before.number);
    chain_join(w, at, code);
}
