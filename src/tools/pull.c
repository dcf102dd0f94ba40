#include "tools/pull.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/wire/msg.h"
#include "service/files.h"

struct pulling {
    struct pull_from from;
    pull_piece_fn *piece;
    pull_ended_fn *ended;
    void *arg;
    uint64_t offset;
    struct msg_read_data seen; /* first reply, to notice that the file was replaced */
    bool begun;
};

static void came(void *arg, const struct frame *frame, const struct err *err);

/* Only the first request gives the journal a path, so that the journal shows one read per file. */
static void pull_ask(struct pulling *p) {
    const char *path = p->from.path;
    const struct msg_read m = {.uid = p->from.uid,
                               .gid = p->from.uid,
                               .offset = p->offset,
                               .bytes = MSG_CHUNK_MAX,
                               .path = {.s = path, .n = (uint32_t)strlen(path)}};
    service_file(p->from.service, p->from.who, p->from.machine, MSG_READ, &m,
                 p->begun ? NULL : path, came, p);
}

/* Frees first: `ended` may start another pull. */
static void pull_end(struct pulling *p, const struct err *err, bool whole) {
    struct pulling over = *p;
    free(p);
    over.ended(over.arg, err, whole);
}

static void came(void *arg, const struct frame *frame, const struct err *err) {
    struct pulling *p = arg;
    struct msg_read_data m = {0};
    struct err why;
    if (!err && msg_get_read_data(frame, &m) < 0)
        err = (err_set(&why, ERR_INTERNAL, "the machine sent a malformed answer to a file read"),
               &why);
    else if (!err && p->begun && file_replaced(&p->seen, &m))
        err =
            (err_set(&why, ERR_BUSY, "file '%.200s' was replaced while it was read", p->from.path),
             &why);
    if (err) {
        pull_end(p, err, false);
        return;
    }
    if (!p->begun)
        p->seen = m;
    p->begun = true;
    p->offset += m.data.n;
    /* Files of /proc have size 0 and content: read them until a piece is empty. */
    if (!m.data.n)
        pull_end(p, NULL, true);
    else if ((p->from.stop && *p->from.stop) || !p->piece(p->arg, m.data.p, m.data.n))
        pull_end(p, NULL, false);
    else if (p->offset >= m.size && m.size)
        pull_end(p, NULL, true);
    else
        pull_ask(p);
}

void pull(const struct pull_from *from, pull_piece_fn *piece, pull_ended_fn *ended, void *arg) {
    struct pulling *p = xnew(struct pulling);
    *p = (struct pulling){.from = *from, .piece = piece, .ended = ended, .arg = arg};
    pull_ask(p);
}
