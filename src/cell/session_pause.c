/* A program of a cell machine is stored in a file, and another worker continues it (cell/pause.h).
 */
#include <stdatomic.h>
#include <string.h>

#include "base/banned.h"
#include "base/defer.h"
#include "cell/pause.h"
#include "cell/verb.h"

enum { PAUSE_TEXT_MAX = 16 << 20 };

bool session_must_pause(const struct session *s) {
    return s->link->pause && !s->caller &&
           atomic_load_explicit(s->link->pause, memory_order_relaxed);
}

static bool pause_send(void *arg, const void *bytes, size_t len) {
    link_state(arg, bytes, len);
    return true;
}

static void send_slice(struct session *s, struct slice part) {
    link_state(s->link, part.data, part.len);
}

/* The words and variables that the worker itself was started with. */
static bool add_text(const struct cell_options *o, struct buf *ret) {
    bool ok = true;
    for (int i = 0; ok && i < o->given_count; i++)
        ok = buf_add(ret, o->given[i], strlen(o->given[i]) + 1);
    for (int i = 0; ok && i < o->env_count; i++)
        ok = buf_add(ret, o->env[i], strlen(o->env[i]) + 1);
    return ok;
}

/* A program that comes from a dump has its bytes in the module. Text stays text, for messages. */
static struct slice program_bytes(const struct session *s) {
    struct slice bytes = s->job->bytes;
    if (s->job->dump)
        bytes.data = wasm_module_bytes(s->module, &bytes.len);
    return bytes;
}

static bool pause_parts_send(struct session *s) {
    const struct cell_options *o = s->job->options;
    struct buf text DEFER(buf_done) = BUF(PAUSE_TEXT_MAX),
                    host DEFER(buf_done) = BUF(JAIL_MAX_BLOB);
    uint8_t head[PAUSE_HEAD];
    struct err err;
    if (!add_text(o, &text) || !next_call_save(s, &host) ||
        (s->has_capabilities && !host_capabilities_save(s, &host)) ||
        (s->has_wasi && !host_wasi_save(s, &host)))
        return false;
    const struct pause_parts p = {.is_warm = s->is_warm,
                                  .fuel_before = s->fuel_before,
                                  .argc = (uint32_t)o->given_count,
                                  .envc = (uint32_t)o->env_count,
                                  .text = {(const uint8_t *)text.data, text.len},
                                  .module = program_bytes(s),
                                  .request = s->request};
    pause_head(&p, head);
    link_state(s->link, head, sizeof(head));
    send_slice(s, p.text);
    send_slice(s, p.module);
    send_slice(s, p.request);
    link_state(s->link, host.data, host.len);
    return wasm_capture_to(s->store, pause_send, s->link, &err) == 0;
}

void session_pause(struct session *s) {
    link_stay(s->link, pause_parts_send(s) ? STAY_STORED : STAY_FAILED);
}
