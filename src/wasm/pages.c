/*
 * Pages for linear memories and stacks.
 *
 * Small mappings are anonymous. From 1 MiB on, on Linux, a memory is a memfd. A fork seals the
 * memfd, and every store that shares it maps it privately, so the kernel copies only pages that are
 * written later. Without a memfd, a fork copies the memory.
 */
#include "wasm/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SHARE_FROM = 1 << 20 };

/*
 * A sealed memfd and the number of its users. Its old mapping is parked: moved to another address
 * and unmapped with the last user, because unmapping takes longer than the rest of a fork.
 */
struct image {
    int fd;
    uint32_t refs;
    uint64_t size;
    void *parked; /* the old mapping, or NULL */
};

struct pages {
    struct wasm_engine *engine;
    uint8_t *base;
    uint64_t size;
    uint64_t mapped; /* bytes mapped at base; more than size, so that growing seldom changes base */
    int fd;          /* memfd that is mapped shared and not yet sealed; or -1 */
    struct image *image; /* sealed memfd that is mapped privately; or NULL */
};

static uint8_t *map(uint64_t size, int flags, int fd) {
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, fd, 0);
    return p == MAP_FAILED ? NULL : p;
}

#ifdef __linux__
static int file_new(uint64_t size) {
    int fd = memfd_create("cell", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd >= 0 && ftruncate(fd, (off_t)size) < 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}
#else
static int file_new(uint64_t size) {
    (void)size;
    errno = ENOSYS;
    return -1;
}
#endif

static bool map_fresh(struct pages *p, uint64_t size) {
    p->fd = size >= SHARE_FROM ? file_new(size) : -1;
    p->base = p->fd >= 0 ? map(size, MAP_SHARED, p->fd)
                         : map(size, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
    if (!p->base && p->fd >= 0) {
        close(p->fd);
        p->fd = -1;
    }
    p->size = p->mapped = p->base ? size : 0;
    return p->base != NULL;
}

struct pages *pages_new(struct wasm_engine *e, uint64_t size, uint8_t **ret_base) {
    struct pages *p = engine_alloc(e, sizeof *p);
    if (!p)
        return NULL;
    *p = (struct pages){.engine = e, .fd = -1};
    if (size && !map_fresh(p, size)) {
        engine_release(e, p, sizeof *p);
        return NULL;
    }
    *ret_base = p->base;
    return p;
}

static void image_unref(struct wasm_engine *e, struct image *i) {
    if (!i || --i->refs)
        return;
    if (i->parked)
        munmap(i->parked, i->size);
    close(i->fd);
    engine_release(e, i, sizeof *i);
}

static void unmap(struct pages *p) {
    if (p->base)
        munmap(p->base, p->mapped);
    if (p->fd >= 0)
        close(p->fd);
    image_unref(p->engine, p->image);
}

void pages_free(struct pages *p) {
    if (!p)
        return;
    unmap(p);
    engine_release(p->engine, p, sizeof *p);
}

void pages_adopt(struct pages *p, uint8_t *base, uint64_t size, uint64_t mapped) {
    *p =
        (struct pages){.engine = p->engine, .base = base, .size = size, .mapped = mapped, .fd = -1};
}

/* ---- Finding units that were written ---- */

static void units_set(uint8_t *units, uint64_t from, uint64_t to) {
    uint64_t first = from / PAGES_UNIT, end = (to + PAGES_UNIT - 1) / PAGES_UNIT;
    memset(units + first, 1, end - first);
}

#ifdef __linux__
/* Sets units[i] for each unit with data in the file. False: the kernel cannot report holes. */
static bool file_touched(int fd, uint64_t size, uint8_t *units) {
    for (uint64_t at = 0; at < size;) {
        off_t data = lseek(fd, (off_t)at, SEEK_DATA);
        if (data < 0)
            return errno == ENXIO;
        if ((uint64_t)data >= size)
            return true;
        off_t hole = lseek(fd, data, SEEK_HOLE);
        if (hole < 0)
            return false;
        at = (uint64_t)hole < size ? (uint64_t)hole : size;
        units_set(units, (uint64_t)data, at);
    }
    return true;
}

enum { MAP_ENTRIES = 512 };

/* True for a page of a private mapping that was written: the page is anonymous, so it is in memory
   or swapped out, and does not belong to the file. */
static bool is_own_page(uint64_t entry) {
    const uint64_t present = UINT64_C(1) << 63, swapped = UINT64_C(1) << 62,
                   of_file = UINT64_C(1) << 61;
    return (entry & (present | swapped)) && !(entry & of_file);
}

/* Reads the pagemap entries of n pages from `address` on. Returns how many it could read. */
static uint64_t read_entries(int fd, uint64_t *entries, const void *address, uint64_t n) {
    uint64_t first = (uint64_t)(uintptr_t)address / (uint64_t)sysconf(_SC_PAGESIZE);
    ssize_t got = pread(fd, entries, n * sizeof *entries, (off_t)(first * sizeof *entries));
    return got < 0 ? 0 : (uint64_t)got / sizeof *entries;
}

static bool private_touched(const struct pages *p, uint8_t *units) {
    uint64_t entries[MAP_ENTRIES] = {0}, page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t n = p->size / page, done = 0;
    int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    /* Under an emulator the pagemap may be of another address space. A page of our own stack, which
     * was just written, shows whether the pagemap is ours. */
    bool is_true = fd >= 0 && read_entries(fd, entries, entries, 1) == 1 && is_own_page(entries[0]);
    while (is_true && done < n) {
        uint64_t want = n - done < MAP_ENTRIES ? n - done : MAP_ENTRIES;
        uint64_t read = read_entries(fd, entries, p->base + done * page, want);
        if (!read)
            break;
        for (uint64_t i = 0; i < read; i++)
            if (is_own_page(entries[i]))
                units_set(units, (done + i) * page, (done + i + 1) * page);
        done += read;
    }
    if (fd >= 0)
        close(fd);
    return done == n;
}

static bool find_touched(const struct pages *p, uint8_t *units) {
    if (p->fd >= 0)
        return file_touched(p->fd, p->size, units);
    return p->image && file_touched(p->image->fd, p->size, units) && private_touched(p, units);
}
#else
static bool find_touched(const struct pages *p, uint8_t *units) {
    (void)p, (void)units;
    return false;
}
#endif

void pages_touched(const struct pages *p, uint8_t *units) {
    if (!find_touched(p, units))
        units_set(units, 0, p->size);
}

static bool is_zero(const uint8_t *p) {
    return p[0] == 0 && memcmp(p, p + 1, PAGES_UNIT - 1) == 0;
}

/* Returns a byte per unit: 1 if a copy has to read it. NULL (out of memory): read all units. */
static uint8_t *touched_new(const struct pages *p) {
    uint8_t *units = engine_alloc(p->engine, p->size / PAGES_UNIT);
    if (units)
        pages_touched(p, units);
    return units;
}

/* Copies pages to fresh ones at `to`. Zero units are not written, so they take no memory. */
static void copy_nonzero(uint8_t *to, const struct pages *from) {
    uint8_t *units = touched_new(from);
    for (uint64_t i = 0; i < from->size / PAGES_UNIT; i++)
        if ((!units || units[i]) && !is_zero(from->base + i * PAGES_UNIT))
            memcpy(to + i * PAGES_UNIT, from->base + i * PAGES_UNIT, PAGES_UNIT);
    engine_release(from->engine, units, from->size / PAGES_UNIT);
}

/* Copies changed units over a private mapping of the same image. Equal units stay shared. */
static void copy_changed(uint8_t *to, const struct pages *from) {
    uint8_t *units = touched_new(from);
    for (uint64_t i = 0; i < from->size / PAGES_UNIT; i++)
        if ((!units || units[i]) &&
            memcmp(to + i * PAGES_UNIT, from->base + i * PAGES_UNIT, PAGES_UNIT) != 0)
            memcpy(to + i * PAGES_UNIT, from->base + i * PAGES_UNIT, PAGES_UNIT);
    engine_release(from->engine, units, from->size / PAGES_UNIT);
}

static bool grow_copy(struct pages *p, uint64_t size) {
    struct pages next = {.engine = p->engine, .fd = -1};
    if (!map_fresh(&next, size))
        return false;
    if (p->base)
        copy_nonzero(next.base, p);
    unmap(p);
    *p = next;
    return true;
}

#ifdef __linux__
/*
 * Grows the file and its mapping. Maps at least half more than the file has, because moving a
 * mapping takes time for all its pages. The guest cannot use the part beyond the file: accesses are
 * checked by size.
 */
static bool grow_in_place(struct pages *p, uint64_t size) {
    if (p->fd >= 0 && ftruncate(p->fd, (off_t)size) < 0)
        return false;
    if (size > p->mapped) {
        uint64_t mapped = p->fd >= 0 ? (size + size / 2) & ~(uint64_t)(PAGE_SIZE - 1) : size;
        void *base = mremap(p->base, p->mapped, mapped, MREMAP_MAYMOVE);
        if (base == MAP_FAILED)
            return false;
        p->engine->work += p->size / PAGES_UNIT;
        p->base = base;
        p->mapped = mapped;
    }
    p->size = size;
    return true;
}
#endif

bool pages_grow(struct pages *p, uint64_t size, uint8_t **ret_base) {
#ifdef __linux__
    if (p->base && !p->image && (p->fd >= 0 || size < SHARE_FROM || size <= p->mapped)) {
        if (!grow_in_place(p, size))
            return false;
    } else if (!grow_copy(p, size)) {
        return false;
    }
#else
    if (!grow_copy(p, size))
        return false;
#endif
    *ret_base = p->base;
    return true;
}

#ifdef __linux__
/*
 * Moves the mapping to another address and returns it. Returns NULL before Linux 5.13; then the
 * next mapping at the same address unmaps the pages.
 */
static void *park(struct pages *p) {
    void *to = mremap(p->base, p->size, p->size, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
    return to == MAP_FAILED ? NULL : to;
}

/* Seals the memfd with its present content. The owner continues with a private mapping of it. */
static bool seal(struct pages *p) {
    if (p->mapped > p->size) {
        munmap(p->base + p->size, p->mapped - p->size);
        p->mapped = p->size;
    }
    struct image *i = engine_alloc(p->engine, sizeof *i);
    if (!i)
        return false;
    *i = (struct image){.fd = p->fd, .refs = 1, .size = p->size, .parked = park(p)};
    void *base = mmap(p->base, p->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, p->fd, 0);
    if (base == MAP_FAILED) {
        if (i->parked)
            munmap(i->parked, i->size);
        engine_release(p->engine, i, sizeof *i);
        return false;
    }
    fcntl(p->fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW);
    p->image = i;
    p->fd = -1;
    return true;
}
#else
static bool seal(struct pages *p) {
    (void)p;
    return false;
}
#endif

static bool fork_image(struct pages *p, struct pages *child, bool dirty) {
    child->base = map(p->size, MAP_PRIVATE, p->image->fd);
    if (!child->base)
        return false;
    child->size = child->mapped = p->size;
    child->image = p->image;
    p->image->refs++;
    if (dirty)
        copy_changed(child->base, p);
    return true;
}

struct pages *pages_fork(struct pages *p, bool dirty, uint8_t **ret_base, uint8_t **ret_own_base) {
    struct wasm_engine *e = p->engine;
    struct pages *child = engine_alloc(e, sizeof *child);
    if (!child)
        return NULL;
    *child = (struct pages){.engine = e, .fd = -1};
    bool ok = true;
    if (p->fd >= 0)
        dirty = false, ok = seal(p);
    if (ok && p->image)
        ok = fork_image(p, child, dirty);
    else if (ok && p->base && (ok = map_fresh(child, p->size)))
        copy_nonzero(child->base, p);
    if (!ok) {
        engine_release(e, child, sizeof *child);
        return NULL;
    }
    *ret_base = child->base;
    *ret_own_base = p->base;
    return child;
}
