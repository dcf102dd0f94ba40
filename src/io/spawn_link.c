#include "io/spawn_link.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"

enum { START_MS = 60000, SOON_MS = 700 };

int spawn_try_connect(const struct place *place, struct err *err) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd DEFER_CLOSE = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_sys(err, "socket");
    if (snprintf(a.sun_path, sizeof(a.sun_path), "%s/spawn.sock", place->run) >=
        (int)sizeof(a.sun_path)) {
        err_set(err, ERR_INVALID, "'%s' is too long for a socket", place->run);
        return err_remedy(err, "set CARREL_RUN to a shorter path");
    }
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
        bool absent = errno == ENOENT || errno == ECONNREFUSED;
        err_sys(err, "connect to '%s'", a.sun_path);
        if (absent && err)
            err->code = ERR_NOT_FOUND;
        return -1;
    }
    return TAKE_FD(fd);
}

/* In the child: detached from us, its log in the run directory. */
static void become_spawner(const struct place *place, int ready) {
    char program[PLACE_SIZE + 16], guest[PLACE_SIZE + 16], log[PLACE_SIZE + 16], fd[16];
    snprintf(program, sizeof(program), "%s/carrel-spawn", place->libexec);
    snprintf(guest, sizeof(guest), "%s/carrel-guest", place->libexec);
    snprintf(log, sizeof(log), "%s/spawn.log", place->run);
    snprintf(fd, sizeof(fd), "%d", ready);
    setsid();
    if (chdir("/") < 0)
        _exit(127);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int out = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    dup2(out < 0 ? null : out, STDERR_FILENO);
    fcntl(ready, F_SETFD, 0);
    execl(program, "carrel-spawn", "--run", place->run, "--home", place->home, "--guest", guest,
          "--ready-fd", fd, (char *)NULL);
    _exit(127);
}

static int make_dirs(const char *path, struct err *err) {
    char part[PLACE_SIZE];
    snprintf(part, sizeof(part), "%s", path);
    for (char *slash = part + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        if (mkdir(part, 0755) < 0 && errno != EEXIST && errno != EROFS)
            return err_sys(err, "make '%s'", part);
        *slash = '/';
    }
    struct stat st;
    if ((mkdir(path, 0700) < 0 && errno != EEXIST) || lstat(path, &st) < 0)
        return err_sys(err, "make '%s'", path);
    /* In /tmp somebody else may have been there first. */
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 022)) {
        err_set(err, ERR_DENIED, "'%s' is not a private directory of this user", path);
        return err_remedy(err, "set CARREL_RUN and CARREL_HOME to directories of your own");
    }
    return 0;
}

/* One byte 'r', or 'E' and the reason; nothing at all if it died without a word. */
static int await(int ready, void (*waiting)(void), struct err *err) {
    char text[600] = "";
    size_t n = 0;
    for (int left = START_MS; n < sizeof(text) - 1;) {
        struct pollfd p = {.fd = ready, .events = POLLIN};
        int slice = waiting ? SOON_MS : left;
        int r = poll(&p, 1, slice);
        if (r == 0) {
            if (waiting)
                waiting();
            waiting = NULL;
            if ((left -= slice) <= 0)
                return err_set(err, ERR_TIMEOUT, "the spawner did not start in time");
            continue;
        }
        ssize_t got = read(ready, text + n, sizeof(text) - 1 - n);
        if (got <= 0)
            break;
        n += (size_t)got;
        if (text[0] == 'r')
            return 0;
    }
    if (text[0] != 'E')
        return err_set(err, ERR_INTERNAL, "the spawner ended before it was ready");
    char *remedy = strchr(text, '\n');
    if (remedy)
        *remedy++ = '\0';
    err_set(err, ERR_UNSUPPORTED, "%s", text + 1);
    return err_remedy(err, "%s", remedy ? remedy : "");
}

static int start(const struct place *place, void (*waiting)(void), struct err *err) {
    int ready[2];
    if (make_dirs(place->run, err) < 0 || make_dirs(place->home, err) < 0)
        return -1;
    if (pipe2(ready, O_CLOEXEC) < 0)
        return err_sys(err, "pipe");
    pid_t pid = fork();
    if (pid == 0) {
        /* A second fork: the spawner is nobody's child and nobody's zombie. */
        if (fork() == 0)
            become_spawner(place, ready[1]);
        _exit(0);
    }
    close(ready[1]);
    int end DEFER_CLOSE = ready[0];
    if (pid < 0)
        return err_sys(err, "fork");
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return await(end, waiting, err);
}

int spawn_connect(const struct place *place, void (*waiting)(void), struct err *err) {
    /* One that is about to leave may hold the lock a moment longer: ask again. */
    for (int attempt = 0; attempt < 50; attempt++) {
        int fd = spawn_try_connect(place, err);
        if (fd >= 0 || !err || err->code != ERR_NOT_FOUND)
            return fd;
        if (start(place, waiting, err) < 0) {
            if (err->code != ERR_UNSUPPORTED || !strstr(err->text, "spawn.lock"))
                return err_wrap(err, "start the spawner");
            usleep(20000);
        }
    }
    return -1;
}

/* One request, one answer of the wanted type; an ERROR answer becomes err. */
static int ask(int link, struct plan_message *m, const int *fds, size_t nfds, enum plan_type want,
               struct fd_message *got, struct err *err) {
    char packet[PLAN_MAX_BYTES];
    size_t n = plan_encode(m, packet);
    int r = send_fds(link, packet, n, fds, nfds);
    if (r == 0)
        r = recv_fds(link, packet, sizeof(packet), got);
    if (r < 0 || got->len == 0) {
        errno = r < 0 ? -r : ECONNRESET;
        return err_sys(err, "talk to the spawner");
    }
    if (plan_decode(packet, got->len, m, err) < 0)
        return err_wrap(err, "answer of the spawner");
    if (m->type == PLAN_ERROR) {
        if (err)
            *err = m->error;
        return -1;
    }
    if (m->type != want)
        return err_set(err, ERR_INTERNAL, "the spawner answered with %d", m->type);
    return 0;
}

int spawn_create(int link, struct plan_message *m, const int *fds, int *ret_guest, int *ret_uppers,
                 struct err *err) {
    struct fd_message got DEFER(fd_message_close) = {0};
    struct plan plan = m->plan;
    m->type = PLAN_CREATE;
    if (ask(link, m, fds, plan.grant_count, PLAN_CREATED, &got, err) < 0)
        return -1;
    if (got.nfds < 1)
        return err_set(err, ERR_INTERNAL, "the spawner sent no connection");
    *ret_guest = TAKE_FD(got.fds[0]);
    size_t next = 1;
    for (size_t i = 0; i < plan.grant_count; i++) {
        bool cow = plan.grants[i].mode == PLAN_GRANT_COW && next < got.nfds;
        ret_uppers[i] = cow ? TAKE_FD(got.fds[next]) : -1;
        next += cow;
    }
    return 0;
}

static int ask_about(int link, const char *id, enum plan_type type, enum plan_type want,
                     struct plan_message *m, struct err *err) {
    struct fd_message got DEFER(fd_message_close) = {0};
    *m = (struct plan_message){.type = type};
    snprintf(m->plan.id, sizeof(m->plan.id), "%s", id ? id : "");
    return ask(link, m, NULL, 0, want, &got, err);
}

int spawn_facts(int link, const char *id, struct plan_facts *ret, struct err *err) {
    struct plan_message m;
    if (ask_about(link, id, PLAN_FACTS, PLAN_FACTS_ARE, &m, err) < 0)
        return -1;
    *ret = m.facts;
    return 0;
}

int spawn_destroy(int link, const char *id, struct err *err) {
    struct plan_message m;
    return ask_about(link, id, PLAN_DESTROY, PLAN_DONE, &m, err);
}

int spawn_status(int link, char *json, size_t size, struct err *err) {
    struct plan_message m;
    if (ask_about(link, NULL, PLAN_STATUS, PLAN_TEXT, &m, err) < 0)
        return -1;
    snprintf(json, size, "%s", m.text);
    return 0;
}

int spawn_stop(int link, struct err *err) {
    struct plan_message m;
    return ask_about(link, NULL, PLAN_STOP, PLAN_DONE, &m, err);
}
