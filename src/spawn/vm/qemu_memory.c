/*
 * Loaded into the QEMU of a clone, before its own libraries. QEMU maps the whole memory of the
 * template privately, and the kernel would allocate a page of the template for each page of a hole
 * that the clone reads or writes: charged to the clone, besides its own copy, for as long as the
 * template lives. So the holes are mapped as memory of the clone alone.
 *
 * It needs no library. If it cannot do its work, QEMU does without.
 */
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include "spawn/vm/launch.h"

enum { HOLE_MIN = 64 << 10 }; /* the number of mappings is limited */

static char *memory;
static size_t memory_size;

static bool is_template(int flags, int fd) {
    struct stat file, ram;
    return (flags & MAP_TYPE) == MAP_PRIVATE && !(flags & MAP_ANONYMOUS) && fd >= 0 &&
           fstat(fd, &file) == 0 && fstat(VM_LAUNCH_RAM, &ram) == 0 && file.st_dev == ram.st_dev &&
           file.st_ino == ram.st_ino;
}

static void *memory_map(void *at, size_t size, int prot, int flags, int fd, off_t from) {
    return (void *)syscall(SYS_mmap, at, size, prot, flags, fd, from);
}

static void memory_map_holes(int prot, int flags, int fd) {
    off_t size = (off_t)memory_size;
    flags |= MAP_ANONYMOUS | MAP_FIXED;
    for (off_t at = 0, end; at < size && (at = lseek(fd, at, SEEK_HOLE)) >= 0 && at < size;
         at = end) {
        end = lseek(fd, at, SEEK_DATA);
        if (end < 0 || end > size)
            end = size;
        if (end - at >= HOLE_MIN)
            memory_map(memory + at, (size_t)(end - at), prot, flags, -1, 0);
    }
}

/* In place of that of the C library. */
void *mmap64(void *at, size_t size, int prot, int flags, int fd, off_t from) {
    void *got = memory_map(at, size, prot, flags, fd, from);
    if (got == MAP_FAILED || from != 0 || !is_template(flags, fd))
        return got;
    memory = got;
    memory_size = size;
    memory_map_holes(prot, flags, fd);
    return got;
}

/* Huge pages would be allocated for single pages of a hole. */
int madvise(void *at, size_t size, int advice) {
    bool is_huge = advice == MADV_HUGEPAGE && memory && at == memory;
    return is_huge ? 0 : (int)syscall(SYS_madvise, at, size, advice);
}
