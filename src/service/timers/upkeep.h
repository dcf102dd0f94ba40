/*
 * Upkeep: tasks that keep a machine in order. A task is a timer whose command is ours. So it is
 * switched on by adding the timer, and off by removing it. Every run begins with a step.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct live;

struct upkeep_task {
    const char *name;
    uint64_t every_ms; /* unless the timer says so */
    bool needs_vm;
};

enum { UPKEEP_WORDS = 5 };

/* NULL-terminated, for choices of a field. */
extern const char *const upkeep_names[];
/* Sets *err and returns NULL if there is no such task, or the machine cannot do it. */
const struct upkeep_task *upkeep_find(const struct live *l, const char *name, struct err *err);
/* The command of a task. */
void upkeep_words(const char *task, const char *ret[UPKEEP_WORDS]);
