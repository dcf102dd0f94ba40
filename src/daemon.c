/*
 * carrel-daemon: run by `carrel serve`, or started by the command line on first use. This file only
 * connects the modules.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <grp.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/api.h"
#include "api/e2b/e2b.h"
#include "base/alloc.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/disks.h"
#include "base/fs/lockfile.h"
#include "base/log.h"
#include "base/parse.h"
#include "io/launch.h"
#include "io/loop.h"
#include "io/place.h"
#include "io/system_log.h"
#include "operator/operator.h"
#include "service/exec/dumps.h"
#include "service/notify.h"
#include "service/service.h"
#include "service/tickets.h"
#include "store/accounts.h"
#include "store/conf.h"
#include "store/db.h"

enum { IDLE_LOOK_MS = 1000, WORKERS = 4 };

struct daemon {
    struct place place;
    struct conf conf;
    const char *listen; /* overrides carrel.conf */
    uint64_t idle_ms;   /* exit after this long without work; 0: never */
    int ready;
    struct loop *loop;
    struct store *store;
    struct service *service;
    struct runs *runs;
    struct api *api;
    struct notify *notify;
    struct loop_timer *idle;
    uint64_t requests;       /* requests when look_idle() last ran */
    uint64_t quiet_since_ms; /* since when the daemon is idle; 0: it does not listen yet */
    struct err failed;
    bool has_failed;
    int lock;     /* lock of the run directory: its holder owns carrel.sock and carrel.pid */
    bool has_pid; /* carrel.pid was written */
};

static const struct option long_options[] = {
    {"run", required_argument, NULL, 'r'},
    {"home", required_argument, NULL, 'h'},
    {"ready-fd", required_argument, NULL, 'f'},
    {"idle-ms", required_argument, NULL, 'i'},
    {"listen", required_argument, NULL, 'l'},
    {"conf", required_argument, NULL, 'c'},
    {NULL, 0, NULL, 0},
};

static int read_options(int argc, char **argv, struct daemon *d, const char **conf,
                        struct err *err) {
    uint64_t n;
    for (int c; (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        switch (c) {
        case 'r':
            setenv("CARREL_RUN", optarg, 1);
            break;
        case 'h':
            setenv("CARREL_HOME", optarg, 1);
            break;
        case 'f':
            if (parse_u64(optarg, 0, INT_MAX, &n, err) < 0)
                return -1;
            d->ready = (int)n;
            fcntl(d->ready, F_SETFD, FD_CLOEXEC);
            break;
        case 'i':
            if (parse_u64(optarg, 0, 86400000, &d->idle_ms, err) < 0)
                return -1;
            break;
        case 'l':
            d->listen = optarg;
            break;
        case 'c':
            *conf = optarg;
            break;
        default:
            err_set(err, ERR_INVALID, "invalid options of carrel-daemon");
            return err_remedy(err, "start the daemon with carrel serve (see carrel serve --help)");
        }
    }
    return 0;
}

/* The absolute path of a file named from the current directory. */
static char *conf_beside(const char *path) {
    char *here DEFER_FREE = getcwd(NULL, 0);
    return xformat("%s/%s", here ? here : "", path);
}

/* Reads carrel.conf: the file `named`, else the one in /etc for root, else the one of the user. */
static int read_conf(struct daemon *d, const char *named, struct err *err) {
    char path[PLACE_SIZE];
    const char *base = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    if (named)
        snprintf(path, sizeof(path), "%s", named);
    else if (geteuid() == 0)
        snprintf(path, sizeof(path), "/etc/carrel/carrel.conf");
    else if (base && *base == '/')
        snprintf(path, sizeof(path), "%s/carrel/carrel.conf", base);
    else
        snprintf(path, sizeof(path), "%s/.config/carrel/carrel.conf", home ? home : "");
    if (conf_read(path, &d->conf, err) < 0)
        return -1;
    char *whole DEFER_FREE = path[0] == '/' ? xstrdup(path) : conf_beside(path);
    if (strlen(whole) < sizeof(d->conf.path))
        snprintf(d->conf.path, sizeof(d->conf.path), "%s", whole);
    return 0;
}

/* The default disk size, from carrel.conf or `carrel store init`. */
static int read_disks(struct daemon *d, struct err *err) {
    struct disks disks;
    int home DEFER_CLOSE = open(d->place.home, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (home < 0)
        return err_sys(err, "cannot open the store directory '%s'", d->place.home);
    if (disks_read(home, &disks, err) < 0)
        return -1;
    if (!d->conf.disk_bytes)
        d->conf.disk_bytes = disks.bytes;
    return 0;
}

/* ---- signed journal heads ---- */

/* Signed heads of the journal (number and hash of a record) also go to the system log, where the
 * daemon cannot change them later. */
static void head_signed(void *arg, const struct journal_head *head) {
    char text[JOURNAL_HEAD_TEXT], line[JOURNAL_HEAD_TEXT + 16];
    (void)arg;
    journal_head_text(head, text);
    snprintf(line, sizeof(line), "journal head %s", text);
    system_log_line(line);
}

/* ---- listening ---- */

/* A run directory has one daemon, whatever its store: two would fight over socket and boxes. */
static int lock_run(struct daemon *d, struct err *err) {
    char path[PLACE_SIZE + 16];
    struct lock_holder other;
    bool is_taken;
    snprintf(path, sizeof(path), "%s/daemon.lock", d->place.run);
    d->lock = lockfile_take(path, d->place.home, &is_taken, &other, err);
    if (!is_taken)
        return d->lock < 0 ? -1 : 0;
    err_set(err, ERR_BUSY, "another daemon (pid %s, store '%s') uses the run directory '%s'",
            other.pid, other.words, d->place.run);
    return err_remedy(err, "stop that daemon, or set another CARREL_RUN");
}

static int write_pid(const struct daemon *d, struct err *err) {
    char path[PLACE_SIZE + 16], text[16];
    snprintf(path, sizeof(path), "%s/carrel.pid", d->place.run);
    int fd DEFER_CLOSE = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    int n = snprintf(text, sizeof(text), "%d\n", (int)getpid());
    if (fd < 0 || fchmod(fd, 0644) < 0 || write(fd, text, (size_t)n) != n)
        return err_sys(err, "cannot write the pid of the daemon to '%s'", path);
    return 0;
}

/*
 * Marks that root runs a daemon for all users. The mark stays until the host reboots: a user who
 * gets this daemon also gets it after a restart. A daemon that a command of root started ends soon,
 * and one in another run directory is not looked for: they leave no mark.
 */
static int mark_shared(const struct daemon *d, struct err *err) {
    if (d->idle_ms || strcmp(d->place.run, PLACE_SHARED_RUN) != 0)
        return 0;
    int fd DEFER_CLOSE = open(PLACE_SHARED_MARK, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    return fd < 0 ? err_sys(err, "cannot create file '%s'", PLACE_SHARED_MARK) : 0;
}

static bool is_loopback(const char *host) {
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 ||
           strcmp(host, "localhost") == 0;
}

/* Listening beyond this host requires that a token exists. */
static int may_listen(struct daemon *d, const char *host, struct err *err) {
    struct token_list tokens DEFER(token_list_done) = {0};
    if (is_loopback(host))
        return 0;
    if (store_token_list(d->store, NULL, &tokens, err) < 0)
        return -1;
    for (size_t i = 0; i < tokens.count; i++)
        if (!tokens.rows[i].revoked_ms)
            return 0;
    err_set(err, ERR_DENIED, "address '%s' is not a loopback address, and no token exists yet",
            host);
    return err_remedy(err, "create a token first: carrel token new");
}

/* Nobody connects to a wildcard address, so the URL names this host. */
static void tell_address(struct daemon *d, const char *host, uint16_t port) {
    char url[128], path[PLACE_SIZE + 16];
    bool is_ipv6 = strchr(host, ':') != NULL;
    if (strcmp(host, "0.0.0.0") == 0)
        host = "127.0.0.1";
    else if (strcmp(host, "::") == 0)
        host = "::1";
    snprintf(url, sizeof(url), is_ipv6 ? "http://[%s]:%u" : "http://%s:%u", host, port);
    snprintf(path, sizeof(path), "%s/carrel.sock", d->place.run);
    service_set_address(d->service, port ? url : "", path);
}

static int listen_tcp(struct daemon *d, const char *where, struct err *err) {
    char host[64];
    uint64_t port;
    const char *colon = strrchr(where, ':');
    size_t n = colon ? (size_t)(colon - where) : 0;
    if (n >= 2 && where[0] == '[' && where[n - 1] == ']') {
        where++;
        n -= 2;
    }
    if (!colon || !n || n >= sizeof(host) || parse_u64(colon + 1, 0, 65535, &port, NULL) < 0) {
        err_set(err, ERR_INVALID, "cannot listen on '%s': not an address and port", where);
        return err_remedy(err, "write ADDRESS:PORT, such as 127.0.0.1:7070");
    }
    snprintf(host, sizeof(host), "%.*s", (int)n, where);
    uint16_t bound;
    if (may_listen(d, host, err) < 0 ||
        api_listen_tcp(d->api, strcmp(host, "localhost") == 0 ? "127.0.0.1" : host, (uint16_t)port,
                       &bound, err) < 0)
        return err_wrap(err, "cannot listen on '%s'", where);
    log_line(LOG_NOTE, "daemon", "listening address=%s port=%u", host, bound);
    tell_address(d, host, bound);
    return 0;
}

/* Who may connect to root's daemon, which keeps the machines of each user apart: every user, or
 * the members of the group of carrel.conf. */
static int socket_group(const struct daemon *d, gid_t *ret, struct err *err) {
    *ret = (gid_t)-1;
    if (!d->conf.group[0] || geteuid() != 0)
        return 0;
    const struct group *g = getgrnam(d->conf.group);
    if (!g) {
        err_set(err, ERR_INVALID, "[daemon] group: this host has no group '%s'", d->conf.group);
        return err_remedy(err, "create it with groupadd --system %s, or correct carrel.conf",
                          d->conf.group);
    }
    *ret = g->gr_gid;
    return 0;
}

static int listen_unix(struct daemon *d, struct err *err) {
    char path[PLACE_SIZE + 16];
    gid_t group;
    if (socket_group(d, &group, err) < 0)
        return -1;
    bool grouped = group != (gid_t)-1;
    snprintf(path, sizeof(path), "%s/carrel.sock", d->place.run);
    if (api_listen_unix(d->api, path, geteuid() != 0 ? 0600 : grouped ? 0660 : 0666, err) < 0)
        return -1;
    if (grouped && chown(path, (uid_t)-1, group) < 0)
        return err_sys(err, "cannot give socket '%s' to group '%s'", path, d->conf.group);
    return 0;
}

/* Programs that use E2B's SDK have keys of this daemon: they may connect at any time. */
static bool has_keys(struct daemon *d) {
    struct token_list tokens DEFER(token_list_done) = {0};
    if (store_token_list(d->store, NULL, &tokens, NULL) < 0)
        return false;
    for (size_t i = 0; i < tokens.count; i++)
        if (!tokens.rows[i].revoked_ms && strcmp(tokens.rows[i].note, E2B_NOTE) == 0)
            return true;
    return false;
}

static int listen_all(struct daemon *d, struct err *err) {
    bool for_all = geteuid() == 0;
    const char *where = d->listen ? d->listen : d->conf.listen;
    /* Mode 0711 lets users reach the socket, but not list the run directory. */
    if (for_all && chmod(d->place.run, 0711) < 0)
        return err_sys(err, "cannot let all users enter run directory '%s'", d->place.run);
    if (listen_unix(d, err) < 0)
        return -1;
    tell_address(d, "", 0);
    if (for_all && mark_shared(d, err) < 0)
        return -1;
    d->has_pid = write_pid(d, err) == 0;
    if (!d->has_pid)
        return -1;
    if (where && *where)
        return listen_tcp(d, where, err);
    api_listen_again(d->api, has_keys(d));
    return 0;
}

/* ---- running and stopping ---- */

static void daemon_leave(struct daemon *d, const char *why) {
    log_line(LOG_NOTE, "daemon", "stopping: %s", why);
    loop_stop(d->loop);
}

static void on_signal(void *arg, int signum) {
    (void)signum;
    daemon_leave(arg, "a signal was received");
}

static void on_ready(void *arg) {
    struct daemon *d = arg;
    struct err err;
    if (listen_all(d, &err) < 0) {
        d->failed = err;
        d->has_failed = true;
        loop_stop(d->loop);
        return;
    }
    launch_report(&d->ready, NULL);
    d->quiet_since_ms = loop_now_ms(d->loop);
}

/* The disk failed. Exit without cleanup, because cleanup would write. */
static void on_broken(const struct err *why) {
    log_line(LOG_ERROR, "daemon", "stopping: %s: %s", why->text, why->remedy);
    _exit(1);
}

/* A daemon that was started by a command exits after an idle minute without machines and keys. */
static void look_idle(void *arg) {
    struct daemon *d = arg;
    uint64_t now = loop_now_ms(d->loop);
    bool asked = api_taken(d->api) != d->requests; /* most requests end before the next look */
    if (!d->quiet_since_ms)
        return;
    d->requests = api_taken(d->api);
    if (asked || service_machine_count(d->service) || api_busy(d->api) || operator_busy(d->runs))
        d->quiet_since_ms = now;
    else if (now - d->quiet_since_ms < d->idle_ms)
        return;
    else if (has_keys(d))
        d->quiet_since_ms = now;
    else
        daemon_leave(d, "no machine, client, run or key of E2B is left");
}

static void raise_files(void) {
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < r.rlim_max) {
        r.rlim_cur = r.rlim_max;
        setrlimit(RLIMIT_NOFILE, &r);
    }
}

static int daemon_start(struct daemon *d, struct err *err) {
    const struct store_options store = {
        .home = d->place.home,
        .run = d->place.run,
        .journal = {.segment_bytes = d->conf.journal_segment_bytes, .on_head = head_signed},
        .broken = on_broken,
    };
    loop_set_workers(WORKERS);
    d->loop = lock_run(d, err) < 0 ? NULL : loop_new(err);
    if (!d->loop || loop_on_signal(d->loop, SIGTERM, on_signal, d, err) < 0 ||
        loop_on_signal(d->loop, SIGINT, on_signal, d, err) < 0 ||
        store_open(&store, &d->store, err) < 0 || read_disks(d, err) < 0 ||
        store_holds_charge(d->store, NULL, err) < 0)
        return -1;
    const struct service_options service = {d->loop, d->store, &d->conf, &d->place, on_broken};
    d->service = service_new(&service, on_ready, d, err);
    if (!d->service)
        return -1;
    if (notify_new(d->service, d->loop, &d->conf, &d->notify, err) < 0)
        return -1;
    d->runs = operator_new(d->loop, d->service);
    d->api = api_new(d->loop, d->service, d->runs);
    if (d->idle_ms) {
        d->idle = loop_timer_new(d->loop, look_idle, d);
        loop_timer_start(d->idle, IDLE_LOOK_MS, IDLE_LOOK_MS);
    }
    loop_run(d->loop);
    return d->has_failed ? (*err = d->failed, -1) : 0;
}

static void daemon_finish(struct daemon *d) {
    char path[PLACE_SIZE + 16];
    loop_timer_free(d->idle);
    if (d->service)
        service_leave(d->service);
    api_free(d->api);
    operator_free(d->runs);
    notify_free(d->notify);
    if (d->service)
        dumps_stop(d->service);
    if (d->loop)
        loop_join(d->loop); /* jobs may still use the store */
    service_free(d->service);
    store_closep(&d->store);
    loop_freep(&d->loop);
    snprintf(path, sizeof(path), "%s/carrel.pid", d->place.run);
    if (d->has_pid)
        unlink(path);
    close_fd(&d->lock);
}

int main(int argc, char **argv) {
    struct daemon d = {.ready = -1, .lock = -1};
    const char *conf = NULL;
    struct err err;
    stdio_hold();
    signal(SIGPIPE, SIG_IGN);
    umask(077);
    raise_files();
    int r = read_options(argc, argv, &d, &conf, &err);
    if (r == 0)
        r = place_find(&d.place, &err);
    if (r == 0)
        r = read_conf(&d, conf, &err);
    if (r == 0) {
        r = daemon_start(&d, &err);
        daemon_finish(&d);
    }
    if (r < 0) {
        launch_report(&d.ready, &err);
        log_line(LOG_ERROR, "daemon", "%s%s%s", err.text, err.remedy[0] ? ": " : "", err.remedy);
    }
    return r < 0 ? 1 : 0;
}
