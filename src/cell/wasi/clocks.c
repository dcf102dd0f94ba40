/*
 * Clocks, random bytes, arguments and the end of the program.
 *
 * The virtual clock begins at 2000-01-01. A unit of fuel takes a nanosecond, and waiting takes as
 * long as the program asked for, without waiting.
 */
#include <string.h>

#include "base/sha256.h"
#include "cell/wasi/wasi_inner.h"

#define VIRTUAL_EPOCH_NS (UINT64_C(946684800) * 1000000000)

uint64_t wasi_clock_now(const struct wasi_at *a, uint32_t clock) {
    struct wasi *w = a->w;
    const struct wasi_outside *o = &w->config.outside;
    if (clock == CLOCK_ID_PROCESS || clock == CLOCK_ID_THREAD)
        return a->c->fuel_used;
    if (!w->config.has_clock)
        return a->c->fuel_used + w->slept_ns + (clock == CLOCK_ID_REALTIME ? VIRTUAL_EPOCH_NS : 0);
    uint64_t now = o->clock_ns(o->ctx, clock == CLOCK_ID_MONOTONIC);
    if (clock == CLOCK_ID_REALTIME)
        return now;
    /* After a resume, perhaps on another host, the clock goes on from where it was. */
    if (w->is_resumed)
        w->monotonic_add = w->monotonic_ns - now;
    w->is_resumed = false;
    return w->monotonic_ns = now + w->monotonic_add;
}

int wasi_clock_time_get(const struct wasi_at *a) {
    if (wasi_u32(a, 0) > CLOCK_ID_THREAD)
        return WASI_INVAL;
    return wasi_put_number(a, wasi_u32(a, 2), wasi_clock_now(a, wasi_u32(a, 0)), 8);
}

int wasi_clock_res_get(const struct wasi_at *a) {
    if (wasi_u32(a, 0) > CLOCK_ID_THREAD)
        return WASI_INVAL;
    return wasi_put_number(a, wasi_u32(a, 1), 1, 8);
}

/* --- random bytes --- */

/* Block n of the seeded bytes is the SHA-256 of the seed and n. */
static void wasi_seeded(struct wasi *w, uint8_t *to, size_t len) {
    for (size_t at = 0; at < len; at += SHA256_BYTES) {
        uint8_t in[16], out[SHA256_BYTES];
        struct sha256 s;
        wasi_set_number(in, w->config.seed, 8);
        wasi_set_number(in + 8, w->random_next++, 8);
        sha256_init(&s);
        sha256_add(&s, in, sizeof(in));
        sha256_end(&s, out);
        memcpy(to + at, out, len - at < sizeof(out) ? len - at : sizeof(out));
    }
}

int wasi_random_get(const struct wasi_at *a) {
    uint32_t at = wasi_u32(a, 0), len = wasi_u32(a, 1);
    uint8_t *to = wasi_bytes(a->c, at, len);
    if (!to)
        return WASI_FAULT;
    if (len > WASI_TRANSFER_MAX)
        return WASI_INVAL;
    if (a->w->config.has_random)
        a->w->config.outside.random(a->w->config.outside.ctx, to, len);
    else
        wasi_seeded(a->w, to, len);
    wasi_note(a, at, len);
    return WASI_OK;
}

/* --- arguments and environment --- */

static int wasi_put_sizes(const struct wasi_at *a, const char *const *texts, size_t count) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += strlen(texts[i]) + 1;
    if (bytes > UINT32_MAX)
        return WASI_OVERFLOW;
    int error = wasi_put_number(a, wasi_u32(a, 0), count, 4);
    return error ? error : wasi_put_number(a, wasi_u32(a, 1), bytes, 4);
}

static int wasi_put_texts(const struct wasi_at *a, const char *const *texts, size_t count) {
    uint32_t list = wasi_u32(a, 0), to = wasi_u32(a, 1);
    int error = WASI_OK;
    for (size_t i = 0; !error && i < count; i++) {
        error = wasi_put_number(a, list + 4 * (uint32_t)i, to, 4);
        if (!error)
            error = wasi_put(a, to, texts[i], strlen(texts[i]) + 1);
        to += (uint32_t)strlen(texts[i]) + 1;
    }
    return error;
}

int wasi_args_sizes_get(const struct wasi_at *a) {
    return wasi_put_sizes(a, a->w->config.args, a->w->config.n_args);
}

int wasi_args_get(const struct wasi_at *a) {
    return wasi_put_texts(a, a->w->config.args, a->w->config.n_args);
}

int wasi_environ_sizes_get(const struct wasi_at *a) {
    return wasi_put_sizes(a, a->w->config.env, a->w->config.n_env);
}

int wasi_environ_get(const struct wasi_at *a) {
    return wasi_put_texts(a, a->w->config.env, a->w->config.n_env);
}

/* --- the end --- */

static void wasi_exit(const struct wasi_at *a, uint32_t code) {
    a->c->has_exited = true;
    a->c->exit_code = code;
}

int wasi_proc_exit(const struct wasi_at *a) {
    wasi_exit(a, wasi_u32(a, 0));
    return WASI_OK;
}

/* A signal ends the program as on Linux, unless its default is to be ignored. */
int wasi_proc_raise(const struct wasi_at *a) {
    enum { NONE = 0, CHLD = 16, CONT = 17, URG = 22, WINCH = 27, LAST = 30 };
    uint32_t signal = wasi_u32(a, 0);
    if (signal > LAST)
        return WASI_INVAL;
    if (signal != NONE && signal != CHLD && signal != CONT && signal != URG && signal != WINCH)
        wasi_exit(a, 128 + signal);
    return WASI_OK;
}

int wasi_sched_yield(const struct wasi_at *a) {
    (void)a;
    return WASI_OK;
}
