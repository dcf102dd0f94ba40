/*
 * Pages for linear memories and stacks.
 *
 * Small ones are anonymous. From 1 MiB on, on Linux, a memory is a memfd: forking seals it, and
 * every store that shares it maps it privately, so only pages written later are copied. Where there
 * is no memfd a fork copies.
 */
#include "wasm/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SHARE_FROM = 1 << 20, COPY_UNIT = 4096 };

/* A sealed memfd and how many use it. Its pages stay mapped where nobody looks: to unmap them takes
   longer than all the rest of a fork, and can wait until the last one is gone. */
struct image {
    int fd;
    uint32_t refs;
    uint64_t size;
    void *parked; /* or NULL */
};

struct pages {
    struct wasm_engine *engine;
    uint8_t *base;
    uint64_t size;
    int fd;              /* written through, not yet sealed; -1 otherwise */
    struct image *image; /* mapped privately, or NULL */
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
    p->size = p->base ? size : 0;
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
        munmap(p->base, p->size);
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

static bool is_zero(const uint8_t *p) {
    return p[0] == 0 && memcmp(p, p + 1, COPY_UNIT - 1) == 0;
}

/* Into fresh pages: what is zero stays untouched. */
static void copy_nonzero(uint8_t *to, const uint8_t *from, uint64_t size) {
    for (uint64_t i = 0; i < size; i += COPY_UNIT)
        if (!is_zero(from + i))
            memcpy(to + i, from + i, COPY_UNIT);
}

/* Over an image: what is equal stays shared. */
static void copy_changed(uint8_t *to, const uint8_t *from, uint64_t size) {
    for (uint64_t i = 0; i < size; i += COPY_UNIT)
        if (memcmp(to + i, from + i, COPY_UNIT) != 0)
            memcpy(to + i, from + i, COPY_UNIT);
}

static bool grow_copy(struct pages *p, uint64_t size) {
    struct pages next = {.engine = p->engine, .fd = -1};
    if (!map_fresh(&next, size))
        return false;
    if (p->base)
        copy_nonzero(next.base, p->base, p->size);
    unmap(p);
    *p = next;
    return true;
}

bool pages_grow(struct pages *p, uint64_t size, uint8_t **ret_base) {
    bool in_place = p->base && !p->image && (p->fd >= 0 || size < SHARE_FROM);
#ifdef __linux__
    if (in_place) {
        if (p->fd >= 0 && ftruncate(p->fd, (off_t)size) < 0)
            return false;
        void *base = mremap(p->base, p->size, size, MREMAP_MAYMOVE);
        if (base == MAP_FAILED)
            return false;
        p->base = base;
        p->size = size;
    } else if (!grow_copy(p, size)) {
        return false;
    }
#else
    (void)in_place;
    if (!grow_copy(p, size))
        return false;
#endif
    *ret_base = p->base;
    return true;
}

#ifdef __linux__
/* Before Linux 5.13, NULL: then mapping over the pages unmaps them. */
static void *park(struct pages *p) {
    void *to = mremap(p->base, p->size, p->size, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
    return to == MAP_FAILED ? NULL : to;
}

/* What is in the file now stays; the owner goes on with a private view of it, at the same place. */
static bool seal(struct pages *p) {
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
    child->size = p->size;
    child->image = p->image;
    p->image->refs++;
    if (dirty)
        copy_changed(child->base, p->base, p->size);
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
        copy_nonzero(child->base, p->base, p->size);
    if (!ok) {
        engine_release(e, child, sizeof *child);
        return NULL;
    }
    *ret_base = child->base;
    *ret_own_base = p->base;
    return child;
}
