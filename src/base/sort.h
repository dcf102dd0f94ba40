/* Sorting in place that asks nothing of the system, for code behind a system call filter. */
#pragma once

#include <stddef.h>

void heap_sort(void *base, size_t n, size_t size, int (*compare)(const void *a, const void *b));
