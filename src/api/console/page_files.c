/*
 * The files of the page: read once, answered from memory by their exact names, so no request can
 * name another file. Names under /assets/ contain a hash of the content and are cached for ever.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/console/console.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/defer.h"

enum { PAGE_FILES_MAX = 64, PAGE_FILE_MAX = 4 << 20, PAGE_NAME_SIZE = 128, PAGE_FRAMES_SIZE = 320 };

struct page_file {
    char path[PAGE_NAME_SIZE]; /* as in a request: "/", "/assets/index-3f.js" */
    struct buf plain, gzip;    /* gzip is empty if the file was not compressed */
};

struct page_files {
    char dir[PLACE_SIZE + 16];
    struct page_file files[PAGE_FILES_MAX];
    size_t count;
};

/* %s: the origins of frames. */
static const char csp_form[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "font-src 'self'; connect-src 'self'; frame-src %s; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

static const struct {
    const char *end, *type;
} page_types[] = {
    {".html", "text/html; charset=utf-8"},
    {".js", "text/javascript; charset=utf-8"},
    {".css", "text/css; charset=utf-8"},
    {".svg", "image/svg+xml"},
    {".woff2", "font/woff2"},
    {".webmanifest", "application/manifest+json"},
};

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static bool page_read(int dir, const char *name, struct buf *ret) {
    struct stat st;
    int fd DEFER_CLOSE = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    *ret = BUF(PAGE_FILE_MAX);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size >= PAGE_FILE_MAX)
        return false;
    char piece[16384];
    ssize_t n;
    while ((n = read(fd, piece, sizeof(piece))) > 0)
        if (!buf_add(ret, piece, (size_t)n))
            break;
    if (n == 0)
        return true;
    buf_done(ret);
    return false;
}

static void page_add(struct page_files *p, int dir, const char *name, const char *path) {
    char packed[PAGE_NAME_SIZE + 8];
    struct page_file *f = &p->files[p->count];
    bool known = false;
    for (size_t i = 0; i < sizeof(page_types) / sizeof(*page_types); i++)
        known |= ends_with(name, page_types[i].end);
    if (!known || p->count == PAGE_FILES_MAX || !page_read(dir, name, &f->plain))
        return;
    snprintf(f->path, sizeof(f->path), "%s", path);
    snprintf(packed, sizeof(packed), "%s.gz", name);
    if (!page_read(dir, packed, &f->gzip))
        f->gzip = BUF(0);
    p->count++;
}

static void page_folder(struct page_files *p, const char *dir, const char *prefix) {
    DIR *d = opendir(dir);
    const struct dirent *e;
    while (d && (e = readdir(d))) {
        char path[PAGE_NAME_SIZE];
        int n = snprintf(path, sizeof(path), "%s%s", prefix, e->d_name);
        if (n > 0 && (size_t)n < sizeof(path))
            page_add(p, dirfd(d), e->d_name, strcmp(path, "/index.html") == 0 ? "/" : path);
    }
    if (d)
        closedir(d);
}

static void page_files_read(struct page_files *p) {
    char assets[sizeof(p->dir) + 16];
    snprintf(assets, sizeof(assets), "%s/assets", p->dir);
    page_folder(p, p->dir, "/");
    page_folder(p, assets, "/assets/");
}

struct page_files *page_files_new(const char *dir) {
    struct page_files *p = xnew(struct page_files);
    snprintf(p->dir, sizeof(p->dir), "%s", dir);
    page_files_read(p);
    return p;
}

void page_files_free(struct page_files *p) {
    if (!p)
        return;
    for (size_t i = 0; i < p->count; i++) {
        buf_done(&p->files[i].plain);
        buf_done(&p->files[i].gzip);
    }
    free(p);
}

static const char *page_type(const char *path) {
    if (strcmp(path, "/") == 0)
        return page_types[0].type;
    for (size_t i = 0; i < sizeof(page_types) / sizeof(*page_types); i++)
        if (ends_with(path, page_types[i].end))
            return page_types[i].type;
    return "application/octet-stream";
}

static void page_reply(struct http_exchange *x, int status, const char *type, const char *encoding,
                       bool for_ever, const char *frames, const void *body, size_t n) {
    char csp[sizeof(csp_form) + PAGE_FRAMES_SIZE];
    snprintf(csp, sizeof(csp), csp_form, frames && *frames ? frames : "'none'");
    const struct http_pair fields[] = {
        {"Content-Type", type},
        {"Content-Security-Policy", csp},
        {"X-Content-Type-Options", "nosniff"},
        {"Referrer-Policy", "no-referrer"},
        {"Cross-Origin-Opener-Policy", "same-origin"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
        {"Permissions-Policy", "camera=(), geolocation=(), microphone=()"},
        {"Cache-Control", for_ever ? "public, max-age=31536000, immutable" : "no-cache"},
        {"Vary", "Accept-Encoding"},
        {encoding ? "Content-Encoding" : NULL, encoding},
        {NULL, NULL}};
    http_reply(x, status, fields, body, n);
}

static void page_missing(struct http_exchange *x) {
    static const char text[] =
        "The console is not built into this daemon.\n\n"
        "In a source tree, run `make web` (it needs npm) and load this page again.\n"
        "The API is below /v1/; /v1/openapi.json describes it.\n";
    page_reply(x, 404, "text/plain; charset=utf-8", NULL, false, NULL, text, sizeof(text) - 1);
}

void page_files_serve(struct page_files *p, struct http_exchange *x, const char *frames) {
    static const char assets[] = "/assets/";
    if (p->count == 0)
        page_files_read(p); /* the page may have been built since */
    for (size_t i = 0; i < p->count; i++) {
        const struct page_file *f = &p->files[i];
        if (!http_text_is(x->head->path, f->path))
            continue;
        bool packed = f->gzip.len && http_list_has(x->head, "Accept-Encoding", "gzip");
        const struct buf *body = packed ? &f->gzip : &f->plain;
        page_reply(x, 200, page_type(f->path), packed ? "gzip" : NULL,
                   strncmp(f->path, assets, sizeof(assets) - 1) == 0, frames, body->data,
                   body->len);
        return;
    }
    page_missing(x);
}
