/*
 * Covers: files on a tmpfs that are mounted over files of /proc and show the machine instead of the
 * host, such as /proc/meminfo.
 *
 * The guest holds a write lease on each cover. The kernel makes a process that opens a cover wait,
 * and signals the guest, which writes the present numbers and gives up the lease. When nobody has
 * the cover open any more, the guest takes the lease again. So covers cost nothing while nobody
 * reads them, and no process outside the machine is needed to read them. If the guest hangs, the
 * kernel ends the lease after /proc/sys/fs/lease-break-time.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

/* Adds the cover `name` ("meminfo"), of which the first `n` bytes count. False: unknown name. */
bool covers_add(const char *name, unsigned n, int fd);

/* Takes the leases, before any command runs. Call it in the first thread of the guest. */
void covers_begin(void);

/* True if the file is a cover. Opening one in the guest would wait for the guest itself. */
bool covers_have(const struct stat *st);

/* Call it after SIGIO: writes the covers that a process waits for. */
void covers_serve(void);

/* True: some cover has no lease, so covers_tick() must be called. */
bool covers_are_open(void);

/* Takes leases again, and writes covers that are still open. Returns when to call it again. */
int64_t covers_tick(int64_t now);
