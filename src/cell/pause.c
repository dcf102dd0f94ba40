#include "cell/pause.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cell_command.h"
#include "base/defer.h"
#include "base/wire/little.h"

/* --- the socket --- */

void pauser_open(struct pauser *p) {
    bool cannot = p->cannot;
    *p = (struct pauser){
        .control = -1, .file = -1, .cannot = cannot, .unread = BUF(PAUSE_INPUT_MAX)};
    if (fcntl(CELL_CONTROL_FD, F_GETFD) < 0)
        return;
    fcntl(CELL_CONTROL_FD, F_SETFD, FD_CLOEXEC);
    void *page =
        mmap(NULL, sizeof(*p->wanted), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return;
    p->wanted = page;
    p->control = CELL_CONTROL_FD;
}

void pauser_hold(struct pauser *p) {
    p->held = p->wanted;
    if (p->wanted)
        atomic_store(p->wanted, 1);
}

void pauser_close(struct pauser *p) {
    close_fd(&p->file);
    buf_done(&p->unread);
}

/* Without the guest this process has no machine, and ends soon. */
static void pauser_say(struct pauser *p, enum cell_control_kind kind) {
    const struct cell_control m = {.kind = kind};
    while (send(p->control, &m, sizeof(m), MSG_NOSIGNAL) < 0 && errno == EINTR)
        ;
}

static void pauser_over(struct pauser *p) {
    p->held = false;
    close_fd(&p->file);
    if (p->wanted)
        atomic_store(p->wanted, 0);
}

/* Takes the bytes out of a pipe that is about to be closed. Returns false if they are too many. */
static bool pauser_drain(struct pauser *p, int in_fd) {
    struct pollfd in = {.fd = in_fd, .events = POLLIN};
    char bytes[16384];
    while (in_fd >= 0 && !p->input_ended && poll(&in, 1, 0) == 1) {
        if (p->unread.len + sizeof(bytes) > p->unread.max)
            return false;
        ssize_t n = read(in_fd, bytes, sizeof(bytes));
        if (n < 0)
            return errno == EINTR;
        p->input_ended = n == 0;
        if (n > 0 && !buf_add(&p->unread, bytes, (size_t)n))
            return false;
    }
    return true;
}

static void pauser_begin(struct pauser *p, int file, uint64_t max, int in_fd) {
    close_fd(&p->file);
    p->file = file;
    p->written = 0;
    p->max = max;
    p->failed = !pauser_drain(p, in_fd);
    if (file >= 0 && !p->cannot && !p->failed) {
        atomic_store(p->wanted, 1);
        return;
    }
    pauser_over(p);
    pauser_say(p, CELL_CANNOT);
}

void pauser_hear(struct pauser *p, int in_fd) {
    struct cell_control m = {0};
    char room[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8)));
    struct iovec v = {&m, sizeof(m)};
    struct msghdr h = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room)};
    ssize_t n = recvmsg(p->control, &h, MSG_CMSG_CLOEXEC);
    int file = -1;
    const struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&h) : NULL;
    if (c && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(&file, CMSG_DATA(c), sizeof(file));
    if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) {
        pauser_over(p);
        close_fd(&p->control);
    } else if (m.kind == CELL_PAUSE) {
        pauser_begin(p, TAKE_FD(file), m.max, in_fd);
    } else if (m.kind == CELL_GO_ON) {
        pauser_over(p);
    }
    close_fd(&file);
}

static void pauser_add(struct pauser *p, const void *bytes, size_t len) {
    const char *at = bytes;
    p->failed = p->failed || len > p->max - p->written;
    while (len && !p->failed && p->file >= 0) {
        ssize_t n = pwrite(p->file, at, len, (off_t)p->written);
        p->failed = n <= 0 && errno != EINTR;
        if (n <= 0)
            continue;
        p->written += (uint64_t)n;
        at += n;
        len -= (size_t)n;
    }
}

int pauser_take(void *pauser, const void *bytes, size_t len) {
    pauser_add(pauser, bytes, len);
    return 0;
}

static void pauser_finish(struct pauser *p) {
    uint8_t tail[PAUSE_TAIL];
    pause_tail(p->unread.len, tail);
    pauser_add(p, p->unread.data, p->unread.len);
    pauser_add(p, tail, sizeof(tail));
}

static void pauser_await(struct pauser *p, int in_fd) {
    while (p->control >= 0 && atomic_load(p->wanted))
        pauser_hear(p, in_fd);
}

void pauser_stay(struct pauser *p, uint32_t why, int in_fd) {
    if (p->control < 0)
        return;
    if (why == STAY_HELD) { /* it may have been told to go on already, and asked to pause again */
        while (p->control >= 0 && p->held)
            pauser_hear(p, -1);
        return;
    }
    if (!atomic_load(p->wanted)) /* the pause was given up meanwhile */
        return;
    if (why == STAY_STORED)
        pauser_finish(p);
    if (why != STAY_STORED || p->failed || p->file < 0) {
        pauser_over(p);
        pauser_say(p, CELL_CANNOT);
        return;
    }
    close_fd(&p->file);
    pauser_say(p, CELL_STORED);
    pauser_await(p, in_fd);
}

/* --- the file --- */

static const char pause_magic[8] = "CRLPAUSE", tail_magic[8] = "CRLPAUSD";
enum { PAUSE_VERSION = 1, FLAG_WARM = 1 };

void pause_head(const struct pause_parts *p, uint8_t head[PAUSE_HEAD]) {
    memset(head, 0, PAUSE_HEAD);
    memcpy(head, pause_magic, sizeof(pause_magic));
    little_put(head + 8, PAUSE_VERSION, 4);
    little_put(head + 12, p->is_warm ? FLAG_WARM : 0, 4);
    little_put(head + 16, p->text.len, 8);
    little_put(head + 24, p->argc, 4);
    little_put(head + 28, p->envc, 4);
    little_put(head + 32, p->fuel_before, 8);
    little_put(head + 40, p->module.len, 8);
    little_put(head + 48, p->request.len, 8);
}

void pause_tail(uint64_t input, uint8_t tail[PAUSE_TAIL]) {
    little_put(tail, input, 8);
    memcpy(tail + 8, tail_magic, sizeof(tail_magic));
}

static int pause_damaged(struct err *err) {
    return err_set(err, ERR_INVALID, "the stored program is damaged or incomplete");
}

static bool take_part(struct slice *rest, uint64_t len, struct slice *ret) {
    if (len > rest->len)
        return false;
    *ret = (struct slice){.data = rest->data, .len = (size_t)len};
    rest->data += len;
    rest->len -= (size_t)len;
    return true;
}

/* True if the text is exactly so many words, each with a NUL. */
static bool has_words(struct slice text, uint64_t count) {
    uint64_t n = 0;
    for (size_t i = 0; i < text.len; i++)
        n += !text.data[i];
    return n == count && (!text.len || !text.data[text.len - 1]);
}

int pause_split(struct slice file, struct pause_parts *ret, struct err *err) {
    if (file.len < PAUSE_HEAD + PAUSE_TAIL ||
        memcmp(file.data, pause_magic, sizeof(pause_magic)) != 0)
        return pause_damaged(err);
    const uint8_t *head = file.data, *tail = file.data + file.len - PAUSE_TAIL;
    if (little_get(head + 8, 4) != PAUSE_VERSION)
        return err_set(err, ERR_UNSUPPORTED, "the stored program is of another version of Carrel");
    struct slice rest = {.data = head + PAUSE_HEAD, .len = file.len - PAUSE_HEAD - PAUSE_TAIL};
    uint64_t input = little_get(tail, 8);
    *ret = (struct pause_parts){.is_warm = little_get(head + 12, 4) & FLAG_WARM,
                                .argc = (uint32_t)little_get(head + 24, 4),
                                .envc = (uint32_t)little_get(head + 28, 4),
                                .fuel_before = little_get(head + 32, 8)};
    if (memcmp(tail + 8, tail_magic, sizeof(tail_magic)) != 0 || input > PAUSE_INPUT_MAX ||
        ret->argc > PAUSE_WORDS_MAX || ret->envc > PAUSE_WORDS_MAX ||
        !take_part(&rest, little_get(head + 16, 8), &ret->text) ||
        !has_words(ret->text, (uint64_t)ret->argc + ret->envc) ||
        !take_part(&rest, little_get(head + 40, 8), &ret->module) ||
        !take_part(&rest, little_get(head + 48, 8), &ret->request) || input > rest.len ||
        !take_part(&rest, rest.len - input, &ret->state))
        return pause_damaged(err);
    ret->input = rest;
    return 0;
}
