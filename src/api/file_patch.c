/* Writes into a file at an offset, in place. Each piece of the body becomes one request to the
 * guest, one at a time. Bytes written before a failure stay in the file. A step follows only the
 * last request, so up to one piece is kept back until the body has ended.
 */
#include <stdlib.h>
#include <string.h>

#include "api/file_patch.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/defer.h"
#include "service/files.h"

enum { REST_MAX = 1 << 20 };

struct patch {
    struct call *call;
    struct msg_write next; /* the next request to the guest; the call owns its path */
    struct buf rest;       /* received body bytes that were not sent to the guest yet */
    uint32_t flying;       /* bytes in the request that waits for a reply */
    uint64_t size;         /* file size in the last reply of the guest */
    bool asked, busy, ended, gone;
    bool over; /* the last request was sent */
};

static void patch_free(struct patch *p) {
    buf_done(&p->rest);
    free(p);
}

static void file_patch_finish(struct patch *p, const struct err *err) {
    struct call *c = p->call;
    struct buf text DEFER(buf_done) = BUF(128);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_u64(&j, "size", p->size);
    jot_end(&j, '}');
    bool gone = p->gone;
    patch_free(p);
    c->on_gone = NULL;
    if (gone)
        call_abandon(c);
    else if (err)
        call_error(c, err);
    else
        call_json(c, 200, &j, &text);
}

static void file_patch_send(struct patch *p);

static bool has_next(const struct patch *p) {
    return p->ended ? !p->over : p->rest.len > MSG_CHUNK_MAX;
}

static void written(void *arg, const struct frame *frame, const struct err *err) {
    struct patch *p = arg;
    struct msg_ok ok;
    struct err bad;
    p->busy = false;
    if (!err && msg_get_ok(frame, &ok) < 0) {
        err_set(&bad, ERR_INTERNAL, "the guest process of the machine sent a malformed reply");
        err = &bad;
    }
    if (err) {
        file_patch_finish(p, err);
        return;
    }
    p->size = ok.value;
    p->next.offset += p->flying;
    buf_drop(&p->rest, p->flying);
    if (has_next(p))
        file_patch_send(p);
    else if (p->ended)
        file_patch_finish(p, NULL);
    else
        call_body_resume(p->call);
}

/* Sends the next request. That of an empty body is empty, to check the file. */
static void file_patch_send(struct patch *p) {
    struct call *c = p->call;
    p->flying = p->rest.len < MSG_CHUNK_MAX ? (uint32_t)p->rest.len : MSG_CHUNK_MAX;
    p->next.data =
        (struct msg_bytes){(const uint8_t *)(p->rest.data ? p->rest.data : ""), p->flying};
    const char *path = p->asked ? NULL : p->next.path.s;
    p->asked = p->busy = true;
    p->over = p->ended && p->flying == p->rest.len;
    if (!p->ended)
        call_body_pause(c);
    if (p->over)
        service_file(c->service, &c->who, c->params[0], MSG_WRITE, &p->next, path, written, p);
    else
        service_file_piece(c->service, &c->who, c->params[0], MSG_WRITE, &p->next, path, written,
                           p);
}

/* What came before a client vanished is written, and a step follows it. */
static void vanished(struct call *c) {
    struct patch *p = c->user;
    p->gone = p->ended = true;
    if (p->busy)
        return; /* written() goes on */
    if (p->asked || p->rest.len)
        file_patch_send(p);
    else
        file_patch_finish(p, NULL);
}

static void piece(struct call *c, const char *bytes, size_t n) {
    struct patch *p = c->user;
    struct err err;
    p->ended = n == 0;
    if (n && !buf_add(&p->rest, bytes, n)) {
        err_set(&err, ERR_LIMIT, "the machine does not read the body of the request");
        p->gone = p->busy; /* after the reply of the guest, written() frees p */
        p->ended = p->over = true;
        if (!p->busy)
            file_patch_finish(p, &err);
        return;
    }
    if (!p->busy && has_next(p))
        file_patch_send(p);
}

void file_patch(struct call *c, const struct msg_path *path, uint64_t offset) {
    struct patch *p = xnew(struct patch);
    *p = (struct patch){.call = c, .rest = BUF(REST_MAX)};
    p->next = (struct msg_write){.uid = path->uid,
                                 .gid = path->gid,
                                 .flags = MSG_CREATE,
                                 .mode = path->mode,
                                 .offset = offset,
                                 .path = path->path};
    c->user = p;
    c->on_gone = vanished;
    call_body(c, INT64_MAX, piece);
}
