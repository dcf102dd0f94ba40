#include "cli/db.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "cli/safe.h"
#include "cli/table.h"
#include "io/place.h"

enum { FDS = 6 };

/* Runs carrel-sqlite with these descriptors as its own 1, 3, 4 and so on. */
static int run(const char *const *argv, const int fds[FDS], struct err *err) {
    struct place place;
    char path[PLACE_SIZE + 32], why[300];
    static char *const no_env[] = {NULL};
    posix_spawn_file_actions_t actions;
    int status, said DEFER_CLOSE = memfd_create("said", MFD_CLOEXEC);
    pid_t pid;
    if (said < 0 || place_find(&place, err) < 0)
        return said < 0 ? err_sys(err, "make room for an answer") : -1;
    snprintf(path, sizeof(path), "%s/carrel-sqlite", place.libexec);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, said, 2);
    for (int i = 1; i < FDS; i++)
        if (i != 2 && fds[i] >= 0)
            posix_spawn_file_actions_adddup2(&actions, fds[i], i);
    int r = posix_spawn(&pid, path, &actions, NULL, (char *const *)argv, no_env);
    posix_spawn_file_actions_destroy(&actions);
    if (r)
        return err_num(err, -r, "run '%s'", path);
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return err_sys(err, "wait for carrel-sqlite");
    if (status == 0)
        return 0;
    ssize_t n = pread(said, why, sizeof(why) - 1, 0);
    why[n > 0 ? n : 0] = '\0';
    why[strcspn(why, "\n")] = '\0';
    return err_set(err, ERR_INVALID, "%s", why[0] ? why : "carrel-sqlite ended without an answer");
}

int db_copy(const char *path, struct err *err) {
    const char *const argv[] = {"carrel-sqlite", "copy", path, NULL};
    int out = memfd_create("database", MFD_CLOEXEC);
    const int fds[FDS] = {-1, out, -1, -1, -1, -1};
    if (out < 0)
        return err_sys(err, "make room for a database");
    if (run(argv, fds, err) == 0)
        return out;
    close(out);
    return err_wrap(err, "copy database '%s'", path);
}

/* A file of the machine; one that is not there is empty. */
static int download(struct client *c, const char *machine, const char *path, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "GET", .target = target, .accept = "*/*"};
    const struct http_head *head;
    const char *bytes;
    size_t n;
    int more = 0, fd DEFER_CLOSE = memfd_create("database", MFD_CLOEXEC);
    if (fd < 0)
        return err_sys(err, "make room for a database");
    if (client_target(target, err, "/v1/machines/%s/files?path=%s", machine, path) < 0 ||
        client_send(c, c->http, &r, err) < 0)
        return -1;
    if (client_answer(c->http, &head, err) < 0)
        return err->code == ERR_NOT_FOUND ? TAKE_FD(fd) : -1;
    while ((more = http_client_read(c->http, &bytes, &n, err)) > 0) {
        int status = write_all(fd, bytes, n);
        if (status < 0)
            return err_num(err, status, "keep a database");
    }
    return more < 0 ? -1 : TAKE_FD(fd);
}

static int compare(int before, int after, int log, struct buf *ret, struct err *err) {
    const char *const argv[] = {"carrel-sqlite", "diff", NULL};
    char bytes[65536];
    ssize_t n;
    /* Above those that they become, so that none is covered by another. */
    int out DEFER_CLOSE = memfd_create("diff", MFD_CLOEXEC);
    int high[3] = {-1, -1, -1};
    const int given[3] = {before, after, log};
    for (int i = 0; i < 3; i++) {
        lseek(given[i], 0, SEEK_SET);
        high[i] = fcntl(given[i], F_DUPFD_CLOEXEC, 20);
    }
    const int fds[FDS] = {-1, out, -1, high[0], high[1], high[2]};
    int r = run(argv, fds, err);
    for (int i = 0; i < 3; i++)
        close_fd(&high[i]);
    lseek(out, 0, SEEK_SET);
    while (r == 0 && (n = read(out, bytes, sizeof(bytes))) > 0)
        if (!buf_add(ret, bytes, (size_t)n))
            return err_set(err, ERR_LIMIT, "there is more to show than there is room for");
    return r;
}

static int show_one(struct client *c, const char *machine, const char *what, const char *at,
                    struct err *err) {
    char log_path[8192];
    struct buf text DEFER(buf_done) = BUF(64 << 20);
    snprintf(log_path, sizeof(log_path), "%s-wal", at);
    int before DEFER_CLOSE = db_copy(what, err);
    int after DEFER_CLOSE = before < 0 ? -1 : download(c, machine, at, err);
    int log DEFER_CLOSE = after < 0 ? -1 : download(c, machine, log_path, err);
    if (log < 0 || compare(before, after, log, &text, err) < 0)
        return -1;
    fputs("database ", stdout);
    safe_name(stdout, at);
    fputs(" against ", stdout);
    safe_name(stdout, what);
    puts(text.len ? "" : ": the same");
    safe_text(stdout, text.data ? text.data : "", text.len);
    return 0;
}

int db_show_changes(struct client *c, const char *machine, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "GET", .target = target};
    json_t *all DEFER(json_free) = NULL, *g;
    size_t i;
    if (client_target(target, err, "/v1/machines/%s/grants", machine) < 0 ||
        client_call(c, &r, &all, err) < 0)
        return -1;
    json_array_foreach(json_object_get(all, "grants"), i, g) {
        if (strcmp(client_text(g, "kind"), "sqlite") == 0 &&
            show_one(c, machine, client_text(g, "what"), client_text(g, "at"), err) < 0)
            return err_wrap(err, "database '%s'", client_text(g, "at"));
    }
    return 0;
}
