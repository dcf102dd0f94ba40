#include "cli/session.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <termios.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "cli/guard.h"
#include "cli/remote.h"
#include "cli/text/aside.h"

/*
 * ANSWER_MS: time to wait for the guest after --timeout, which the guest enforces. OUTPUT_MS: time
 * to wait for more output after the end of the command, if the guest does not close the pipes.
 * DRAW_MS: between two sizes of a window, so that a program sees both.
 */
enum { BLOCK = 65536, ANSWER_MS = 2000, OUTPUT_MS = 5000, DRAW_MS = 50 };

/* Copies one stream of the caller to or from the same stream of the command. */
struct pump {
    bool active;
    int from, to;        /* descriptors; bytes are copied from `from` to `to` */
    struct buf *capture; /* receives the bytes instead of `to`; NULL: none */
    bool *cut;
    int *lost;
    char *data;
    size_t at, len;
};

struct loop {
    struct session *s;
    struct pump pumps[3];
    int shared; /* the last pipe made for the command */
    int signals;
    bool raw;
    struct termios saved;
    uint64_t started_ms;
    bool has_terminal;   /* our stdin is a terminal */
    unsigned leave_keys; /* how often SESSION_LEAVE_KEY was pressed in a row, since leave_ms */
    uint64_t leave_ms;
    bool input_open; /* more input may come for a terminal or for far.c */
};

bool session_wants_terminal(void) {
    return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
}

static void pump_close(struct pump *p, int own) {
    /* `own` is our end of a pipe. The other descriptor belongs to the caller: do not close it. */
    if (own >= 0)
        close(own);
    free(p->data);
    *p = (struct pump){.from = -1, .to = -1};
}

static bool is_pipe(int fd) {
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode);
}

static bool is_null(int fd) {
    struct stat st, null;
    return fstat(fd, &st) < 0 ||
           (S_ISCHR(st.st_mode) && stat("/dev/null", &null) == 0 && st.st_rdev == null.st_rdev);
}

static bool is_same(int a, int b) {
    struct stat one, other;
    return fstat(a, &one) == 0 && fstat(b, &other) == 0 && one.st_dev == other.st_dev &&
           one.st_ino == other.st_ino;
}

/*
 * Sets mode 0666, so that the command can open /dev/stdout: in the machine, the pipe belongs to
 * nobody. This is done only for anonymous pipes, which only processes that have them can open.
 */
static void let_reopen(int fd) {
    struct statfs fs;
    if (fstatfs(fd, &fs) == 0 && fs.f_type == PIPEFS_MAGIC)
        fchmod(fd, 0666);
}

/* Decides how stream n reaches the command. *ret_fd is the descriptor to send; *ret_close: close it
 * afterwards. */
static int plan_stream(struct loop *l, int n, int *ret_fd, bool *ret_close, struct err *err) {
    struct buf *capture = n > 0 ? l->s->captured[n - 1] : NULL;
    int ends[2];
    *ret_close = false;
    if (!capture && is_null(n)) {
        l->s->request.streams[n] = SESSION_STREAM_NULL;
        return 0;
    }
    l->s->request.streams[n] = SESSION_STREAM_HANDED;
    if (!capture && is_pipe(n)) {
        let_reopen(n);
        *ret_fd = n;
        return 0;
    }
    if (n == 2 && !capture && is_same(1, 2) && l->pumps[1].active) {
        /* one pipe for both keeps the order of what the command writes */
        *ret_fd = l->shared;
        return 0;
    }
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_sys(err, "cannot create a pipe for the command");
    struct pump *p = &l->pumps[n];
    *p = (struct pump){.active = true,
                       .from = n == 0 ? 0 : ends[0],
                       .to = n == 0 ? ends[1] : n,
                       .capture = capture,
                       .cut = n > 0 ? &l->s->cut[n - 1] : NULL,
                       .lost = n > 0 ? &l->s->lost : NULL,
                       .data = xmalloc(BLOCK)};
    fcntl(n == 0 ? ends[1] : ends[0], F_SETFL, O_NONBLOCK);
    *ret_fd = ends[n == 0 ? 0 : 1];
    let_reopen(*ret_fd);
    l->shared = *ret_fd;
    *ret_close = true;
    return 0;
}

static const char *machine_of(const struct loop *l) {
    return l->s->remote->machine ? l->s->remote->machine : l->s->remote->id;
}

/* A signal that does not reach the command now ends the client, and not the command. */
static void end_unheard(struct loop *l, uint32_t number) {
    struct session_result *r = &l->s->result;
    const char *id = machine_of(l);
    *r = (struct session_result){.end = EXEC_END_UNHEARD, .status = 128 + (int)number};
    if (l->s->ends_machine)
        snprintf(r->reason, sizeof(r->reason),
                 "machine '%s' is paused: it is deleted together with the command", id);
    else
        snprintf(r->reason, sizeof(r->reason),
                 "machine '%s' is paused: the command gets the signal when the machine continues "
                 "(carrel resume %s)",
                 id, id);
}

/* Sends a signal to the command. If nothing answers, the guard ends the client. */
static void send_signal(struct loop *l, uint32_t number) {
    char fate[300];
    const char *id = machine_of(l);
    snprintf(fate, sizeof(fate), "carrel: machine '%s' did not answer: %s%s%s\n", id,
             l->s->ends_machine ? "it is deleted together with the command"
                                : "the command may continue (see: carrel logs ",
             l->s->ends_machine ? "" : id, l->s->ends_machine ? "" : ")");
    guard_begin((int)number, l->s->remote->quiet ? "" : fate, l->raw ? &l->saved : NULL);
    bool paused = remote_signal(l->s, number);
    guard_end();
    if (paused)
        end_unheard(l, number);
}

/* Starts the command. Until it has started there is nothing to send a signal to. */
static int start_guarded(struct loop *l, const int *fds, uint32_t count, struct err *err) {
    const struct remote *r = l->s->remote;
    char fate[300];
    snprintf(fate, sizeof(fate), "carrel: a signal came before the command started: %s%s%s\n",
             r->machine           ? "it may still start (see: carrel logs "
             : l->s->ends_machine ? "its machine is deleted"
                                  : "its machine may still start (see: carrel ls",
             r->machine ? r->machine : "", l->s->ends_machine && !r->machine ? "" : ")");
    guard_begin(0, r->quiet ? "" : fate, l->raw ? &l->saved : NULL);
    int result = remote_start(l->s, fds, count, err);
    guard_end();
    return result;
}

/* A daemon over TCP takes no descriptors, and neither does a vm: we read input, and output comes
 * with the events. */
static int start_far(struct loop *l, struct err *err) {
    bool reads = !is_null(STDIN_FILENO);
    struct session_request *request = &l->s->request;
    request->streams[0] = reads ? SESSION_STREAM_SENT : SESSION_STREAM_NULL;
    request->streams[1] = request->streams[2] = SESSION_STREAM_SENT;
    l->input_open = reads;
    return start_guarded(l, NULL, 0, err);
}

static int start_plain(struct loop *l, struct err *err) {
    int fds[3];
    uint32_t count = 0;
    bool ours[3] = {false};
    for (int n = 0; n < 3; n++) {
        int fd = -1;
        bool close_it;
        if (plan_stream(l, n, &fd, &close_it, err) < 0)
            return -1;
        if (fd >= 0) {
            ours[count] = close_it;
            fds[count++] = fd;
        }
    }
    int r = start_guarded(l, fds, count, err);
    for (uint32_t i = 0; i < count; i++)
        if (ours[i])
            close(fds[i]);
    return r;
}

static void stop_pumps(struct loop *l) {
    for (int n = 0; n < 3; n++)
        if (l->pumps[n].active)
            pump_close(&l->pumps[n], n == 0 ? l->pumps[n].to : l->pumps[n].from);
}

/* A vm takes no descriptors, and refuses them before anything is started. */
static int start_near(struct loop *l, struct err *err) {
    int r = start_plain(l, err);
    if (r == 0 || err->code != ERR_UNSUPPORTED)
        return r;
    stop_pumps(l);
    l->s->sends = true;
    return start_far(l, err);
}

static void window_size(uint16_t *rows, uint16_t *cols) {
    struct winsize w;
    if (ioctl(STDIN_FILENO, TIOCGWINSZ, &w) == 0 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0) {
        *rows = w.ws_row;
        *cols = w.ws_col;
    }
}

static int start_terminal(struct loop *l, struct err *err) {
    window_size(&l->s->request.rows, &l->s->request.cols);
    l->input_open = l->s->output_open = true;
    if (tcgetattr(STDIN_FILENO, &l->saved) == 0) {
        struct termios raw = l->saved;
        cfmakeraw(&raw);
        l->raw = tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
        l->has_terminal = true;
    }
    return start_guarded(l, NULL, 0, err);
}

static void restore_terminal(struct loop *l) {
    if (l->raw)
        tcsetattr(STDIN_FILENO, TCSANOW, &l->saved);
    l->raw = false;
}

static int open_signals(sigset_t *old) {
    sigset_t set;
    sigemptyset(&set);
    static const int forwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH};
    for (size_t i = 0; i < sizeof(forwarded) / sizeof(*forwarded); i++)
        sigaddset(&set, forwarded[i]);
    sigprocmask(SIG_BLOCK, &set, old);
    signal(SIGPIPE, SIG_IGN);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void forward_signal(struct loop *l) {
    struct signalfd_siginfo info;
    if (read(l->signals, &info, sizeof(info)) != sizeof(info))
        return;
    bool ends = info.ssi_signo != SIGUSR1 && info.ssi_signo != SIGUSR2;
    if (info.ssi_signo == SIGWINCH) {
        uint16_t rows = 0, cols = 0;
        window_size(&rows, &cols);
        if (l->s->request.terminal)
            remote_resize(l->s, rows, cols);
    } else if (l->s->detaches && (info.ssi_signo == SIGHUP || info.ssi_signo == SIGTERM)) {
        l->s->result.end = EXEC_END_DETACHED;
    } else if (l->s->remote->lost) { /* no daemon runs that the signal could be sent to */
        l->s->remote->interrupted |= ends;
    } else if (ends) {
        send_signal(l, info.ssi_signo);
    } else {
        remote_signal(l->s, info.ssi_signo);
    }
}

/* Finds the keys to detach in the input. If they are there, *n becomes the length before them. */
static bool leave_keys_typed(struct loop *l, const char *bytes, size_t *n) {
    uint64_t now = monotonic_ms();
    size_t first = 0;
    for (size_t i = 0, len; i < *n; i += len) {
        enum modes_key key = modes_key_read(bytes + i, *n - i, SESSION_LEAVE_KEY, &len);
        if (key == MODES_KEY_OTHER)
            l->leave_keys = 0;
        if (key != MODES_KEY_PRESSED)
            continue;
        if (l->leave_keys == 0 || now - l->leave_ms > SESSION_LEAVE_MS) {
            l->leave_keys = 0;
            l->leave_ms = now;
            first = i;
        }
        if (++l->leave_keys == SESSION_LEAVE_COUNT) {
            *n = first;
            return true;
        }
    }
    return false;
}

/* Detaches if the user asks for it, or if the terminal was closed. */
static bool is_left(struct loop *l, const char *bytes, size_t *n) {
    if (!l->s->detaches || !l->has_terminal || (*n && !leave_keys_typed(l, bytes, n)))
        return false;
    l->s->result.end = EXEC_END_DETACHED;
    return true;
}

static int type_input(struct loop *l, struct err *err) {
    char bytes[FAR_FEED_MAX];
    ssize_t n = read(STDIN_FILENO, bytes, l->s->request.terminal ? 4096 : sizeof(bytes));
    size_t given = n > 0 ? (size_t)n : 0;
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return 0;
    l->input_open = n > 0;
    if (l->s->aside && l->raw && aside_typed(l->s->aside, bytes, given))
        return 0;
    if (is_left(l, bytes, &given) && !given)
        return 0;
    return l->s->request.terminal ? remote_type(l->s, bytes, given, err)
                                  : far_feed(l->s, bytes, given, err);
}

static int input_taken(struct loop *l, struct err *err) {
    int r = far_fed(l->s, err);
    if (r > 0)
        l->input_open = false;
    return r < 0 ? -1 : 0;
}

static void capture(struct pump *p) {
    size_t room = p->capture->max - p->capture->len, n = p->len < room ? p->len : room;
    if (n < p->len)
        *p->cut = true;
    if (n && !buf_add(p->capture, p->data, n))
        *p->cut = true;
    p->len = 0;
}

/* Reads if the buffer is empty, then writes. Closes the pump at the end of either side. */
static void pump_turn(struct pump *p, bool is_stdin) {
    if (p->at == p->len) {
        ssize_t n = read(p->from, p->data, BLOCK);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) {
            pump_close(p, is_stdin ? p->to : p->from);
            return;
        }
        p->at = 0;
        p->len = (size_t)n;
        if (p->capture) {
            capture(p);
            return;
        }
    }
    ssize_t n = write(p->to, p->data + p->at, p->len - p->at);
    if (n > 0)
        p->at += (size_t)n;
    else if (n < 0 && errno != EAGAIN && errno != EINTR) {
        /* If the reader of our output is gone, close the pipe, so that the command gets SIGPIPE. */
        if (p->lost && errno != EPIPE)
            *p->lost = errno;
        pump_close(p, is_stdin ? p->to : p->from);
    }
}

static short pump_events(const struct pump *p, int *ret_fd) {
    bool full = p->at < p->len;
    *ret_fd = full ? p->to : p->from;
    return full ? POLLOUT : POLLIN;
}

/* True if output must still be read after the end of the command. */
static bool draining(const struct loop *l) {
    if ((!l->s->ends_machine && !l->s->output_ends) || l->s->result.end == EXEC_END_UNHEARD)
        return false;
    return l->pumps[1].active || l->pumps[2].active ||
           (l->s->request.terminal && l->s->output_open);
}

/* ---- Carrel's own text on the terminal ---- */

/* Lets the command draw its screen again: it does so if its window gets another size. */
static void draw_again(struct loop *l) {
    uint16_t rows = 0, cols = 0;
    window_size(&rows, &cols);
    if (rows < 2)
        return;
    remote_resize(l->s, rows - 1, cols);
    usleep(DRAW_MS * 1000);
    remote_resize(l->s, rows, cols);
}

static bool signalled_aside(void *arg) {
    struct loop *l = arg;
    forward_signal(l);
    return session_ended(l->s);
}

static void turn_aside(struct loop *l, bool readable) {
    struct aside *a = l->s->aside;
    const struct aside_terminal t = {
        .saved = &l->saved, .signals = l->signals, .signalled = signalled_aside, .arg = l};
    bool again = aside_turn(a, readable);
    if (aside_is_due(a))
        again |= aside_ask(a, &t);
    if (again && !session_ended(l->s))
        draw_again(l);
}

/* True if the terminal is shared with Carrel's own text now. */
static bool has_aside(const struct loop *l) {
    return l->s->aside && l->raw && !session_ended(l->s) && !l->s->remote->lost;
}

static int turn(struct loop *l, int timeout_ms, struct err *err) {
    const struct remote *r = l->s->remote;
    bool takes_input = l->input_open && !session_ended(l->s) && !r->feeding;
    int aside_ms = has_aside(l) ? aside_wait_ms(l->s->aside) : -1;
    struct pollfd p[8] = {
        {.fd = remote_fd(l->s), .events = POLLIN},
        {.fd = l->signals, .events = POLLIN},
        {.fd = -1},
        {.fd = -1},
        {.fd = -1},
        {.fd = takes_input ? STDIN_FILENO : -1, .events = POLLIN},
        {.fd = r->feeding && r->feed ? http_client_fd(r->feed) : -1, .events = POLLIN},
        {.fd = has_aside(l) ? l->s->aside->fd(l->s->aside->arg) : -1, .events = POLLIN},
    };
    if (aside_ms >= 0 && (timeout_ms < 0 || timeout_ms > aside_ms))
        timeout_ms = aside_ms;
    if (r->lost && (timeout_ms < 0 || timeout_ms > CLIENT_AGAIN_MS))
        timeout_ms = CLIENT_AGAIN_MS;
    for (int n = 0; n < 3; n++)
        if (l->pumps[n].active)
            p[2 + n].events = pump_events(&l->pumps[n], &p[2 + n].fd);
    int ready = poll(p, 8, timeout_ms);
    if (ready < 0)
        return errno == EINTR ? 1 : err_sys(err, "cannot wait for the command");
    if (p[1].revents)
        forward_signal(l);
    for (int n = 0; n < 3; n++)
        if (l->pumps[n].active && p[2 + n].revents)
            pump_turn(&l->pumps[n], n == 0);
    if (p[0].revents && remote_take(l->s, err) < 0)
        return -1;
    if (r->lost)
        return remote_return(l->s, err) < 0 ? -1 : 1;
    if (p[5].revents && !session_ended(l->s) && type_input(l, err) < 0)
        return -1;
    if (p[6].revents && !session_ended(l->s) && input_taken(l, err) < 0)
        return -1;
    if (has_aside(l))
        turn_aside(l, p[7].revents);
    return ready;
}

/* Returns how long to wait for the guest, in ms; -1: without a limit. */
static int patience(const struct loop *l) {
    uint64_t limit = l->s->request.timeout_ms, spent = monotonic_ms() - l->started_ms;
    if (!limit || session_ended(l->s) || l->s->remote->lost)
        return -1;
    if (spent >= limit && spent - limit >= ANSWER_MS)
        return 0;
    uint64_t left = limit - spent + ANSWER_MS;
    return left < INT_MAX ? (int)left : INT_MAX;
}

/* True if our own side does not take output, so the guest cannot be blamed for the silence. */
static bool is_full(const struct pump *p) {
    return p->active && p->at < p->len;
}

/* Reads output after the end of the command. A guest that was taken over may hold the pipes open.
 */
static int drain_turn(struct loop *l, struct err *err) {
    bool ours = is_full(&l->pumps[1]) || is_full(&l->pumps[2]);
    int r = turn(l, l->s->output_ends && !ours ? OUTPUT_MS : -1, err);
    if (r != 0)
        return r;
    l->s->lost = ETIMEDOUT;
    for (int n = 1; n < 3; n++)
        if (l->pumps[n].active)
            pump_close(&l->pumps[n], l->pumps[n].from);
    return 0;
}

static int drive(struct loop *l, struct err *err) {
    while (!session_ended(l->s) || draining(l)) {
        int wait = patience(l);
        if ((session_ended(l->s) ? drain_turn(l, err) : turn(l, wait, err)) < 0)
            return -1;
        if (wait == 0 && !session_ended(l->s)) {
            l->s->result =
                (struct session_result){.end = EXEC_END_UNANSWERED,
                                        .status = EXEC_STATUS_TIMEOUT,
                                        .wall_us = (monotonic_ms() - l->started_ms) * 1000};
            return 0;
        }
    }
    /* An older guest leaves the pipes open if background processes have them: read what is there.
     */
    while (l->pumps[1].active || l->pumps[2].active) {
        int r = turn(l, 20, err);
        if (r <= 0)
            return r;
    }
    return 0;
}

int session_run(struct session *s, struct err *err) {
    struct loop l = {.s = s, .started_ms = monotonic_ms()};
    sigset_t old;
    for (int n = 0; n < 3; n++)
        l.pumps[n] = (struct pump){.from = -1, .to = -1};
    l.signals = open_signals(&old);
    if (l.signals < 0)
        return err_sys(err, "cannot receive signals");
    s->sends |= !s->remote->client->local;
    int r = s->request.terminal ? start_terminal(&l, err)
            : s->sends          ? start_far(&l, err)
                                : start_near(&l, err);
    if (r == 0)
        r = drive(&l, err);
    if (s->aside && l.raw && s->result.end == EXEC_END_DETACHED)
        aside_leave(s->aside);
    restore_terminal(&l);
    stop_pumps(&l);
    close(l.signals);
    sigprocmask(SIG_SETMASK, &old, NULL);
    return r;
}
