/* Sorting that is not in the C library. */
#pragma once

#include <stddef.h>

/* For processes with a seccomp filter: sorts in place and makes no system call. qsort() may
 * allocate memory. */
void heap_sort(void *base, size_t n, size_t size, int (*compare)(const void *a, const void *b));

/* Orders texts (char *) by their bytes; for qsort(). */
int by_bytes_of_text(const void *a, const void *b);
/* Sorts allocated texts by their bytes and frees repeated ones; returns how many are left. */
size_t sort_texts_once(char **texts, size_t n);
