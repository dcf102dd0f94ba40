#include "cli/text/aside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/fdio.h"

/*
 * LOOK_MS: between two counts while nothing waits, and while something waits or no event can come.
 * BETWEEN_MS: how long to wait for the end of a sequence of the command. QUIET_MS: input that comes
 * earlier is not an answer.
 */
enum {
    IDLE_LOOK_MS = 30000,
    BUSY_LOOK_MS = 2000,
    BETWEEN_MS = 300,
    QUIET_MS = 300,
    QUIET_MAX_MS = 5000,
    LINE_SIZE = 4096,
};

void aside_output(struct aside *a, const char *bytes, size_t n) {
    modes_feed(&a->modes, bytes, n);
}

bool aside_typed(struct aside *a, const char *bytes, size_t n) {
    size_t len;
    if (!n || modes_key_read(bytes, n, ASIDE_KEY, &len) != MODES_KEY_PRESSED || len != n)
        return false;
    a->is_wanted = true;
    a->wanted_ms = monotonic_ms();
    return true;
}

int aside_wait_ms(struct aside *a) {
    uint64_t now = monotonic_ms();
    if (a->fd(a->arg) < 0 && a->next_ms > now + BUSY_LOOK_MS)
        a->next_ms = now + BUSY_LOOK_MS;
    uint64_t until = a->is_wanted ? a->wanted_ms + BETWEEN_MS : a->next_ms;
    return until <= now ? 0 : (int)(until - now);
}

bool aside_is_due(const struct aside *a) {
    return a->is_wanted &&
           (modes_is_between(&a->modes) || monotonic_ms() - a->wanted_ms >= BETWEEN_MS);
}

/* ---- the notice ---- */

static bool is_dumb(void) {
    const char *term = getenv("TERM");
    return !term || !*term || strcmp(term, "dumb") == 0;
}

static size_t columns(void) {
    struct winsize w;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 1 ? w.ws_col - 1u : 79;
}

/* Rings and tells the terminal program, which can show it outside of the window (OSC 9). */
static void aside_ring(void) {
    static const char ring[] = "\a\x1b]9;carrel: something waits for your answer\a";
    if (!is_dumb())
        write_all(STDOUT_FILENO, ring, sizeof(ring) - 1);
}

/* The command may draw over the line, so it is written again while something waits. */
static void aside_notice(const struct aside *a, bool is_new) {
    struct buf line DEFER(buf_done) = BUF(MODES_WRITTEN_MAX);
    char text[128];
    snprintf(text, sizeof(text), " carrel: %zu %s for your answer: press " ASIDE_KEY_NAME " ",
             a->waiting, a->waiting == 1 ? "request waits" : "requests wait");
    if (is_new)
        aside_ring();
    if (!is_dumb())
        modes_put_line(text, columns(), &line);
    else if (!is_new || !buf_addf(&line, "\r\n%s\r\n", text))
        return;
    write_all(STDOUT_FILENO, line.data, line.len);
}

bool aside_turn(struct aside *a, bool readable) {
    if (!readable && monotonic_ms() < a->next_ms)
        return false;
    size_t before = a->waiting, now = a->count(a->arg);
    bool can_write = modes_is_between(&a->modes);
    a->next_ms = monotonic_ms() + (!now ? IDLE_LOOK_MS : can_write ? BUSY_LOOK_MS : BETWEEN_MS);
    if (now && !can_write)
        return false;
    a->waiting = now;
    if (now)
        aside_notice(a, now > before);
    return before && !now && modes_is_alternate(&a->modes);
}

/* ---- questions ---- */

/* Lines with echo. Ctrl-C and the key end a line, so they cannot end this program or the command.
 */
static void aside_cooked(const struct termios *saved) {
    struct termios t = *saved;
    t.c_lflag &= ~(tcflag_t)ISIG;
    t.c_lflag |= ICANON | ECHO;
    t.c_cc[VEOL] = 3;
    t.c_cc[VEOL2] = ASIDE_KEY & 0x1f;
    tcsetattr(STDIN_FILENO, TCSAFLUSH, &t);
}

/* Waits until no input has come for a moment, and drops what came: a paste cannot answer. */
static void aside_quiet(void) {
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    uint64_t until = monotonic_ms() + QUIET_MAX_MS;
    char bytes[4096];
    while (monotonic_ms() < until && poll(&p, 1, QUIET_MS) > 0)
        if (read(STDIN_FILENO, bytes, sizeof(bytes)) <= 0)
            return;
}

static char *aside_line(void *arg) {
    const struct aside_terminal *t = arg;
    struct pollfd p[2] = {{.fd = STDIN_FILENO, .events = POLLIN},
                          {.fd = t->signals, .events = POLLIN}};
    char line[LINE_SIZE]; /* a terminal delivers one line at a time, and no longer one */
    fflush(stdout);
    while (poll(p, 2, -1) >= 0 && !p[0].revents)
        if (p[1].revents && t->signalled(t->arg))
            return NULL;
    ssize_t n = read(STDIN_FILENO, line, sizeof(line));
    return n > 0 && line[n - 1] == '\n' ? xstrndup(line, (size_t)n - 1) : NULL;
}

bool aside_ask(struct aside *a, const struct aside_terminal *t) {
    struct buf away DEFER(buf_done) = BUF(MODES_WRITTEN_MAX),
                    back DEFER(buf_done) = BUF(MODES_WRITTEN_MAX);
    struct termios raw;
    bool has = tcgetattr(STDIN_FILENO, &raw) == 0;
    a->is_wanted = false;
    if (is_dumb()) {
        write_all(STDOUT_FILENO, "\r\n", 2);
    } else {
        modes_put_away(&a->modes, &away);
        write_all(STDOUT_FILENO, away.data, away.len);
    }
    aside_quiet();
    if (has)
        aside_cooked(t->saved);
    struct aside_terminal own = *t;
    a->ask(a->arg, aside_line, &own);
    fflush(stdout);
    fflush(stderr);
    if (has)
        tcsetattr(STDIN_FILENO, TCSAFLUSH, &raw);
    if (!is_dumb()) {
        modes_put_back(&a->modes, &back);
        write_all(STDOUT_FILENO, back.data, back.len);
    }
    a->next_ms = 0;
    return modes_is_alternate(&a->modes);
}

void aside_leave(const struct aside *a) {
    struct buf first DEFER(buf_done) = BUF(MODES_WRITTEN_MAX);
    if (is_dumb())
        return;
    modes_put_first(&a->modes, &first);
    write_all(STDOUT_FILENO, first.data, first.len);
}
