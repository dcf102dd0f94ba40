#include "cli/ship/db.h"

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

/* Runs carrel-sqlite. fds[i] becomes its descriptor i; 0 is /dev/null, and 2 is read for errors. */
static int db_run(const char *const *argv, const int fds[FDS], struct err *err) {
    struct place place;
    char path[PLACE_SIZE + 32], why[300];
    static char *const no_env[] = {NULL};
    posix_spawn_file_actions_t actions;
    int status, said DEFER_CLOSE = memfd_create("said", MFD_CLOEXEC);
    pid_t pid;
    if (said < 0 || place_find(&place, err) < 0)
        return said < 0 ? err_sys(err, "cannot create a temporary file for errors of carrel-sqlite")
                        : -1;
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
        return err_num(err, -r, "cannot run program '%s'", path);
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return err_sys(err, "cannot wait for carrel-sqlite");
    if (status == 0)
        return 0;
    ssize_t n = pread(said, why, sizeof(why) - 1, 0);
    why[n > 0 ? n : 0] = '\0';
    why[strcspn(why, "\n")] = '\0';
    return err_set(err, ERR_INVALID, "%s", why[0] ? why : "carrel-sqlite failed without a message");
}

int db_copy(const char *path, struct err *err) {
    const char *const argv[] = {"carrel-sqlite", "copy", path, NULL};
    int out = memfd_create("database", MFD_CLOEXEC);
    const int fds[FDS] = {-1, out, -1, -1, -1, -1};
    if (out < 0)
        return err_sys(err, "cannot create a temporary file for the database");
    if (db_run(argv, fds, err) == 0)
        return out;
    close(out);
    return err_wrap(err, "cannot copy database '%s'", path);
}

static void show_diff(const json_t *d) {
    const char *text = client_text(d, "diff");
    safe_text(stdout, text, strlen(text));
    if (json_is_true(json_object_get(d, "cut")))
        puts("... the rest of the changes is not shown");
}

static void show_server(const json_t *d) {
    fputs(": a copy of ", stdout);
    safe_name(stdout, client_text(d, "what"));
    puts(", deleted with the machine: its changes are not shipped");
    if (json_object_get(d, "error")) {
        fputs("its changes are not known: ", stdout);
        safe_name(stdout, client_text(d, "error"));
        putchar('\n');
    }
    show_diff(d);
}

void db_show(const json_t *d) {
    fputs("database ", stdout);
    safe_name(stdout, client_text(d, "at"));
    if (strcmp(client_text(d, "kind"), "postgres") == 0) {
        show_server(d);
        return;
    }
    fputs(" against ", stdout);
    safe_name(stdout, client_text(d, "what"));
    puts(*client_text(d, "diff") ? " as it was granted" : ": the same");
    show_diff(d);
}
