/* fd_readdir. A cookie is the position of the kernel, so entries can be read from any of them. */
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/defer.h"
#include "cell/wasi/wasi_inner.h"

/* An entry as the kernel writes it. */
struct wasi_dirent64 {
    uint64_t ino, next;
    uint16_t size;
    uint8_t type;
    char name[];
} __attribute__((packed));

enum { ENTRY_HEAD = 24 };

static enum wasi_filetype wasi_entry_type(uint8_t type) {
    static const uint8_t types[] = {
        [DT_REG] = FILETYPE_REGULAR,  [DT_DIR] = FILETYPE_DIRECTORY,
        [DT_LNK] = FILETYPE_SYMLINK,  [DT_CHR] = FILETYPE_CHARACTER,
        [DT_BLK] = FILETYPE_BLOCK,    [DT_SOCK] = FILETYPE_SOCKET_STREAM,
        [DT_FIFO] = FILETYPE_UNKNOWN,
    };
    return type < sizeof(types) ? types[type] : FILETYPE_UNKNOWN;
}

/* The room that the program gave, and how much of it is used. The last entry may be cut. */
struct wasi_listing {
    uint8_t *to;
    uint32_t len, used;
};

static void wasi_list_bytes(struct wasi_listing *l, const void *bytes, size_t len) {
    size_t n = len < l->len - l->used ? len : l->len - l->used;
    memcpy(l->to + l->used, bytes, n);
    l->used += (uint32_t)n;
}

static void wasi_list_entry(struct wasi_listing *l, const struct wasi_fd *f,
                            const struct wasi_dirent64 *e) {
    uint8_t head[ENTRY_HEAD] = {0};
    uint64_t ino = e->ino;
    struct stat st;
    /* The parent of a preopen is outside: its number is not shown. */
    if (strcmp(e->name, "..") == 0 && f->is_preopen && fstat(f->host, &st) == 0)
        ino = st.st_ino;
    wasi_set_number(head, e->next, 8);
    wasi_set_number(head + 8, ino, 8);
    wasi_set_number(head + 16, strlen(e->name), 4);
    head[20] = (uint8_t)wasi_entry_type(e->type);
    wasi_list_bytes(l, head, sizeof(head));
    wasi_list_bytes(l, e->name, strlen(e->name));
}

static int wasi_list_all(struct wasi_listing *l, const struct wasi_fd *f) {
    char entries[32768] __attribute__((aligned(8)));
    for (;;) {
        long n = syscall(SYS_getdents64, f->host, entries, sizeof(entries));
        if (n <= 0)
            return n < 0 ? wasi_error(-errno) : WASI_OK;
        for (long at = 0; at < n;) {
            const struct wasi_dirent64 *e = (const void *)(entries + at);
            wasi_list_entry(l, f, e);
            if (l->used == l->len)
                return WASI_OK;
            at += e->size;
        }
    }
}

int wasi_fd_readdir(const struct wasi_at *a) {
    struct wasi_fd *f = wasi_fd_at(a->w, wasi_u32(a, 0));
    uint64_t cookie = wasi_u64(a, 3);
    uint32_t at = wasi_u32(a, 1), len = wasi_u32(a, 2);
    if (f && f->kind != KIND_DIR && f->kind != KIND_STALE)
        return WASI_NOTDIR;
    int error = wasi_fd_with(a->w, wasi_u32(a, 0), RIGHT_FD_READDIR, &f);
    if (error)
        return error;
    struct wasi_listing l = {.to = wasi_bytes(a->c, at, len),
                             .len = len < WASI_TRANSFER_MAX ? len : WASI_TRANSFER_MAX};
    if (!l.to)
        return WASI_FAULT;
    if (cookie > INT64_MAX || lseek(f->host, (off_t)cookie, SEEK_SET) < 0)
        return WASI_INVAL;
    if (l.len)
        error = wasi_list_all(&l, f);
    if (error)
        return error;
    wasi_note(a, at, l.used);
    return wasi_put_number(a, wasi_u32(a, 4), l.used, 4);
}
