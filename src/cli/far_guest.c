/* The far end of a session that is a guest on this host, reached through its socket. */
#include <poll.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/fdio.h"
#include "cli/session.h"

/* Drawn, because a kept machine has other commands too. */
static uint32_t draw_id(void) {
    uint32_t id = 0;
    while (getrandom(&id, sizeof(id), 0) != sizeof(id) || id == 0)
        ;
    return id;
}

static int start(struct session *s, const int *fds, uint32_t count, struct err *err) {
    s->id = draw_id();
    s->credit = MSG_WINDOW_DEFAULT;
    if (s->terminal)
        s->exec.window = MSG_WINDOW_DEFAULT;
    struct frame_head head = {.type = MSG_EXEC, .id = s->id, .tag = 1, .flags = (uint16_t)count};
    return guest_link_send(s->link, &head, &s->exec, fds, count, err);
}

static int far_fd(const struct session *s) {
    return guest_link_fd(s->link);
}

static short far_events(const struct session *s) {
    return guest_link_events(s->link);
}

static void send_signal(struct session *s, uint32_t number) {
    struct msg_signal m = {.number = number};
    guest_link_send(s->link, &(struct frame_head){.type = MSG_SIGNAL, .id = s->id}, &m, NULL, 0,
                    NULL);
}

static void resize(struct session *s, uint16_t rows, uint16_t cols) {
    struct msg_resize m = {.rows = rows, .cols = cols};
    guest_link_send(s->link, &(struct frame_head){.type = MSG_RESIZE, .id = s->id}, &m, NULL, 0,
                    NULL);
}

static bool may_type(const struct session *s) {
    return s->sent < s->credit;
}

static int type(struct session *s, const char *bytes, size_t n, struct err *err) {
    int r = guest_link_stdin(s->link, s->id, s->sent, n ? bytes : NULL, (uint32_t)n, n == 0, err);
    s->sent += n;
    return r;
}

/* Output of a terminal: written out before it is acknowledged, so a slow reader slows only itself.
 */
static int take_output(struct session *s, const struct frame *frame, struct err *err) {
    struct msg_data m;
    if (msg_decode(frame, &m, sizeof(m)) < 0)
        return err_set(err, ERR_INTERNAL, "malformed output frame");
    int r = write_all(STDOUT_FILENO, m.data.p, m.data.n);
    if (r < 0) {
        return err_num(err, r, "write output");
    }
    if (frame->head.flags & FRAME_EOF)
        s->output_open = false;
    return guest_link_credit(s->link, s->id, 1, m.offset + m.data.n, err);
}

static int take_frame(struct session *s, const struct frame *frame, struct err *err) {
    struct msg_credit credit;
    switch (frame->head.type) {
    case MSG_EXIT:
        if (msg_decode(frame, &s->result.exit, sizeof(s->result.exit)) < 0)
            return err_set(err, ERR_INTERNAL, "malformed exit frame");
        s->exited = true;
        return guest_link_ack(s->link, s->id, err);
    case MSG_EXEC_FAILED:
        if (msg_decode(frame, &s->result.why, sizeof(s->result.why)) < 0)
            return err_set(err, ERR_INTERNAL, "malformed answer");
        s->result.never_began = s->exited = true;
        s->output_open = false;
        return 0;
    case MSG_ERROR:
        return guest_link_error(frame, err);
    case MSG_STDOUT:
        return take_output(s, frame, err);
    case MSG_CREDIT:
        if (msg_decode(frame, &credit, sizeof(credit)) == 0 && credit.stream == 0)
            s->credit = credit.consumed + MSG_WINDOW_DEFAULT;
        return 0;
    default:
        return 0;
    }
}

static int take(struct session *s, struct err *err) {
    struct frame frame;
    int r = guest_link_flush(s->link, err);
    if (r < 0)
        return -1;
    while ((r = guest_link_next(s->link, &frame, err)) > 0)
        if (take_frame(s, &frame, err) < 0)
            return -1;
    return r;
}

const struct far_driver far_guest = {
    .start = start,
    .fd = far_fd,
    .events = far_events,
    .take = take,
    .signal = send_signal,
    .resize = resize,
    .may_type = may_type,
    .type = type,
};
