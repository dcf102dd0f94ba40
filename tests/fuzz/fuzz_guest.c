/*
 * A guest that says anything at all. Property: whatever comes, each request is answered exactly
 * once, each command ends exactly once, and the host's end is gone at most once.
 */
#include <assert.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "machine/guest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { REQUESTS = 3, COMMANDS = 2 };

static struct play {
    struct loop *loop;
    struct guest *guest;
    unsigned gone;
    unsigned answers[REQUESTS];
    struct guest_command commands[COMMANDS];
    unsigned ends[COMMANDS], exits[COMMANDS];
} play;

static void on_gone(void *arg) {
    (void)arg;
    play.gone++;
    loop_stop(play.loop);
}

static void answered(void *arg, const struct frame *f, const struct err *err) {
    unsigned *count = arg;
    assert(!f != !err);
    ++*count;
}

static void exited(void *arg, const struct msg_exit *m) {
    (void)m;
    play.exits[(unsigned *)arg - play.ends]++;
}

static void failed(void *arg, const struct msg_exec_failed *m) {
    (void)m;
    ++*(unsigned *)arg;
}

static void ended(void *arg, const struct err *err) {
    assert(err->code);
    ++*(unsigned *)arg;
}

static void got_data(void *arg, unsigned stream, uint64_t offset, const uint8_t *p, uint32_t n,
                     bool eof) {
    (void)arg, (void)offset, (void)eof;
    uint8_t sum = 0;
    assert(stream == 1 || stream == 2);
    for (uint32_t i = 0; i < n; i++)
        sum = (uint8_t)(sum + p[i]);
    (void)sum;
}

static void ask_everything(void) {
    static const uint16_t types[REQUESTS] = {MSG_PING, MSG_TABLE, MSG_BUSY};
    static const char *const argv[] = {"x", NULL}, *const env[] = {NULL};
    static const struct msg_exec exec = {.argv = {.v = argv}, .env = {.v = env}};
    for (size_t i = 0; i < REQUESTS; i++)
        guest_request(play.guest, (struct frame_head){.type = types[i]}, NULL, NULL, 0, answered,
                      &play.answers[i]);
    for (uint32_t i = 0; i < COMMANDS; i++) {
        play.commands[i] = (struct guest_command){.id = 1 + i,
                                                  .arg = &play.ends[i],
                                                  .exited = exited,
                                                  .failed = failed,
                                                  .refused = ended,
                                                  .data = got_data,
                                                  .lost = ended};
        guest_exec(play.guest, &play.commands[i], &exec, NULL, 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int ends[2];
    uint8_t hello[64];
    struct err err;
    struct msg_hello h = {MSG_VERSION, 0, 5};
    size_t n = msg_encode(hello, sizeof(hello), &(struct frame_head){.type = MSG_HELLO}, &h);
    if (size > 65536 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return 0;
    memset(&play, 0, sizeof(play));
    play.loop = loop_new(&err);
    play.guest = play.loop ? guest_open(play.loop, ends[0], on_gone, NULL, &err) : NULL;
    assert(play.guest);
    ask_everything();
    /* Then the connection closes, so that there is an end to everything. */
    bool sent = send(ends[1], hello, n, 0) == (ssize_t)n &&
                send(ends[1], data, size, MSG_DONTWAIT) == (ssize_t)size;
    close(ends[1]);
    loop_run(play.loop);
    assert(play.gone == 1);
    for (size_t i = 0; i < REQUESTS && sent; i++)
        assert(play.answers[i] == 1);
    for (size_t i = 0; i < COMMANDS; i++)
        assert(play.ends[i] == 1 && play.exits[i] <= 1);
    guest_free(play.guest);
    loop_free(play.loop);
    return 0;
}
