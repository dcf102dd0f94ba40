/*
 * The descriptors 0, 1 and 2 of a command, and the ends that the guest keeps.
 *
 * stdio_done() closes all descriptors that were not taken with TAKE_FD.
 */
#pragma once

#include "guest/guest.h"

struct stdio {
    int child[3];     /* descriptors that become 0, 1 and 2 of the command */
    bool is_ours[3];  /* stdio_open() opened child[i], and stdio_done() closes it */
    int host[3];      /* the guest's ends, or -1; take them with TAKE_FD */
    int copy[3];      /* pipes of the host that output is copied to, or -1; take them, too */
    bool is_terminal; /* host[0] and host[1] are the master side of a terminal */
};

/* Use: struct stdio io DEFER(stdio_done) = STDIO_NONE; */
#define STDIO_NONE \
    ((struct stdio){.child = {-1, -1, -1}, .host = {-1, -1, -1}, .copy = {-1, -1, -1}})

/*
 * Checks the modes: only stderr may be merged into another stream (stdout), and a terminal writes
 * to STDOUT.
 */
bool stdio_is_sound(const uint8_t modes[3]);
uint32_t stdio_count_fds(const uint8_t modes[3]);
/* True for a command that a serial port cannot carry. The guest can make a log itself. */
bool stdio_needs_fds(const struct msg_exec *e);

/*
 * Opens the standard streams of a command. fds: descriptors that came with the frame. The caller
 * keeps them, except those that output is copied to (MSG_EXEC_COPY). -1 with errno on failure.
 */
int stdio_open(struct stdio *io, const struct msg_exec *e, int *fds, int null);
void stdio_done(struct stdio *io);

int stdio_resize(int master, uint16_t rows, uint16_t cols);

/* Returns the foreground process group of the terminal, or `otherwise` if it is unknown. */
pid_t stdio_foreground(int master, pid_t otherwise);
