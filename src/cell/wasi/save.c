/*
 * The saved state of WASI: numbers are little-endian, texts have their length in front.
 *
 * Arguments and environment, clocks and random bytes, the names of the preopens, then descriptors:
 * each with its rights, and a file with preopen, path and offset.
 */
#include <string.h>

#include "base/defer.h"
#include "cell/wasi/wasi_inner.h"

enum { SAVE_VERSION = 1, SAVED_TEXTS_MAX = 65536 };

/* --- writing --- */

static bool save_number(struct buf *b, uint64_t value, unsigned bytes) {
    uint8_t out[8];
    wasi_set_number(out, value, bytes);
    return buf_add(b, out, bytes);
}

static bool save_text(struct buf *b, const char *text) {
    size_t len = strlen(text);
    return len <= UINT32_MAX && save_number(b, len, 4) && buf_add(b, text, len);
}

static bool save_texts(struct buf *b, const char *const *texts, size_t count) {
    bool ok = save_number(b, count, 4);
    for (size_t i = 0; ok && i < count; i++)
        ok = save_text(b, texts[i]);
    return ok;
}

static bool save_fd(struct buf *b, uint32_t number, const struct wasi_fd *f) {
    return save_number(b, number, 4) && save_number(b, f->kind, 1) &&
           save_number(b, f->is_preopen, 1) && save_number(b, (uint64_t)f->root, 1) &&
           save_number(b, f->flags, 2) && save_number(b, f->base, 8) &&
           save_number(b, f->inheriting, 8) && save_number(b, f->offset, 8) &&
           save_number(b, f->path != NULL, 1) && save_text(b, f->path ? f->path : "");
}

bool wasi_save(const struct wasi *w, struct buf *ret) {
    uint32_t open = 0;
    bool ok = save_number(ret, SAVE_VERSION, 4) &&
              save_texts(ret, w->config.args, w->config.n_args) &&
              save_texts(ret, w->config.env, w->config.n_env) && save_number(ret, w->slept_ns, 8) &&
              save_number(ret, w->config.seed, 8) && save_number(ret, w->random_next, 8) &&
              save_number(ret, w->monotonic_ns, 8) && save_number(ret, w->config.n_preopens, 4);
    for (size_t i = 0; ok && i < w->config.n_preopens; i++)
        ok = save_text(ret, w->config.preopens[i].name);
    for (uint32_t i = 0; i < w->n_fds; i++)
        open += w->fds[i].kind != KIND_FREE;
    ok = ok && save_number(ret, open, 4);
    for (uint32_t i = 0; ok && i < w->n_fds; i++)
        ok = w->fds[i].kind == KIND_FREE || save_fd(ret, i, &w->fds[i]);
    return ok;
}

/* --- reading --- */

struct wasi_saved {
    const uint8_t *p;
    size_t left;
    bool is_bad;
};

static uint64_t saved_number(struct wasi_saved *s, unsigned bytes) {
    if (s->left < bytes)
        s->is_bad = true;
    if (s->is_bad)
        return 0;
    uint64_t value = wasi_number(s->p, bytes);
    s->p += bytes;
    s->left -= bytes;
    return value;
}

/* Returns a copy, which the caller frees; NULL if the state is bad. */
static char *saved_text(struct wasi_saved *s) {
    uint64_t len = saved_number(s, 4);
    s->is_bad = s->is_bad || len > s->left || memchr(s->p, 0, len);
    char *text = s->is_bad ? NULL : strndup((const char *)s->p, len);
    s->is_bad = s->is_bad || !text;
    if (text) {
        s->p += len;
        s->left -= len;
    }
    return text;
}

static const char **saved_texts(struct wasi *w, struct wasi_saved *s, size_t *ret_count) {
    uint64_t count = saved_number(s, 4);
    s->is_bad = s->is_bad || count > SAVED_TEXTS_MAX || count > s->left;
    const char **texts = s->is_bad ? NULL : calloc(count + 1, sizeof(*texts));
    s->is_bad = s->is_bad || !texts;
    for (size_t i = 0; !s->is_bad && i < count; i++)
        texts[i] = saved_text(s);
    if (texts)
        w->texts[w->n_texts++] = texts;
    *ret_count = s->is_bad ? 0 : (size_t)count;
    return texts;
}

/* Finds which granted directory each saved preopen is now. */
static int saved_preopens(struct wasi *w, struct wasi_saved *s, int map[WASI_PREOPENS_MAX],
                          struct err *err) {
    uint64_t count = saved_number(s, 4);
    s->is_bad = s->is_bad || count > WASI_PREOPENS_MAX;
    for (uint64_t i = 0; i < WASI_PREOPENS_MAX; i++)
        map[i] = -1;
    for (uint64_t i = 0; !s->is_bad && i < count; i++) {
        char *name DEFER_FREE = saved_text(s);
        for (size_t k = 0; name && k < w->config.n_preopens; k++)
            if (strcmp(w->config.preopens[k].name, name) == 0)
                map[i] = (int)k;
        if (!name || map[i] >= 0)
            continue;
        err_set(err, ERR_DENIED, "the program uses directory '%.100s', which was not granted",
                name);
        return err_remedy(err, "grant it with --dir HOST:%.100s", name);
    }
    return 0;
}

/* Opens a file again. If that fails, the descriptor is stale and every use of it says so. */
static void saved_reopen(const struct wasi *w, struct wasi_fd *f) {
    enum wasi_kind kind = f->kind;
    const struct wasi_preopen *p = &w->config.preopens[f->root];
    f->is_read_only = p->is_read_only;
    if (f->is_preopen && kind == KIND_DIR) {
        f->host = p->fd;
        f->is_lent = true;
        return;
    }
    f->is_preopen = false;
    if (f->path)
        f->host = wasi_open_beneath(p->fd, f->path, f, true, 0);
    if (f->host < 0 || wasi_kind_of(f->host) != kind) {
        close_fd(&f->host);
        f->kind = KIND_STALE;
    }
}

static void saved_reconnect(const struct wasi *w, struct wasi_fd *f) {
    bool granted = f->kind == KIND_LISTENER && (size_t)f->root < w->config.n_sockets;
    f->host = granted ? w->config.sockets[f->root] : -1;
    f->is_lent = true;
    f->is_preopen = false;
    f->kind = granted ? KIND_LISTENER : KIND_STALE;
}

static void saved_fd(struct wasi *w, struct wasi_saved *s, const int map[WASI_PREOPENS_MAX]) {
    uint32_t number = (uint32_t)saved_number(s, 4);
    struct wasi_fd f = {.kind = (enum wasi_kind)saved_number(s, 1), .host = -1};
    f.is_preopen = saved_number(s, 1);
    f.root = (int)saved_number(s, 1);
    f.flags = (uint16_t)saved_number(s, 2) & FDFLAG_ALL;
    f.base = saved_number(s, 8);
    f.inheriting = saved_number(s, 8);
    f.offset = saved_number(s, 8);
    bool has_path = saved_number(s, 1);
    f.path = saved_text(s);
    bool is_file = f.kind == KIND_FILE || f.kind == KIND_DIR;
    s->is_bad = s->is_bad || f.kind == KIND_FREE || f.kind > KIND_STALE || number >= WASI_FDS_MAX ||
                wasi_fd_at(w, number) || f.offset > INT64_MAX || strlen(f.path) >= WASI_PATH_MAX ||
                (is_file && (f.root >= WASI_PREOPENS_MAX || map[f.root] < 0));
    if (!has_path || !is_file) {
        free(f.path);
        f.path = NULL;
    }
    if (!s->is_bad && is_file) {
        f.root = map[f.root];
        saved_reopen(w, &f);
    } else if (!s->is_bad && (f.kind == KIND_LISTENER || f.kind == KIND_STREAM)) {
        saved_reconnect(w, &f);
    }
    f.is_preopen = f.is_preopen && is_file;
    if (s->is_bad || !wasi_fd_put(w, number, &f)) {
        s->is_bad = true;
        wasi_fd_drop(&f);
    }
}

static int saved_read(struct wasi *w, struct wasi_saved *s, struct err *err) {
    int map[WASI_PREOPENS_MAX];
    if (saved_number(s, 4) != SAVE_VERSION)
        return err_set(err, ERR_UNSUPPORTED, "the saved WASI state has another version");
    w->config.args = saved_texts(w, s, &w->config.n_args);
    w->config.env = saved_texts(w, s, &w->config.n_env);
    w->slept_ns = saved_number(s, 8);
    w->config.seed = saved_number(s, 8);
    w->random_next = saved_number(s, 8);
    w->monotonic_ns = saved_number(s, 8);
    w->is_resumed = true;
    if (saved_preopens(w, s, map, err) < 0)
        return -1;
    uint64_t count = saved_number(s, 4);
    for (uint64_t i = 0; i < count && !s->is_bad; i++)
        saved_fd(w, s, map);
    return 0;
}

int wasi_load(struct wasi *w, const void *bytes, size_t len, struct err *err) {
    struct wasi_saved s = {.p = bytes, .left = len};
    for (uint32_t i = 0; i < w->n_fds; i++)
        wasi_fd_drop(&w->fds[i]);
    if (saved_read(w, &s, err) < 0)
        return -1;
    if (s.is_bad || s.left)
        return err_set(err, ERR_INVALID, "the saved WASI state is damaged");
    return 0;
}
