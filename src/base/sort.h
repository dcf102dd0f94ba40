/* Sorts in place without system calls, for code behind a seccomp filter. */
#pragma once

#include <stddef.h>

void heap_sort(void *base, size_t n, size_t size, int (*compare)(const void *a, const void *b));
