/* The table of descriptors: numbers, rights, standard streams and preopens. */
#include <string.h>

#include "base/defer.h"
#include "cell/wasi/wasi_inner.h"

struct wasi_fd *wasi_fd_at(const struct wasi *w, uint32_t fd) {
    return fd < w->n_fds && w->fds[fd].kind != KIND_FREE ? &w->fds[fd] : NULL;
}

int wasi_fd_with(const struct wasi *w, uint32_t fd, uint64_t rights, struct wasi_fd **ret) {
    struct wasi_fd *f = wasi_fd_at(w, fd);
    if (!f)
        return WASI_BADF;
    if (f->kind == KIND_STALE)
        return WASI_STALE;
    if ((f->base & rights) != rights)
        return WASI_NOTCAPABLE;
    *ret = f;
    return WASI_OK;
}

void wasi_fd_drop(struct wasi_fd *f) {
    if (f->host >= 0 && !f->is_lent)
        close(f->host);
    free(f->path);
    *f = (struct wasi_fd){.host = -1};
}

static bool wasi_fds_grow(struct wasi *w, uint32_t count) {
    if (count <= w->n_fds)
        return true;
    if (count > WASI_FDS_MAX)
        return false;
    struct wasi_fd *fds = realloc(w->fds, count * sizeof(*fds));
    if (!fds)
        return false;
    w->fds = fds;
    while (w->n_fds < count)
        w->fds[w->n_fds++] = (struct wasi_fd){.host = -1};
    return true;
}

bool wasi_fd_put(struct wasi *w, uint32_t fd, const struct wasi_fd *f) {
    if (fd >= WASI_FDS_MAX || !wasi_fds_grow(w, fd + 1))
        return false;
    w->fds[fd] = *f;
    return true;
}

int wasi_fd_add(struct wasi *w, const struct wasi_fd *f, uint32_t *ret) {
    uint32_t fd = 0;
    while (fd < w->n_fds && w->fds[fd].kind != KIND_FREE)
        fd++;
    if (!wasi_fd_put(w, fd, f)) {
        wasi_fd_drop(&(struct wasi_fd){.host = f->host, .is_lent = f->is_lent, .path = f->path});
        return WASI_MFILE;
    }
    *ret = fd;
    return WASI_OK;
}

static bool wasi_add_stream(struct wasi *w, enum wasi_kind kind, uint64_t rights) {
    struct wasi_fd f = {.kind = kind,
                        .host = -1,
                        .base = rights | RIGHT_FD_FILESTAT_GET | RIGHT_POLL_FD_READWRITE |
                                RIGHT_FD_FDSTAT_SET_FLAGS | RIGHT_FD_SYNC | RIGHT_FD_DATASYNC};
    uint32_t fd;
    return wasi_fd_add(w, &f, &fd) == WASI_OK;
}

static bool wasi_add_preopen(struct wasi *w, int i) {
    const struct wasi_preopen *p = &w->config.preopens[i];
    struct wasi_fd f = {.kind = KIND_DIR,
                        .host = p->fd,
                        .is_lent = true,
                        .is_preopen = true,
                        .is_read_only = p->is_read_only,
                        .root = i,
                        .path = strdup(""),
                        .base = WASI_DIR_RIGHTS,
                        .inheriting = WASI_DIR_RIGHTS | WASI_FILE_RIGHTS};
    uint32_t fd;
    return f.path && wasi_fd_add(w, &f, &fd) == WASI_OK;
}

static bool wasi_add_listener(struct wasi *w, int i) {
    const uint64_t stream = RIGHT_FD_READ | RIGHT_FD_WRITE | RIGHT_FD_FILESTAT_GET |
                            RIGHT_FD_FDSTAT_SET_FLAGS | RIGHT_POLL_FD_READWRITE |
                            RIGHT_SOCK_SHUTDOWN;
    struct wasi_fd f = {.kind = KIND_LISTENER,
                        .host = w->config.sockets[i],
                        .is_lent = true,
                        .root = i,
                        .base = RIGHT_SOCK_ACCEPT | RIGHT_POLL_FD_READWRITE |
                                RIGHT_FD_FILESTAT_GET | RIGHT_FD_FDSTAT_SET_FLAGS,
                        .inheriting = stream};
    uint32_t fd;
    return wasi_fd_add(w, &f, &fd) == WASI_OK;
}

bool wasi_fds_open(struct wasi *w) {
    bool ok = wasi_add_stream(w, KIND_STDIN, RIGHT_FD_READ) &&
              wasi_add_stream(w, KIND_STDOUT, RIGHT_FD_WRITE) &&
              wasi_add_stream(w, KIND_STDERR, RIGHT_FD_WRITE);
    for (size_t i = 0; ok && i < w->config.n_preopens; i++)
        ok = wasi_add_preopen(w, (int)i);
    for (size_t i = 0; ok && i < w->config.n_sockets; i++)
        ok = wasi_add_listener(w, (int)i);
    return ok;
}

struct wasi *wasi_new(const struct wasi_config *config) {
    struct wasi *w = calloc(1, sizeof(*w));
    if (!w)
        return NULL;
    w->config = *config;
    if (!wasi_fds_open(w)) {
        wasi_free(w);
        return NULL;
    }
    return w;
}

void wasi_free(struct wasi *w) {
    if (!w)
        return;
    for (uint32_t i = 0; i < w->n_fds; i++)
        wasi_fd_drop(&w->fds[i]);
    for (size_t i = 0; i < w->n_texts; i++) {
        for (const char **text = w->texts[i]; *text; text++)
            free((char *)*text);
        free(w->texts[i]);
    }
    free(w->fds);
    free(w);
}

int wasi_fd_prestat_get(const struct wasi_at *a) {
    struct wasi_fd *f = wasi_fd_at(a->w, wasi_u32(a, 0));
    uint8_t out[8] = {0}; /* tag 0: a directory */
    if (!f || !f->is_preopen)
        return WASI_BADF;
    wasi_set_number(out + 4, strlen(a->w->config.preopens[f->root].name), 4);
    return wasi_put(a, wasi_u32(a, 1), out, sizeof(out));
}

int wasi_fd_prestat_dir_name(const struct wasi_at *a) {
    struct wasi_fd *f = wasi_fd_at(a->w, wasi_u32(a, 0));
    if (!f || !f->is_preopen)
        return WASI_BADF;
    const char *name = a->w->config.preopens[f->root].name;
    if (wasi_u32(a, 2) < strlen(name))
        return WASI_NAMETOOLONG;
    return wasi_put(a, wasi_u32(a, 1), name, strlen(name));
}

int wasi_fd_renumber(const struct wasi_at *a) {
    struct wasi_fd *from = wasi_fd_at(a->w, wasi_u32(a, 0)), *to = wasi_fd_at(a->w, wasi_u32(a, 1));
    if (!from || !to)
        return WASI_BADF;
    if (from == to)
        return WASI_OK;
    wasi_fd_drop(to);
    *to = *from;
    *from = (struct wasi_fd){.host = -1};
    return WASI_OK;
}

int wasi_fd_close(const struct wasi_at *a) {
    struct wasi_fd *f = wasi_fd_at(a->w, wasi_u32(a, 0));
    if (!f)
        return WASI_BADF;
    wasi_fd_drop(f);
    return WASI_OK;
}
