#include "service/idle.h"

enum { LOOK_MIN_MS = 200, LOOK_MAX_MS = 10000 };

void idle_touch(struct idle_state *s, uint64_t now_ms) {
    if (now_ms > s->active_ms)
        s->active_ms = now_ms;
}

static bool in_use(const struct idle_sample *a, const struct idle_sample *b) {
    uint64_t ms = b->now_ms > a->now_ms ? b->now_ms - a->now_ms : 1;
    /* A counter that went backwards belongs to a new box. */
    uint64_t cpu = b->cpu_us > a->cpu_us ? b->cpu_us - a->cpu_us : 0;
    uint64_t io = b->io_bytes > a->io_bytes ? b->io_bytes - a->io_bytes : 0;
    return b->commands || b->open || b->pending || b->busy ||
           cpu * 1000 > ms * IDLE_MURMUR_CPU_US || io * 1000 > ms * IDLE_MURMUR_IO_BYTES;
}

uint64_t idle_feed(struct idle_state *s, const struct idle_sample *sample) {
    if (!s->begun || in_use(&s->last, sample))
        idle_touch(s, sample->now_ms);
    s->last = *sample;
    s->begun = true;
    return sample->now_ms > s->active_ms ? sample->now_ms - s->active_ms : 0;
}

uint64_t idle_next_ms(uint64_t idle_timeout_ms) {
    uint64_t tenth = idle_timeout_ms / 10;
    return tenth < LOOK_MIN_MS ? LOOK_MIN_MS : tenth > LOOK_MAX_MS ? LOOK_MAX_MS : tenth;
}
