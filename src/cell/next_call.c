/*
 * The part of a state that was saved before the program's function was called: during
 * instantiation, or during _initialize of a library. It has the function and its arguments as
 * words.
 */
#include <string.h>

#include "base/banned.h"
#include "cell/verb.h"

static const char next_magic[8] = "CRLNEXT";
enum { NEXT_HEAD = sizeof(next_magic) + 1 + 4, NEXT_MAX = 64 << 10 };

/* Words end with a NUL: the name of --invoke, or an empty word, and then the arguments. */
static bool next_words(const struct cell_options *o, struct buf *ret) {
    const char *invoke = o->invoke ? o->invoke : "";
    bool ok = buf_add(ret, invoke, strlen(invoke) + 1);
    for (int i = 0; ok && i < o->arg_count; i++)
        ok = buf_add(ret, o->args[i], strlen(o->args[i]) + 1);
    return ok;
}

bool next_call_save(const struct session *s, struct buf *ret) {
    struct buf words = BUF(NEXT_MAX);
    uint8_t head[NEXT_HEAD];
    if (s->phase == RUN_CALLS)
        return true;
    bool ok = next_words(s->call, &words);
    memcpy(head, next_magic, sizeof(next_magic));
    head[sizeof(next_magic)] = (uint8_t)s->phase;
    for (unsigned i = 0; i < 4; i++)
        head[sizeof(next_magic) + 1 + i] = (uint8_t)(words.len >> 8 * i);
    ok = ok && buf_add(ret, head, sizeof(head)) && buf_add(ret, words.data, words.len);
    buf_done(&words);
    return ok;
}

int next_call_resume(struct session *s, struct slice *state, struct cell_options *o,
                     struct err *err) {
    if (state->len < NEXT_HEAD || memcmp(state->data, next_magic, sizeof(next_magic)) != 0)
        return 0;
    const uint8_t *p = state->data + sizeof(next_magic);
    size_t len = p[1] | (size_t)p[2] << 8 | (size_t)p[3] << 16 | (size_t)p[4] << 24;
    const char *words = (const char *)state->data + NEXT_HEAD, *at = words;
    if (len == 0 || len > state->len - NEXT_HEAD || words[len - 1] ||
        (p[0] != RUN_BEGINS && p[0] != RUN_INITIALIZES))
        return err_set(err, ERR_INVALID, "the state has a damaged call");
    o->invoke = *at ? at : NULL;
    o->arg_count = 0;
    for (at += strlen(at) + 1; at < words + len; at += strlen(at) + 1) {
        if (o->arg_count == CELL_MAX_ARGS)
            return err_set(err, ERR_INVALID, "the state has a damaged call");
        o->args[o->arg_count++] = at;
    }
    s->phase = (enum run_phase)p[0];
    *state =
        (struct slice){.data = state->data + NEXT_HEAD + len, .len = state->len - NEXT_HEAD - len};
    return 0;
}
