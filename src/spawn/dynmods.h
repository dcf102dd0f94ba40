/*
 * Asks the kernel to favour changes of cgroups (mount option `favordynmods`, since Linux 6.0).
 *
 * Without it, moving a process into a cgroup waits for all cpus to pass through the scheduler: 5 to
 * 20 ms measured, and a box needs several moves. With it a move takes 20 us, and a fork costs about
 * 1 % more. The setting applies to the whole host, so the last spawner restores it on exit. Carrel
 * also works on hosts that refuse the setting, but more slowly.
 */
#pragma once

#include <stdbool.h>

struct dynmods {
    /* lock file of all spawners, locked shared; the last spawner can lock it exclusively */
    int lock;
    bool ours;         /* a spawner turned the setting on, so the last spawner must restore it */
    char where[256];   /* mount point of cgroup2 */
    char options[160]; /* mount options to restore */
};

/*
 * Turns the option on. run: directory for a file that records this and survives a crash; lock_dir:
 * directory of the lock file, one per host.
 */
void dynmods_favor(struct dynmods *d, int run, int lock_dir);
void dynmods_restore(struct dynmods *d, int run);
