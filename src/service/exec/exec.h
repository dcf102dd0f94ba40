/*
 * Commands: run, follow, write input, signal, and read the output later.
 *
 * A struct exec is one command, running or ended; the receiver of one holds a reference. Output is
 * in a log on the host. A follower is only notified of new output and reads at its own pace, so a
 * slow or vanished follower costs nothing. A follower that needs every byte can make the command
 * wait.
 */
#pragma once

#include "base/wire/outlog.h"
#include "service/service.h"

struct exec;

/* Told on every change: more output, started, ended. Unlink it before it goes away. */
struct exec_follower {
    void (*changed)(void *arg);
    void *arg;
    bool wants_output; /* false: only its start and end are of interest */
    /*
     * Not NULL: the command waits with its output (stdout, or its terminal) for this reader, which
     * has consumed so much and says so with exec_consumed().
     */
    const uint64_t *consumed;
    struct exec *of; /* the exec's, as the next two */
    struct exec_follower *next, **at;
};

typedef void service_exec_fn(void *arg, struct exec *x, const struct err *err);

/*
 * What the arguments point to must live until `done`, which comes when the command has been sent to
 * its machine, or why not. fds: descriptors for those of r->stdio that say "fd" (the caller is
 * local, and they are pipes); they stay the caller's. An idempotency key that was used before
 * yields that exec. The exec given to `done` has a reference that is now the receiver's.
 */
void service_exec(struct service *s, const struct caller *who, const char *machine,
                  const struct exec_request *r, const uint8_t request_hash[SHA256_BYTES],
                  const int *fds, size_t nfds, service_exec_fn *done, void *arg);

/* One that was started before, also of a machine that has ended. Referenced. */
struct exec *service_exec_find(struct service *s, const struct caller *who, const char *machine,
                               const char *id, struct err *err);
int service_exec_list(struct service *s, const struct caller *who, const char *machine,
                      const struct list_request *r, service_row_fn *row, void *arg,
                      char ret_next[CURSOR_SIZE], struct err *err);

void exec_ref(struct exec *x);
void exec_unref(struct exec *x);
void exec_view(struct exec *x, struct exec_view *ret);
bool exec_is_over(const struct exec *x); /* there is an outcome: exited, failed, unknown */

/* NULL: its output went to descriptors of its caller, or the log is gone. */
const struct outlog *exec_log(const struct exec *x);
/* Bytes of a stream that were printed, and are not kept: a power cut took them, or they were
 * removed. */
uint64_t exec_lost(const struct exec *x, int stream);
/* `gone`, if nothing is kept of a stream from there on, though there was something. */
int exec_output_check(const struct exec *x, int stream, uint64_t from, struct err *err);

void exec_follow(struct exec *x, struct exec_follower *f);
void exec_unfollow(struct exec_follower *f);
void exec_consumed(struct exec *x);

/*
 * Input at an offset: what was received before is skipped, a hole is refused. Returns how many
 * bytes were taken (the rest when a follower is told again), -1 with *err.
 */
ssize_t exec_write(struct exec *x, const struct caller *who, uint64_t offset, const void *bytes,
                   size_t n, bool eof, struct err *err);
uint64_t exec_stdin_offset(const struct exec *x);

int exec_signal(struct exec *x, const struct caller *who, int number, bool main_only,
                struct err *err);
int exec_resize(struct exec *x, const struct caller *who, uint16_t rows, uint16_t cols,
                struct err *err);
/* SIGKILL to everything it started. */
void exec_kill(struct exec *x, const struct caller *who, service_done_fn *done, void *arg);
