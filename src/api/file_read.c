/*
 * Reads a file, whole or by range. Up to READS_AHEAD requests to the guest are in flight; their
 * replies are sent in order.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/file_words.h"
#include "api/route.h"
#include "base/alloc.h"
#include "io/http_range.h"
#include "service/files.h"

/* How many read requests may be in flight. */
enum { READS_AHEAD = 4 };

struct download {
    struct call *call;
    struct msg_read next; /* the next request */
    struct http_range range;
    uint64_t first, end; /* requested range; the first reply cuts it to the file size */
    uint64_t left; /* bytes of Content-Length not sent yet: a guest may send more than announced */
    struct msg_read_data
        seen; /* first reply, without its bytes: detects a file that was replaced */
    unsigned flying;
    bool begun, full, failed;
    bool refused; /* the range is not satisfiable: answer 416 */
    bool asking;  /* ask_more() is running; a reply may call it again */
    bool head;    /* a request HEAD: the first reply tells the size */
    struct err refusal;
};

static void read_came(void *arg, const struct frame *frame, const struct err *err);

static void file_read_ask(struct download *d) {
    uint64_t left = d->end - d->next.offset;
    struct msg_read m = d->next;
    m.bytes = left < MSG_CHUNK_MAX ? (uint32_t)left : MSG_CHUNK_MAX;
    d->next.offset += m.bytes;
    d->flying++;
    service_file(d->call->service, &d->call->who, d->call->params[0], MSG_READ, &m,
                 d->begun || d->flying > 1 ? NULL : m.path.s, read_came, d);
}

/* Sends the next read requests. After the last reply it ends and frees the download. */
static void ask_more(struct download *d) {
    struct call *c = d->call;
    if (d->asking)
        return;
    d->asking = true;
    while (!d->failed && !d->full && d->flying < (d->begun ? READS_AHEAD : 1) &&
           d->next.offset < d->end)
        file_read_ask(d);
    d->asking = false;
    if (d->flying || !(d->failed || (d->begun && d->next.offset >= d->end)))
        return;
    c->whole = d->begun && !d->failed && !d->left && d->end == d->seen.size && !call_is_gone(c);
    if (d->begun)
        call_end(c);
    else if (!d->refused)
        call_error(c, &d->refusal);
    free(d);
}

/* Answers 416 with the file size: the range lies beyond the end of the file. */
static void refuse_range(struct download *d, uint64_t size) {
    char range[40];
    err_set(&d->refusal, ERR_INVALID,
            "the range lies beyond the end of the file (%" PRIu64 " bytes)", size);
    snprintf(range, sizeof(range), "bytes */%" PRIu64, size);
    d->failed = true;
    d->refused = true;
    call_error_more(d->call, 416, &d->refusal, HTTP_FIELDS({"Content-Range", range}));
}

/* Begins the response. True: the bytes of this first reply belong to it. */
static bool begin_download(struct download *d, const struct msg_read_data *m) {
    struct call *c = d->call;
    char range[80];
    uint64_t first, asked = d->first;
    if (!http_range_of(&d->range, m->size, &first, &d->end)) {
        refuse_range(d, m->size);
        return false;
    }
    d->begun = true;
    d->seen = *m;
    d->left = d->end - first;
    c->length = (int64_t)d->left;
    snprintf(range, sizeof(range), "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, first, d->end - 1,
             m->size);
    call_begin(c, d->range.given ? 206 : 200, "application/octet-stream",
               d->range.given ? HTTP_FIELDS({"Content-Range", range}) : NULL);
    if (d->range.given && d->range.suffix)
        d->next.offset = first;
    else if (d->next.offset > d->end)
        d->next.offset = d->end;
    if (d->head)
        d->next.offset = d->end;
    return first == asked && !d->range.suffix;
}

static void write_piece(struct download *d, const struct msg_bytes *data) {
    uint32_t n = data->n < d->left ? data->n : (uint32_t)d->left;
    d->left -= n;
    d->call->moved += n;
    d->full = !call_write(d->call, data->p, n);
}

static void read_came(void *arg, const struct frame *frame, const struct err *err) {
    struct download *d = arg;
    struct msg_read_data m;
    struct err bad;
    bool ours = true;
    d->flying--;
    if (!err && msg_get_read_data(frame, &m) < 0) {
        err_set(&bad, ERR_INTERNAL, "the guest process of the machine sent a malformed reply");
        err = &bad;
    }
    if (err && !d->begun)
        d->refusal = *err;
    else if (!d->begun && !d->failed)
        ours = begin_download(d, &m);
    /* Never mix the bytes of two files: if the file was replaced, the response ends early. */
    if (err || (d->begun && file_replaced(&d->seen, &m)))
        d->failed = true;
    else if (m.data.n && ours && !d->failed)
        write_piece(d, &m.data);
    else if (ours)
        d->next.offset = d->end;
    ask_more(d);
}

static void download_drained(struct call *c) {
    struct download *d = c->user;
    d->full = false;
    ask_more(d);
}

static void download_gone(struct call *c) {
    struct download *d = c->user;
    d->failed = true;
    ask_more(d);
}

void file_download(struct call *c, const struct msg_path *m) {
    struct download *d = xnew(struct download);
    *d = (struct download){
        .call = c, .end = INT64_MAX, .head = http_text_is(c->http->head->method, "HEAD")};
    /* Responses have no ETag, so If-Range never matches. */
    if (!http_field_find(c->http->head, "If-Range"))
        d->range = http_range_parse(http_field_only(c->http->head, "Range"));
    if (d->range.given && !d->range.suffix)
        d->first = d->range.first;
    if (d->range.given && !d->range.suffix && d->range.last < INT64_MAX)
        d->end = d->range.last + 1;
    d->next = (struct msg_read){.uid = m->uid, .gid = m->gid, .offset = d->first, .path = m->path};
    c->user = d;
    c->on_gone = download_gone;
    c->on_drain = download_drained;
    ask_more(d);
}

void api_file_read(struct call *c) {
    struct msg_path m;
    if (file_words(c, &m) == 0)
        file_download(c, &m);
}
