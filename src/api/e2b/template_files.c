/*
 * Files that a client sends for COPY steps, before it starts the build. A worker thread writes
 * them, because a full or slow disk makes writes wait.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "api/e2b/template_inner.h"
#include "base/alloc.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/hex.h"

enum { WAITING_MAX = 1 << 20, WAITING_FULL = 256 << 10 };

void template_files_free(struct template_build *b) {
    while (b->files) {
        struct template_file *f = b->files;
        b->files = f->next;
        close_fd(&f->fd);
        free(f);
    }
}

struct template_file *template_file_find(const struct template_build *b, const char *hash) {
    struct template_file *f = b->files;
    while (f && strcmp(f->hash, hash) != 0)
        f = f->next;
    return f;
}

/* ---- announcing ---- */

static struct template_file *file_add(struct template_build *b, const char *hash, struct err *err) {
    struct template_file *f = template_file_find(b, hash);
    uint8_t random[16];
    size_t count = 0;
    for (const struct template_file *at = b->files; at; at = at->next)
        count++;
    if (f)
        return f;
    if (count == FILES_MAX) {
        err_set(err, ERR_LIMIT, "the build has more than %d uploads", FILES_MAX);
        return NULL;
    }
    if (getrandom(random, sizeof(random), 0) != sizeof(random))
        abort();
    f = xnew(struct template_file);
    f->fd = -1;
    f->next = b->files;
    snprintf(f->hash, sizeof(f->hash), "%s", hash);
    hex_put(random, sizeof(random), f->upload);
    b->files = f;
    template_draft_keep(b);
    return f;
}

/* The newest build of the template that waits for files. */
static struct template_build *build_waiting(struct e2b_call *c, struct err *err) {
    struct template_ref ref;
    struct template_build *b = c->templates->builds;
    if (template_ref_read(c->param, &ref, err) < 0)
        return NULL;
    while (b && (b->state != TEMPLATE_WAITING || strcmp(b->who.owner, c->who.owner) != 0 ||
                 strcmp(b->name, ref.name) != 0))
        b = b->next;
    if (!b)
        err_set(err, ERR_NOT_FOUND, "no build of template '%.60s' waits for files", c->param);
    return b;
}

/* The client reaches the daemon at the address that it used for this request. */
void e2b_build_files(struct e2b_call *c) {
    struct buf text DEFER(buf_done) = BUF(4096), url DEFER(buf_done) = BUF(2048);
    struct jot j = JOT(&text);
    struct http_text host = c->http->head->authority;
    struct err err;
    struct template_build *b = build_waiting(c, &err);
    struct template_file *f = NULL;
    if (b && !hex_is(c->param2, TEMPLATE_HASH_SIZE - 1))
        err_set(&err, ERR_INVALID, "'%.70s' is not a hash of files", c->param2);
    else if (b)
        f = file_add(b, c->param2, &err);
    if (f && !buf_addf(&url, "%s://%.*s" E2B_UPLOADS "%s", c->http->peer->secure ? "https" : "http",
                       (int)host.n, host.s, f->upload)) {
        err_set(&err, ERR_INVALID, "the address of the request is too long");
        f = NULL;
    }
    if (!f) {
        e2b_error(c, &err);
        return;
    }
    jot_object(&j, NULL);
    jot_bool(&j, "present", f->fd >= 0);
    jot_string(&j, "url", url.data);
    jot_end(&j, '}');
    e2b_answer(c, 201, &text, NULL);
}

/* ---- an upload ---- */

struct put_write {
    struct put *put; /* NULL: the client left */
    int fd;
    struct buf bytes;
    int result;
};

struct put {
    struct http_exchange *http;
    struct template_build *build;
    char hash[TEMPLATE_HASH_SIZE];
    int fd;
    uint64_t size, counted; /* counted: what `arriving` of the build has of it */
    struct buf waiting;     /* bytes after those of `write` */
    struct put_write *write;
    bool ended, paused;
};

static void put_free(struct put *p) {
    if (p->write)
        p->write->put = NULL;
    close_fd(&p->fd);
    buf_done(&p->waiting);
    p->build->arriving -= p->counted;
    template_build_unref(p->build);
    free(p);
}

static void put_refuse(struct http_exchange *x, int status, const struct err *err) {
    struct buf text DEFER(buf_done) = BUF(4096);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_u64(&j, "code", (uint64_t)status);
    jot_string(&j, "message", err->text);
    jot_end(&j, '}');
    http_reply(x, status, HTTP_FIELDS({"Content-Type", "application/json"}), text.data, text.len);
}

static void put_fail(struct put *p, const struct err *err) {
    struct http_exchange *x = p->http;
    put_free(p);
    x->on_gone = NULL;
    put_refuse(x, (int)e2b_status_of(err), err);
}

/* Counts bytes that come. The limit is for the files of all builds of the owner. */
static int put_count(struct put *p, uint64_t n, struct err *err) {
    const struct template_build *of = p->build;
    uint64_t sum = 0;
    p->counted += n;
    p->build->arriving += n;
    if (!of->of)
        return err_set(err, ERR_GONE, "the build does not wait for files any more");
    for (const struct template_build *b = of->of->builds; b; b = b->next) {
        if (strcmp(b->who.owner, of->who.owner) != 0)
            continue;
        sum += b->arriving;
        for (const struct template_file *f = b->files; f; f = f->next)
            sum += f->size;
    }
    if (n > BUILD_FILES_MAX || sum > BUILD_FILES_MAX)
        return err_set(err, ERR_LIMIT,
                       "the files of all builds of the owner are larger than %llu GiB",
                       BUILD_FILES_MAX >> 30);
    return 0;
}

/* All bytes are on the disk: they are the files of that hash from now on. */
static void put_end(struct put *p) {
    struct http_exchange *x = p->http;
    struct template_file *f = template_file_find(p->build, p->hash);
    struct err err;
    if (!f || !p->build->of || p->build->state != TEMPLATE_WAITING) {
        err_set(&err, ERR_GONE, "the build does not wait for files any more");
        put_fail(p, &err);
        return;
    }
    close_fd(&f->fd);
    f->fd = TAKE_FD(p->fd);
    f->size = p->size;
    service_draft_add(p->build->of->service, p->build->id, f->hash, f->fd);
    template_draft_keep(p->build);
    put_free(p);
    x->on_gone = NULL;
    http_reply(x, 200, NULL, NULL, 0);
}

static void put_go_on(struct put *p);

/* Runs on a worker thread. */
static void put_write_run(void *arg) {
    struct put_write *w = arg;
    w->result = write_all(w->fd, w->bytes.data, w->bytes.len);
}

static void put_write_done(void *arg) {
    struct put_write *w DEFER_FREE = arg;
    struct put *p = w->put;
    struct err err;
    close_fd(&w->fd);
    buf_done(&w->bytes);
    if (!p)
        return;
    p->write = NULL;
    if (w->result < 0) {
        err_num(&err, w->result, "cannot store the files of a build");
        put_fail(p, &err);
        return;
    }
    put_go_on(p);
}

static void put_write_begin(struct put *p) {
    struct put_write *w = xnew(struct put_write);
    *w = (struct put_write){.put = p, .fd = fcntl(p->fd, F_DUPFD_CLOEXEC, 3), .bytes = p->waiting};
    p->waiting = BUF(WAITING_MAX);
    p->write = w;
    loop_work(http_loop(p->http), put_write_run, put_write_done, w);
}

static void put_go_on(struct put *p) {
    bool full;
    if (!p->write && p->waiting.len)
        put_write_begin(p);
    if (p->ended && !p->write) {
        put_end(p);
        return;
    }
    full = p->waiting.len >= WAITING_FULL;
    if (p->ended || full == p->paused)
        return;
    p->paused = full;
    (full ? http_pause : http_resume)(p->http);
}

static void put_piece(struct http_exchange *x, const char *bytes, size_t n) {
    struct put *p = x->user;
    struct err err;
    p->ended = n == 0;
    p->size += n;
    if (put_count(p, x->head->framing == HTTP_SIZED ? 0 : n, &err) < 0) {
        put_fail(p, &err);
    } else if (!buf_add(&p->waiting, bytes, n)) {
        err_set(&err, ERR_LIMIT, "the files arrive faster than they can be stored");
        put_fail(p, &err);
    } else {
        put_go_on(p);
    }
}

static void put_gone(struct http_exchange *x) {
    put_free(x->user);
    http_drop(x);
}

static struct template_file *upload_find(const struct e2b_templates *t, struct http_text id,
                                         struct template_build **ret) {
    for (struct template_build *b = t->builds; b; b = b->next)
        for (struct template_file *f = b->files; f; f = f->next)
            if (b->state == TEMPLATE_WAITING && http_text_is(id, f->upload)) {
                *ret = b;
                return f;
            }
    return NULL;
}

static void put_begin(struct http_exchange *x, struct template_build *b,
                      const struct template_file *f) {
    struct err err;
    int fd = service_build_spool(b->of->service, &b->who, &err);
    if (fd < 0) {
        put_refuse(x, (int)e2b_status_of(&err), &err);
        return;
    }
    struct put *p = xnew(struct put);
    *p = (struct put){
        .http = x, .build = template_build_ref(b), .fd = fd, .waiting = BUF(WAITING_MAX)};
    memcpy(p->hash, f->hash, sizeof(p->hash));
    x->user = p;
    x->on_gone = put_gone;
    if (x->head->framing == HTTP_SIZED && put_count(p, x->head->length, &err) < 0)
        put_fail(p, &err);
    else
        http_receive(x, BUILD_FILES_MAX, put_piece);
}

bool e2b_upload_take(struct e2b_templates *t, struct http_exchange *x) {
    static const size_t n = sizeof(E2B_UPLOADS) - 1;
    struct http_text path = x->head->path;
    struct template_build *b;
    struct err err;
    if (path.n < n || memcmp(path.s, E2B_UPLOADS, n) != 0 || !http_text_is(x->head->method, "PUT"))
        return false;
    struct template_file *f = upload_find(t, (struct http_text){path.s + n, path.n - n}, &b);
    if (f) {
        put_begin(x, b, f);
    } else {
        err_set(&err, ERR_NOT_FOUND, "no build waits for files at this address");
        put_refuse(x, 404, &err);
    }
    return true;
}
