#include "io/spawn_link.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/lockfile.h"
#include "base/log.h"
#include "base/program_id.h"
#include "io/launch.h"

enum { DEATHS_MAX = 3 }; /* of a spawner that starts, before the host is to blame */
enum { HELLO_S = 5, LEAVE_MS = 30000, BUSY_STEP_US = 20000 };

int spawn_try_connect(const struct place *place, struct err *err) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd DEFER_CLOSE = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_sys(err, "cannot create a socket");
    if (snprintf(a.sun_path, sizeof(a.sun_path), "%s/spawn.sock", place->run) >=
        (int)sizeof(a.sun_path)) {
        err_set(err, ERR_INVALID, "the path of the spawner's socket below '%s' is too long",
                place->run);
        return err_remedy(err, "set CARREL_RUN to a shorter path");
    }
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
        bool absent = errno == ENOENT || errno == ECONNREFUSED;
        err_sys(err, "cannot connect to the spawner at '%s'", a.sun_path);
        if (absent && err)
            err->code = ERR_NOT_FOUND;
        return -1;
    }
    return TAKE_FD(fd);
}

static int spawn_link_start(const struct place *place, void (**waiting)(void), struct err *err) {
    char guest[PLACE_SIZE + 16], archiver[PLACE_SIZE + 16], worker[PLACE_SIZE + 16];
    const char *const args[] = {"--guest", guest, "--archiver", archiver, "--worker", worker, NULL};
    snprintf(worker, sizeof(worker), "%s/carrel-cell", place->libexec);
    snprintf(guest, sizeof(guest), "%s/carrel-guest", place->libexec);
    snprintf(archiver, sizeof(archiver), "%s/carrel-image", place->libexec);
    return launch(place, "carrel-spawn", "spawn.log", args, waiting, err);
}

int spawn_connect(const struct place *place, void (*waiting)(void), struct err *err) {
    int deaths = 0;
    uint64_t end_ms = monotonic_ms() + LEAVE_MS;
    /*
     * A spawner that is exiting holds its lock until it has left, and one that somebody else starts
     * has no socket yet: try again. One that was killed while it started is started again, too.
     */
    do {
        int fd = spawn_try_connect(place, err);
        if (fd >= 0 || !err || err->code != ERR_NOT_FOUND)
            return fd;
        if (spawn_link_start(place, &waiting, err) < 0) {
            bool died = err->code == ERR_INTERNAL && ++deaths < DEATHS_MAX;
            if (err->code != ERR_BUSY && !died)
                return err_wrap(err,
                                "cannot start the spawner (carrel-spawn, which creates machines)");
            usleep(BUSY_STEP_US);
        }
    } while (monotonic_ms() < end_ms);
    return -1;
}

/*
 * Sends a request and reads its answer, which must have the matching type. An ERROR answer becomes
 * *err.
 */
static int spawn_link_ask(int link, struct plan_message *m, const int *fds, size_t nfds,
                          struct fd_message *got, struct err *err) {
    enum plan_type want = plan_reply(m->type);
    char packet[PLAN_MAX_BYTES];
    size_t n = plan_encode(m, packet);
    int r = send_fds(link, packet, n, fds, nfds);
    if (r == 0)
        r = recv_fds(link, packet, sizeof(packet), got);
    if (r < 0 || got->len == 0) {
        errno = r < 0 ? -r : ECONNRESET;
        return err_sys(err, "cannot send a request to the spawner");
    }
    if (plan_decode(packet, got->len, m, err) < 0)
        return err_wrap(err, "cannot read the answer of the spawner");
    if (m->type == PLAN_ERROR) {
        if (err)
            *err = m->error;
        return -1;
    }
    if (m->type != want)
        return err_set(err, ERR_INTERNAL, "unexpected answer %d from the spawner", m->type);
    return 0;
}

static void limit_waiting(int link, time_t seconds) {
    setsockopt(link, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){.tv_sec = seconds},
               sizeof(struct timeval));
}

/*
 * False if the spawner is another version of the program. A spawner that does not answer counts as
 * current: the next request reports the error.
 */
static bool is_current(const struct place *place, int link) {
    struct fd_message got DEFER(fd_message_close) = {0};
    struct plan_message m = {.type = PLAN_HELLO};
    char path[PLACE_SIZE + 16], wanted[PROGRAM_ID_SIZE];
    struct err err;
    snprintf(path, sizeof(path), "%s/carrel-spawn", place->libexec);
    if (program_id(path, wanted) < 0)
        return true;
    limit_waiting(link, HELLO_S);
    int r = spawn_link_ask(link, &m, NULL, 0, &got, &err);
    limit_waiting(link, 0);
    return r < 0 ? !got.len : strcmp(m.text, wanted) == 0;
}

/*
 * A spawner uses the images and disks of its own store. Older spawners do not name their store and
 * count as ours.
 */
static bool is_of_another_store(const struct place *place) {
    char path[PLACE_SIZE + 16];
    struct lock_holder spawner;
    struct stat its, ours;
    snprintf(path, sizeof(path), "%s/spawn.lock", place->run);
    if (lockfile_read(path, &spawner) < 0 || !spawner.words[0] ||
        strcmp(spawner.words, place->home) == 0)
        return false;
    return stat(spawner.words, &its) < 0 || stat(place->home, &ours) < 0 ||
           its.st_dev != ours.st_dev || its.st_ino != ours.st_ino;
}

/*
 * Stops a spawner; its boxes continue to run. The signal goes through a pidfd, so that it cannot
 * reach another process.
 */
static int send_away(int link, struct err *err) {
    struct ucred peer;
    socklen_t size = sizeof(peer);
    if (getsockopt(link, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
        return err_sys(err, "cannot identify the spawner process");
    int pid DEFER_CLOSE = pidfd_open(peer.pid, 0);
    struct pollfd connection = {.fd = link}, end = {.fd = pid, .events = POLLIN};
    if (pid < 0)
        return errno == ESRCH ? 0 : err_sys(err, "cannot identify the spawner process");
    if (poll(&connection, 1, 0) != 0) /* the spawner exited; its pid may be reused */
        return 0;
    if (pidfd_send_signal(pid, SIGTERM, NULL, 0) < 0 && errno != ESRCH)
        return err_sys(err, "cannot stop a spawner of another version or store");
    return poll(&end, 1, LEAVE_MS) > 0
               ? 0
               : err_set(err, ERR_TIMEOUT,
                         "the running spawner, of another version or store, does not stop");
}

int spawn_connect_current(const struct place *place, struct err *err) {
    int fd DEFER_CLOSE = spawn_connect(place, NULL, err);
    if (fd < 0 || (!is_of_another_store(place) && is_current(place, fd)))
        return TAKE_FD(fd);
    log_line(LOG_WARN, "machine", "replacing a spawner of another version or store");
    if (send_away(fd, err) < 0)
        return -1;
    return spawn_connect(place, NULL, err);
}

int spawn_create(int link, struct plan_message *m, const int *fds, int *ret_guest, int *ret_uppers,
                 struct err *err) {
    struct fd_message got DEFER(fd_message_close) = {0};
    struct plan plan = m->plan;
    m->type = PLAN_CREATE;
    if (spawn_link_ask(link, m, fds, plan.grant_count, &got, err) < 0)
        return -1;
    if (got.nfds < 1)
        return err_set(err, ERR_INTERNAL, "the spawner sent no connection to the guest");
    *ret_guest = TAKE_FD(got.fds[0]);
    size_t next = 1;
    for (size_t i = 0; i < plan.grant_count; i++) {
        bool cow = plan.grants[i].mode == PLAN_GRANT_COW && next < got.nfds;
        ret_uppers[i] = cow ? TAKE_FD(got.fds[next]) : -1;
        next += cow;
    }
    return 0;
}

static int ask_about(int link, const char *id, enum plan_type type, struct plan_message *m,
                     struct err *err) {
    struct fd_message got DEFER(fd_message_close) = {0};
    *m = (struct plan_message){.type = type};
    snprintf(m->plan.id, sizeof(m->plan.id), "%s", id ? id : "");
    return spawn_link_ask(link, m, NULL, 0, &got, err);
}

int spawn_facts(int link, const char *id, struct plan_facts *ret, struct err *err) {
    struct plan_message m;
    if (ask_about(link, id, PLAN_FACTS, &m, err) < 0)
        return -1;
    *ret = m.facts;
    return 0;
}

int spawn_destroy(int link, const char *id, struct err *err) {
    struct plan_message m;
    return ask_about(link, id, PLAN_DESTROY, &m, err);
}

int spawn_status(int link, char *json, size_t size, struct err *err) {
    struct plan_message m;
    if (ask_about(link, NULL, PLAN_STATUS, &m, err) < 0)
        return -1;
    snprintf(json, size, "%s", m.text);
    return 0;
}

int spawn_stop(int link, struct err *err) {
    struct plan_message m;
    return ask_about(link, NULL, PLAN_STOP, &m, err);
}
