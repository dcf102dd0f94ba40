/* GET /files: a file as bytes, at the pace of the client, with gzip if it asks for nothing else. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "api/e2b/transfers.h"
#include "base/alloc.h"
#include "io/gzip.h"
#include "io/http_range.h"
#include "io/http_uri.h"
#include "service/files.h"

struct download {
    struct envd_call *call;
    struct msg_read_data seen; /* the first reply, without its bytes */
    uint64_t at, size, whole;  /* size: the end of the range; whole: of the file */
    struct gzip *packer;       /* NULL: the bytes as they are */
    bool ranged, has_seen, begun, asked, full, gone, failed;
    char path[ENVD_PATH_SIZE];
};

static void download_over(struct download *d) {
    struct envd_call *c = d->call;
    bool whole = d->begun && !d->failed && !d->gone;
    gzip_free(d->packer);
    free(d);
    if (whole) {
        envd_close(c);
    } else {
        envd_drop(c);
    }
}

static void data_came(void *arg, const struct frame *frame, const struct err *err);

static void download_go_on(struct download *d) {
    if (d->asked)
        return;
    if (d->gone || d->failed || d->at == d->size) {
        download_over(d);
        return;
    }
    if (d->full)
        return;
    uint64_t left = d->size - d->at;
    const struct msg_read m = {.uid = MSG_ID_NONE,
                               .gid = MSG_ID_NONE,
                               .offset = d->at,
                               .bytes = left < MSG_CHUNK_MAX ? (uint32_t)left : MSG_CHUNK_MAX,
                               .path = {d->path, (uint32_t)strlen(d->path)}};
    d->asked = true;
    envd_file(d->call, MSG_READ, &m, NULL, data_came, d);
}

static void download_drained(struct envd_call *c) {
    struct download *d = c->state;
    d->full = false;
    download_go_on(d);
}

static void download_gone(struct envd_call *c) {
    struct download *d = c->state;
    d->gone = true;
    download_go_on(d);
}

/* Packs and sends a piece, and with the last one the end of the packed stream. */
static void send_packed(struct download *d, const struct msg_bytes *data, bool last) {
    static char out[MSG_CHUNK_MAX];
    const char *at = (const char *)data->p;
    size_t left = data->n, used, n;
    int r;
    do {
        r = gzip_go(d->packer, at, left, last, out, sizeof(out), &used, &n, NULL);
        at += used;
        left -= used;
        if (n && !http_write(d->call->http, out, n))
            d->full = true;
    } while (r == 0 && (left || n == sizeof(out) || last));
}

static void begin_answer(struct download *d) {
    struct envd_call *c = d->call;
    char range[80];
    snprintf(range, sizeof(range), "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, d->at, d->size - 1,
             d->whole);
    d->begun = true;
    c->state = d;
    c->on_gone = download_gone;
    c->on_drain = download_drained;
    http_begin(c->http, d->ranged ? 206 : 200,
               HTTP_FIELDS({"Content-Type", "application/octet-stream"}, {"Accept-Ranges", "bytes"},
                           {"Cache-Control", "no-store"}, {"X-Content-Type-Options", "nosniff"},
                           {d->packer   ? "Content-Encoding"
                            : d->ranged ? "Content-Range"
                                        : NULL,
                            d->packer ? "gzip" : range}),
               d->packer ? -1 : (int64_t)(d->size - d->at));
    if (d->packer && !d->size)
        send_packed(d, &(struct msg_bytes){(const uint8_t *)"", 0}, true);
}

/* Applies the range that the client wants. False: it is empty. A packed answer is whole. */
static bool download_range(struct download *d, uint64_t size) {
    struct http_text field = http_field_only(d->call->http->head, "Range");
    const struct http_range r = http_range_parse(field);
    d->whole = d->size = size;
    d->ranged = field.s && r.given && !d->packer;
    return !d->ranged || http_range_of(&r, size, &d->at, &d->size);
}

static void refuse_range(struct download *d) {
    char range[32];
    snprintf(range, sizeof(range), "bytes */%" PRIu64, d->whole);
    envd_reply(d->call, 416, HTTP_FIELDS({"Content-Range", range}), NULL, 0);
    gzip_free(d->packer);
    free(d);
}

/* A file that was replaced or cut meanwhile ends the answer early, so that the client notices. */
static void data_came(void *arg, const struct frame *frame, const struct err *err) {
    struct download *d = arg;
    struct msg_read_data m;
    d->asked = false;
    if (err || msg_get_read_data(frame, &m) < 0 || !m.data.n)
        d->failed = true;
    else if (d->has_seen && file_replaced(&d->seen, &m))
        d->failed = true;
    if (!d->failed && !d->gone) {
        if (!d->has_seen)
            d->seen = m;
        d->has_seen = true;
        uint64_t left = d->size - d->at;
        struct msg_bytes data = {m.data.p, m.data.n < left ? m.data.n : (uint32_t)left};
        d->at += data.n;
        if (d->packer)
            send_packed(d, &data, d->at == d->size);
        else
            d->full = !http_write(d->call->http, data.p, data.n);
    }
    download_go_on(d);
}

static void file_seen(void *arg, const struct frame *frame, const struct err *err) {
    struct download *d = arg;
    struct envd_call *c = d->call;
    struct msg_entry e;
    struct err bad;
    if (!err && msg_get_entry(frame, &e) < 0) {
        err_set(&bad, ERR_INTERNAL, "the guest process of the machine sent a malformed reply");
        err = &bad;
    }
    if (!err && S_ISREG(e.mode)) {
        if (!download_range(d, e.size)) {
            refuse_range(d);
            return;
        }
        begin_answer(d);
        download_go_on(d);
        return;
    }
    if (err && err->code == ERR_NOT_FOUND)
        envd_refuse(c, 404, "path '%.200s' does not exist", d->path);
    else if (err)
        envd_refuse(c, connect_code_status(connect_code_of(err->code)), "%s", err->text);
    else
        envd_refuse(c, 400, "path '%.200s' is %s", d->path,
                    S_ISDIR(e.mode) ? "a directory" : "not a regular file");
    gzip_free(d->packer);
    free(d);
}

void envd_download(struct envd_call *c) {
    struct download *d = xnew(struct download);
    char path[ENVD_PATH_SIZE] = "";
    struct err err;
    size_t n;
    d->call = c;
    if (http_query_get(c->http->head->query, "path", path, sizeof(path), &n) < 0)
        err_set(&err, ERR_INVALID, "the parameter 'path' is malformed");
    else if (envd_path(path, c->user.home, d->path, &err) == 0) {
        const struct msg_path m = {
            .uid = MSG_ID_NONE, .gid = MSG_ID_NONE, .path = {d->path, (uint32_t)strlen(d->path)}};
        if (http_text_is(http_field_only(c->http->head, "Accept-Encoding"), "gzip"))
            d->packer = gzip_new();
        envd_file(c, MSG_STAT, &m, d->path, file_seen, d);
        return;
    }
    free(d);
    envd_refuse(c, 400, "%s", err.text);
}
