/*
 * Output of a guest that keeps the logs of its commands itself, because it cannot get ours: it is
 * read in pieces and written to our log. From there on it is like that of any other command.
 */
#include <string.h>

#include "service/exec/inner.h"

enum { PACE_BYTES = 64 << 10 };

bool exec_is_mirrored(const struct exec *x) {
    return x->live && x->live->machine && x->log.fd >= 0 &&
           guest_keeps_logs(x->live->machine->guest);
}

uint64_t exec_pace_step(const struct exec *x, int stream) {
    uint64_t step = outlog_window(&x->log.log.caps, stream) / 2;
    return exec_is_mirrored(x) && step > PACE_BYTES ? PACE_BYTES : step;
}

static void mirror_next(struct exec *x);

static void mirror_put(struct exec *x, int stream, const struct msg_log_data *m) {
    struct outlog_writer *to = &x->mirror.to;
    if (m->offset > to->produced[stream]) /* the guest did not keep what lies between */
        outlog_lose(to, stream, (size_t)(m->offset - to->produced[stream]));
    outlog_put(to, stream, m->data.p, m->data.n);
    if (m->ended && to->produced[stream] >= m->produced)
        outlog_end(to, stream);
}

static void mirror_over(struct exec *x) {
    exec_ref(x);
    if (x->mirror.has_exit) {
        x->mirror.has_exit = false;
        exec_exited(x, &x->mirror.exit);
    }
    exec_grew(x);
    exec_unref(x);
}

static void mirror_came(void *arg, const struct frame *frame, const struct err *err) {
    struct exec *x = arg;
    struct exec_mirror *m = &x->mirror;
    struct msg_log_data data;
    m->is_copying = false;
    /* Not below what was asked for, and no empty answer that leaves out nothing. */
    bool is_sound = !err && msg_get_log_data(frame, &data) == 0 &&
                    data.offset >= m->to.produced[m->stream] && data.offset <= INT64_MAX;
    if (is_sound) {
        bool moved = data.data.n || data.ended || data.offset > m->to.produced[m->stream];
        mirror_put(x, m->stream, &data);
        if (!moved) { /* there is no more */
            m->goal.produced[m->stream] = 0;
            m->goal.ended &= (uint8_t) ~(1u << m->stream);
        }
        mirror_next(x);
    } else if (m->has_exit) { /* its status counts, even if its output cannot be read */
        mirror_over(x);
    }
    exec_unref(x);
}

static bool mirror_wants(const struct exec_mirror *m, int stream) {
    bool ends = m->goal.ended >> stream & 1;
    return !m->to.ended[stream] && (ends || m->to.produced[stream] < m->goal.produced[stream]);
}

/* Asks for the next piece, or says that the log has grown. */
static void mirror_next(struct exec *x) {
    struct exec_mirror *m = &x->mirror;
    if (!exec_is_mirrored(x))
        return;
    m->stream = mirror_wants(m, 0) ? 0 : 1;
    if (!mirror_wants(m, m->stream)) {
        mirror_over(x);
        return;
    }
    const struct msg_log_read ask = {.stream = (uint8_t)(m->stream + 1),
                                     .offset = m->to.produced[m->stream],
                                     .bytes = MSG_CHUNK_MAX};
    m->is_copying = true;
    exec_ref(x);
    guest_request(x->live->machine->guest,
                  (struct frame_head){.type = MSG_LOG_READ, .id = x->command.id}, &ask, NULL, 0,
                  mirror_came, x);
}

static void mirror_begin(struct exec *x) {
    struct exec_mirror *m = &x->mirror;
    if (m->is_copying || (!m->has_begun && outlog_write(&m->to, x->log.log.map, x->log.bytes) < 0))
        return;
    m->has_begun = true;
    mirror_next(x);
}

void exec_mirror(struct exec *x, const struct msg_log *goal) {
    struct exec_mirror *m = &x->mirror;
    if (!m->has_exit)
        m->goal = *goal;
    mirror_begin(x);
}

void exec_mirror_exit(struct exec *x, const struct msg_exit *exit) {
    struct exec_mirror *m = &x->mirror;
    m->exit = *exit;
    m->has_exit = true;
    m->goal = (struct msg_log){.produced = {UINT64_MAX, UINT64_MAX}};
    mirror_begin(x);
}

void exec_mirror_stop(struct exec *x) {
    x->mirror.has_exit = false;
}
