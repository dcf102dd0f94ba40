/*
 * Chooses the CPUs of boxes with a cpu limit, so that programs inside see as many as they may use.
 *
 * A box with a limit of N cpus gets N CPUs, rounded up: those with the least load of such boxes.
 * This is not a defence: a process may choose other CPUs, and the cgroup enforces the limit.
 */
#pragma once

struct box;
struct spawner;

/* Sets the CPUs of a new box: of its pid 1, from which commands inherit them. */
void affinity_begin(struct spawner *s, struct box *box);

/* Sets the CPUs of a box whose cpu limit changed, for all its processes. */
void affinity_change(struct spawner *s, struct box *box);
