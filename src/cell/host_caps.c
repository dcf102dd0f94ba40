/*
 * The host functions of module `carrel.1`, whose capabilities --allow gives: one row each.
 *
 * docs/reference/capabilities.md describes them. A function with an answer returns the length of
 * it, or a code below 0. The program then reads the answer with carrel.1.answer.
 */
#include <string.h>

#include "base/banned.h"
#include "base/capability.h"
#include "base/text/json_check.h"
#include "base/utf8.h"
#include "cell/host_inner.h"
#include "cell/json.h"

bool host_is_json(const void *bytes, size_t len) {
    return json_check(bytes, len) && utf8_valid(bytes, len);
}

/* The arguments are the JSON text of --args, or else the words of the command as a list. */
static bool add_args(const struct session *s, struct buf *ret) {
    const struct cell_options *o = s->job->options;
    if (s->input.data)
        return buf_add(ret, s->input.data, s->input.len);
    bool ok = buf_addf(ret, "[");
    for (int i = 1; ok && i < o->word_count; i++)
        ok = buf_addf(ret, "%s", i > 1 ? "," : "") &&
             json_string(ret, o->words[i], strlen(o->words[i]));
    return ok && buf_addf(ret, "]");
}

static void do_args(struct session *s, struct pending *p) {
    struct buf text = BUF(HOST_TRANSFER_MAX);
    if (s->replay)
        return;
    if (add_args(s, &text))
        host_put_answer(p, 0, text.data, text.len);
    else
        host_put_failure(p, 0, HOST_LIMIT, "the arguments are larger than 1 MiB");
    buf_done(&text);
}

static void do_answer(struct session *s, struct pending *p) {
    uint32_t offset = host_arg(p, 1), len = host_arg(p, 2);
    uint32_t have = offset < s->answer.len ? (uint32_t)s->answer.len - offset : 0;
    uint32_t n = len < have ? len : have;
    if (!host_guest_bytes(s, p, host_arg(p, 0), n))
        return;
    if (n && !buf_add(&p->given, s->answer.data + offset, n))
        p->trap = "cannot copy an answer: out of memory";
    host_give(p, wasm_i32((int32_t)n));
}

/* A later result replaces an earlier one. */
static void do_result_json(struct session *s, struct pending *p) {
    const uint8_t *bytes = host_taken(s, p);
    size_t len = host_arg(p, 1);
    if (!bytes)
        return;
    bool is_json = host_is_json(bytes, len);
    host_give(p, wasm_i32(is_json ? 0 : HOST_INVALID));
    if (!is_json)
        return;
    s->result.len = 0;
    if (!buf_add(&s->result, bytes, len))
        p->trap = "cannot keep the result: out of memory";
}

/* The parent asks the daemon, which checks the capability again. */
static void host_ask(struct session *s, struct pending *p, enum cell_ask kind) {
    struct buf answer = BUF(HOST_TRANSFER_MAX);
    const uint8_t *bytes = host_taken(s, p);
    if (!bytes || s->replay)
        return;
    int32_t code = link_ask(s->link, kind, bytes, host_arg(p, 1), &answer);
    if (code >= 0)
        host_put_answer(p, 0, answer.data, answer.len);
    else
        host_put_failure(p, 0, code < HOST_FAILED ? HOST_FAILED : (enum host_code)code,
                         answer.data ? answer.data : "");
    buf_done(&answer);
}

static void do_http(struct session *s, struct pending *p) {
    host_ask(s, p, CELL_ASK_HTTP);
}

static void do_model(struct session *s, struct pending *p) {
    host_ask(s, p, CELL_ASK_MODEL);
}

/* --- states --- */

static const char state_magic[8] = "CRLCAPS";
enum { STATE_PARTS = 3, STATE_HEAD = sizeof(state_magic) + 4 * STATE_PARTS };

bool host_capabilities_save(const struct session *s, struct buf *ret) {
    const struct slice parts[STATE_PARTS] = {
        {(const uint8_t *)s->answer.data, s->answer.len},
        {(const uint8_t *)s->result.data, s->result.len},
        s->input,
    };
    uint8_t head[STATE_HEAD];
    memcpy(head, state_magic, sizeof(state_magic));
    for (unsigned i = 0; i < STATE_PARTS; i++)
        for (unsigned k = 0; k < 4; k++)
            head[sizeof(state_magic) + 4 * i + k] = (uint8_t)(parts[i].len >> 8 * k);
    bool ok = buf_add(ret, head, sizeof(head));
    for (unsigned i = 0; ok && i < STATE_PARTS; i++)
        ok = !parts[i].len || buf_add(ret, parts[i].data, parts[i].len);
    return ok;
}

int host_capabilities_resume(struct session *s, struct slice *state, struct err *err) {
    struct slice parts[STATE_PARTS];
    size_t at = STATE_HEAD;
    if (state->len < STATE_HEAD || memcmp(state->data, state_magic, sizeof(state_magic)) != 0)
        return err_set(err, ERR_INVALID, "the state has no part of carrel.1");
    for (unsigned i = 0; i < STATE_PARTS; i++) {
        const uint8_t *p = state->data + sizeof(state_magic) + (size_t)4 * i;
        size_t len = p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16 | (size_t)p[3] << 24;
        if (len > state->len - at || len > HOST_TRANSFER_MAX)
            return err_set(err, ERR_INVALID, "the state is cut off");
        parts[i] = (struct slice){.data = state->data + at, .len = len};
        at += len;
    }
    s->answer.len = s->result.len = 0;
    if ((parts[0].len && !buf_add(&s->answer, parts[0].data, parts[0].len)) ||
        (parts[1].len && !buf_add(&s->result, parts[1].data, parts[1].len)))
        return err_set(err, ERR_LIMIT, "cannot resume the program: out of memory");
    if (s->result.len && !host_is_json(s->result.data, s->result.len))
        return err_set(err, ERR_INVALID, "the state has a result that is not JSON");
    if (parts[2].len)
        s->input = parts[2];
    *state = (struct slice){.data = state->data + at, .len = state->len - at};
    return 0;
}

/* --- the table --- */

/* The parameters and results of a type, after the number of each. */
#define TAKES(n, ...) .params = TYPES(__VA_ARGS__), .n_params = (n)
#define GIVES(type) .results = TYPES(type), .n_results = 1
#define ROW(of, bit) .module = HOST_CAPABILITIES, .name = (of), .capability = (bit)

const struct host_func capability_functions[] = {
    {ROW("log", CAPABILITY_LOG), .type = {TAKES(2, WASM_I32, WASM_I32)}, .cost = 500, .sized = 1,
     .run = host_do_log},
    {ROW("args", CAPABILITY_ARGS), .type = {GIVES(WASM_I32)}, .cost = 500, .sized = WASM_NOT_SIZED,
     .has_answer = true, .run = do_args},
    {ROW("answer", 0), .type = {TAKES(3, WASM_I32, WASM_I32, WASM_I32), GIVES(WASM_I32)},
     .cost = 100, .sized = 2, .is_unlogged = true, .run = do_answer},
    {ROW("result", CAPABILITY_RESULT), .type = {TAKES(2, WASM_I32, WASM_I32), GIVES(WASM_I32)},
     .cost = 500, .sized = 1, .run = do_result_json},
    {ROW("time", CAPABILITY_TIME), .type = {GIVES(WASM_I64)}, .cost = 500, .sized = WASM_NOT_SIZED,
     .run = host_do_clock},
    {ROW("random", CAPABILITY_RANDOM), .type = {TAKES(2, WASM_I32, WASM_I32)}, .cost = 500,
     .sized = 1, .run = host_do_random},
    {ROW("call", CAPABILITY_CALL),
     .type = {TAKES(5, WASM_I32, WASM_I32, WASM_I32, WASM_I32, WASM_I64), GIVES(WASM_I32)},
     .cost = 2000, .sized = 3, .has_answer = true, .run = host_do_call},
    {ROW("kv.get", CAPABILITY_KV), .type = {TAKES(2, WASM_I32, WASM_I32), GIVES(WASM_I32)},
     .cost = 5000, .sized = 1, .has_answer = true, .run = host_do_kv_get},
    {ROW("kv.put", CAPABILITY_KV),
     .type = {TAKES(4, WASM_I32, WASM_I32, WASM_I32, WASM_I32), GIVES(WASM_I32)}, .cost = 50000,
     .sized = 3, .has_answer = true, .run = host_do_kv_put},
    {ROW("kv.delete", CAPABILITY_KV), .type = {TAKES(2, WASM_I32, WASM_I32), GIVES(WASM_I32)},
     .cost = 5000, .sized = 1, .has_answer = true, .run = host_do_kv_delete},
    {ROW("kv.list", CAPABILITY_KV), .type = {TAKES(2, WASM_I32, WASM_I32), GIVES(WASM_I32)},
     .cost = 5000, .sized = 1, .has_answer = true, .run = host_do_kv_list},
    {ROW("http.request", CAPABILITY_HTTP), .type = {TAKES(2, WASM_I32, WASM_I32), GIVES(WASM_I32)},
     .cost = 20000, .sized = 1, .has_answer = true, .run = do_http},
    {ROW("model.ask", CAPABILITY_MODEL), .type = {TAKES(2, WASM_I32, WASM_I32), GIVES(WASM_I32)},
     .cost = 20000, .sized = 1, .has_answer = true, .run = do_model},
};
const size_t capability_function_count =
    sizeof(capability_functions) / sizeof(*capability_functions);
