/*
 * Decides whether a machine is idle, from kernel counters and never from silence on the API.
 *
 * Pure: samples in, a verdict out. A machine is in use while a command runs, a terminal or stream
 * is open, an approval is pending, or its processes use more cpu or I/O than IDLE_MURMUR_*. If the
 * host cannot count that, it is in use while it has processes.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct idle_sample {
    uint64_t now_ms;
    uint64_t cpu_us;   /* since the machine's start */
    uint64_t io_bytes; /* likewise */
    uint32_t commands; /* running */
    uint32_t open;     /* terminals and streams somebody follows */
    uint32_t pending;  /* approvals */
    bool busy;         /* something lives there, and nobody counts what it does */
};

struct idle_state {
    struct idle_sample last;
    uint64_t active_ms; /* when it was last seen in use */
    bool begun;
};

/* Less than this a second is the murmur of timers and servers that wait. */
enum { IDLE_MURMUR_CPU_US = 5000, IDLE_MURMUR_IO_BYTES = 4096 };

/* Something was asked of it: counts as use. */
void idle_touch(struct idle_state *s, uint64_t now_ms);

/* Takes a sample; returns for how long it has been idle, 0 while it is in use. */
uint64_t idle_feed(struct idle_state *s, const struct idle_sample *sample);

/* When to look again, so that an idle timeout is met within a tenth of it. */
uint64_t idle_next_ms(uint64_t idle_timeout_ms);
