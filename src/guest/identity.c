#include "guest/identity.h"

#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/time.h>

#include "guest/conn.h"
#include "guest/sys.h"

static volatile int64_t deadline_ns;

/* Anyone inside may send SIGALRM to pid 1; only the clock decides. */
static void on_alarm(int number) {
    (void)number;
    if (deadline_ns && now_ns() >= deadline_ns)
        _exit(0);
}

int identity_set_deadline(uint64_t in_ms) {
    if (in_ms > INT32_MAX * 1000ull) {
        errno = EINVAL;
        return -1;
    }
    struct sigaction act = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &act, NULL);
    deadline_ns = in_ms ? now_ns() + (int64_t)in_ms * 1000000 : 0;
    /* The interval repeats, in case a timer fires a tick before the clock says so. */
    struct itimerval timer = {
        .it_value = {(time_t)(in_ms / 1000), (suseconds_t)(in_ms % 1000) * 1000},
        .it_interval = {0, in_ms ? 10000 : 0}};
    return setitimer(ITIMER_REAL, &timer, NULL);
}

/* A link in place of the file would make us write elsewhere, so a fresh file replaces it. */
static bool put_file(const char *path, const char *fresh, const struct msg_str *text) {
    unlink(fresh);
    int fd = sys_open(AT_FDCWD, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0644);
    if (fd < 0)
        return false;
    bool ok = fchmod(fd, 0644) == 0 && write(fd, text->s, text->n) == (ssize_t)text->n &&
              write(fd, "\n", 1) == 1;
    close(fd);
    return ok && rename(fresh, path) == 0;
}

static bool stir(const struct msg_bytes *seed) {
    int fd = open("/dev/urandom", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool ok = write(fd, seed->p, seed->n) == (ssize_t)seed->n;
    close(fd);
    return ok;
}

static bool is_machine_id(const struct msg_str *id) {
    if (id->n != 32)
        return false;
    for (uint32_t i = 0; i < id->n; i++)
        if (!((id->s[i] >= '0' && id->s[i] <= '9') || (id->s[i] >= 'a' && id->s[i] <= 'f')))
            return false;
    return true;
}

enum serve_result identity_become(struct guest *g, struct conn *c, const struct frame *f) {
    (void)g;
    struct msg_clone_id m;
    SERVE_DECODE(f, &m);
    if (m.hostname.n > 64 || m.seed.n > 64 || (m.machine_id.n && !is_machine_id(&m.machine_id)))
        return SERVE_BROKEN;
    uint64_t done = 0;
    if (m.hostname.n && put_file("/etc/hostname", "/etc/.hostname.carrel", &m.hostname) &&
        sethostname(m.hostname.s, m.hostname.n) == 0)
        done |= 1;
    if (m.machine_id.n && put_file("/etc/machine-id", "/etc/.machine-id.carrel", &m.machine_id))
        done |= 2;
    if (m.seed.n && stir(&m.seed))
        done |= 4;
    conn_ok(c, f, done);
    return SERVE_DONE;
}
