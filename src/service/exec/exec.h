/*
 * Commands: run, follow, write input, signal, and read the output later.
 *
 * A struct exec is one command, running or ended. Functions that return one, or pass one to a
 * callback, give a reference. Output is in a log on the host. A follower (a reader of the output)
 * is only notified of new output and reads at its own pace, so a slow or vanished follower costs
 * nothing. A follower that needs every byte can make the command wait.
 */
#pragma once

#include "base/wire/outlog.h"
#include "service/service.h"

struct exec;

/* `changed` is called on every change: more output, start, end. Call exec_unfollow() before the
 * follower is freed. */
struct exec_follower {
    void (*changed)(void *arg);
    void *arg;
    bool wants_output; /* false: only start and end matter */
    /*
     * Not NULL: stdout (or the terminal), or stderr, waits for this reader. They point to the bytes
     * consumed so far; report progress with exec_consumed().
     */
    const uint64_t *consumed[2];
    struct exec *of; /* these three are private to exec/ */
    struct exec_follower *next, **at;
};

typedef void service_exec_fn(void *arg, struct exec *x, const struct err *err);

/*
 * Arguments must stay valid until `done`, which is called when the command was sent to its machine,
 * or with the error. fds: a pipe for each "fd" in r->stdio (local callers only); the caller keeps
 * ownership. An idempotency key that was used before returns that exec. `done` gets a reference.
 */
void service_exec(struct service *s, const struct caller *who, const char *machine,
                  const struct exec_request *r, const uint8_t request_hash[SHA256_BYTES],
                  const int *fds, size_t nfds, service_exec_fn *done, void *arg);

/* Finds a command, also of an ended machine. Returns a reference. */
struct exec *service_exec_find(struct service *s, const struct caller *who, const char *machine,
                               const char *id, struct err *err);
/* Finds the newest command with this process id in the machine. Returns a reference. */
struct exec *service_exec_by_pid(struct service *s, const struct caller *who, const char *machine,
                                 uint32_t pid, struct err *err);
int service_exec_list(struct service *s, const struct caller *who, const char *machine,
                      const struct list_request *r, service_row_fn *row, void *arg,
                      char ret_next[CURSOR_SIZE], struct err *err);

/*
 * The words of the newest running command as a JSON array, valid until the caller returns to the
 * loop; NULL: none. Commands that only wait for their caller do not count.
 */
const char *service_exec_newest(struct service *s, const struct caller *who, const char *machine);

void exec_ref(struct exec *x);
void exec_unref(struct exec *x);
void exec_view(struct exec *x, struct exec_view *ret);
/* True if the command has an outcome: exited, failed or unknown. */
bool exec_is_over(const struct exec *x);
/*
 * Call it when a command that runs on has answered a request of its caller, such as a piece of code
 * for an interpreter: a step follows, as after the end of a command.
 */
void exec_answered(struct exec *x);
/* True if no more output can come: the command and all processes that it left behind have closed
 * its streams, or its machine has ended. */
bool exec_log_is_closed(const struct exec *x);

/* The log of the output. NULL: output went to descriptors of the caller, or the log is gone. */
const struct outlog *exec_log(const struct exec *x);
/* Returns how many bytes of a stream were printed but are not kept: they were deleted, or lost by a
 * power failure. */
uint64_t exec_lost(const struct exec *x, int stream);
/* Fails with ERR_GONE if the output from this offset on existed but is not kept. */
int exec_output_check(const struct exec *x, int stream, uint64_t from, struct err *err);

void exec_follow(struct exec *x, struct exec_follower *f);
void exec_unfollow(struct exec_follower *f);
void exec_consumed(struct exec *x);
/* The reader that exec_request.paced announced does not come. */
void exec_needs_no_reader(struct exec *x);

/*
 * Writes input at an offset: bytes received before are skipped, a gap is refused. Returns the
 * number of bytes taken; send the rest after the next notification of a follower.
 */
ssize_t exec_write(struct exec *x, const struct caller *who, uint64_t offset, const void *bytes,
                   size_t n, bool eof, struct err *err);
uint64_t exec_stdin_offset(const struct exec *x);

int exec_signal(struct exec *x, const struct caller *who, int number, bool main_only,
                struct err *err);
/*
 * The same, but done() tells if the command got the signal. A paused machine does not answer: then
 * done() is called at once, and the command gets the signal when the machine continues.
 */
void exec_signal_wait(struct exec *x, const struct caller *who, int number, bool main_only,
                      service_done_fn *done, void *arg);
int exec_resize(struct exec *x, const struct caller *who, uint16_t rows, uint16_t cols,
                struct err *err);
/* Sends SIGKILL to the command and everything that it started. */
void exec_kill(struct exec *x, const struct caller *who, service_done_fn *done, void *arg);
