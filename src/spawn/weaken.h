/*
 * For tests only: disables one defence, to show that the attack it stops would work without it.
 *
 * In the product weakened() is the constant false and the compiler removes the code behind it. Only
 * carrel-spawn-weak, which is not installed, is built with CARREL_WEAKEN. It reads the names of the
 * defences to disable from the environment variable CARREL_WEAKEN.
 */
#pragma once

#include <stdbool.h>

#ifdef CARREL_WEAKEN
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

static inline bool weakened(const char *defence) {
    const char *list = getenv("CARREL_WEAKEN");
    size_t n = strlen(defence);
    for (const char *at = list; at && *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == n && strncmp(at, defence, n) == 0)
            return true;
    return false;
}

/* Leaks a descriptor of the host's root without close-on-exec: close_range() must close it. */
static inline void weaken_plant(void) {
    (void)!fcntl(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC), F_DUPFD, 1500);
}
#else
#define weakened(defence) false
#define weaken_plant() ((void)0)
#endif
