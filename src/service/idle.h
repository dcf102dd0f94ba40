/*
 * Decides whether a machine is idle, from kernel counters and never from silence on the API.
 *
 * Pure: it gets samples and returns the idle time. A machine is in use while a command runs, a
 * terminal or stream is open, an approval is pending, or its processes use more cpu or I/O than
 * IDLE_MURMUR_*. If the host cannot count cpu and I/O, a machine is in use while it has processes.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct idle_sample {
    uint64_t now_ms;
    uint64_t cpu_us;   /* since the start of the machine */
    uint64_t io_bytes; /* since the start of the machine */
    uint32_t commands; /* running commands */
    uint32_t open;     /* terminals and streams with a client */
    uint32_t pending;  /* pending approvals */
    bool busy;         /* processes exist, but their activity cannot be counted */
};

struct idle_state {
    struct idle_sample last;
    uint64_t active_ms; /* when the machine was last in use */
    bool begun;
};

/*
 * CPU time and I/O per second up to which a machine is idle: timers and waiting servers use some.
 */
enum { IDLE_MURMUR_CPU_US = 5000, IDLE_MURMUR_IO_BYTES = 4096 };

/* Call it for each request for the machine, which counts as use. */
void idle_touch(struct idle_state *s, uint64_t now_ms);

/* Adds a sample and returns how long the machine has been idle; 0: in use. */
uint64_t idle_feed(struct idle_state *s, const struct idle_sample *sample);

/* Time until the next sample: a tenth of the idle timeout, within fixed bounds. */
uint64_t idle_next_ms(uint64_t idle_timeout_ms);
