/*
 * Sorts in processes with a seccomp filter.
 *
 * It sorts in place and makes no system call; qsort() may allocate memory.
 */
#pragma once

#include <stddef.h>

void heap_sort(void *base, size_t n, size_t size, int (*compare)(const void *a, const void *b));
