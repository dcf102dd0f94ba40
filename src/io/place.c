#include "io/place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fs/dir.h"
#include "base/fs/lockfile.h"

static bool place_put(char to[PLACE_SIZE], const char *dir, const char *below) {
    return dir && *dir == '/' && snprintf(to, PLACE_SIZE, "%s%s", dir, below) < PLACE_SIZE;
}

/* True for a directory that only this user may change. */
static bool is_private(const char *path) {
    struct stat st;
    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
           !(st.st_mode & 022);
}

static bool has_store(const char *home) {
    char path[PLACE_SIZE + 16];
    snprintf(path, sizeof(path), "%s/carrel.db", home);
    return access(path, F_OK) == 0;
}

bool place_has_boxes(const char *run) {
    char path[PLACE_SIZE + 16];
    bool found = false;
    snprintf(path, sizeof(path), "%s/boxes", run);
    DIR *dir DEFER(dir_close) = opendir(path);
    for (const struct dirent *e; dir && !found && (e = readdir(dir));)
        found = strncmp(e->d_name, "m-", 2) == 0;
    return found;
}

/* Reads the directory that the last holder of lock file `name` in `dir` wrote into it. */
static bool read_lock(const char *dir, const char *name, struct lock_holder *ret) {
    char path[PLACE_SIZE + 16];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return is_private(dir) && lockfile_read(path, ret) == 0 && ret->words[0] == '/' &&
           strlen(ret->words) < PLACE_SIZE && is_private(ret->words);
}

/*
 * Finds the run directory that the store's daemon or its machines use now. It may differ from the
 * default, because a client may have fewer variables than the command that started the daemon.
 */
static bool find_run_in_use(char to[PLACE_SIZE], const char *home) {
    struct lock_holder last;
    return read_lock(home, "carrel.lock", &last) &&
           (lockfile_lives(&last) || place_has_boxes(last.words)) && place_put(to, last.words, "");
}

/* Finds the store that the last daemon of the run directory used. */
static bool find_last_store(char to[PLACE_SIZE], const char *run) {
    struct lock_holder last;
    return read_lock(run, "daemon.lock", &last) && has_store(last.words) &&
           place_put(to, last.words, "");
}

/* After `su`, XDG_RUNTIME_DIR still names the directory of the other user. */
static bool is_of_another(const char *dir) {
    struct stat st;
    return dir && stat(dir, &st) == 0 && st.st_uid != geteuid();
}

static const char *put_default_run(char to[PLACE_SIZE]) {
    char dir[64];
    const char *xdg = getenv("XDG_RUNTIME_DIR");
    if (geteuid() == 0) {
        place_put(to, PLACE_SHARED_RUN, "");
        return "root";
    }
    if (!is_of_another(xdg) && place_put(to, xdg, "/carrel"))
        return "XDG_RUNTIME_DIR";
    snprintf(dir, sizeof(dir), "/run/user/%u", (unsigned)geteuid());
    if (is_private(dir) && place_put(to, dir, "/carrel"))
        return "/run/user";
    snprintf(dir, sizeof(dir), "/tmp/carrel-%u", (unsigned)geteuid());
    place_put(to, dir, "");
    return "no XDG_RUNTIME_DIR";
}

static const char *put_default_home(char to[PLACE_SIZE]) {
    if (geteuid() == 0 && place_put(to, "/var/lib/carrel", ""))
        return "root";
    if (place_put(to, getenv("XDG_DATA_HOME"), "/carrel"))
        return "XDG_DATA_HOME";
    return place_put(to, getenv("HOME"), "/.local/share/carrel") ? "HOME" : NULL;
}

static int find_dirs(struct place *p, struct err *err) {
    bool names_run = place_put(p->run, getenv("CARREL_RUN"), "");
    bool names_home = place_put(p->home, getenv("CARREL_HOME"), "");
    p->run_from = "CARREL_RUN";
    p->home_from = names_home ? "CARREL_HOME" : put_default_home(p->home);
    if (!p->home_from)
        return err_set(err, ERR_INVALID, "cannot choose the data directory: set CARREL_HOME");
    if (!names_run)
        p->run_from =
            find_run_in_use(p->run, p->home) ? "carrel.lock of the store" : put_default_run(p->run);
    if (!names_home && !has_store(p->home) && find_last_store(p->home, p->run))
        p->home_from = "daemon.lock of the run directory";
    p->has_store = has_store(p->home);
    return 0;
}

static bool is_set(const char *variable) {
    const char *value = getenv(variable);
    return value && *value == '/';
}

bool place_is_shared(const struct place *p, const char **ret_why) {
    /* The daemon writes the first mark. The second one exists before the daemon is started. */
    static const char *const marks[] = {
        PLACE_SHARED_MARK,
        "/etc/systemd/system/multi-user.target.wants/carrel.service",
    };
    const struct {
        bool holds;
        const char *why;
    } own[] = {
        {geteuid() == 0, "you are root"},
        {is_set("CARREL_RUN"), "CARREL_RUN is set"},
        {is_set("CARREL_HOME"), "CARREL_HOME is set"},
        {p->has_store, "you have a store of your own"},
        {access(marks[0], F_OK) < 0 && access(marks[1], F_OK) < 0,
         "this host has no daemon for all users"},
    };
    for (size_t i = 0; i < sizeof(own) / sizeof(*own); i++) {
        *ret_why = own[i].why;
        if (own[i].holds)
            return false;
    }
    *ret_why = "you have no store, and this host has a daemon for all users";
    return true;
}

static int find_libexec(char to[PLACE_SIZE], struct err *err) {
    static const char *const tails[] = {"/libexec", "", "/../libexec/carrel", "/../lib/carrel"};
    char self[PLACE_SIZE - 32], probe[PLACE_SIZE + 32];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n < 0)
        return err_sys(err, "cannot find the path of this program");
    self[n] = '\0';
    *strrchr(self, '/') = '\0';
    for (size_t i = 0; i < sizeof(tails) / sizeof(*tails); i++) {
        snprintf(to, PLACE_SIZE, "%s%s", self, tails[i]);
        snprintf(probe, sizeof(probe), "%s/carrel-spawn", to);
        if (access(probe, X_OK) == 0)
            return 0;
    }
    err_set(err, ERR_NOT_FOUND, "carrel-spawn is not installed next to %s", self);
    return err_remedy(err, "install again: make install");
}

int place_find(struct place *ret, struct err *err) {
    struct place p;
    if (find_dirs(&p, err) < 0 || find_libexec(p.libexec, err) < 0)
        return -1;
    *ret = p;
    return 0;
}

/* In /tmp another user may have created the directory first. */
static int check_private(const char *path, struct err *err) {
    if (is_private(path))
        return 0;
    err_set(err, ERR_DENIED, "'%s' is not a private directory of this user", path);
    return err_remedy(err, "set CARREL_RUN and CARREL_HOME to directories of your own");
}

int place_check_run(const struct place *place, struct err *err) {
    struct stat st;
    if (is_set("CARREL_RUN") || lstat(place->run, &st) < 0)
        return 0;
    return check_private(place->run, err);
}

static int make_dirs(const char *path, struct err *err) {
    char part[PLACE_SIZE];
    snprintf(part, sizeof(part), "%s", path);
    for (char *slash = part + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        if (mkdir(part, 0755) < 0 && errno != EEXIST && errno != EROFS)
            return err_sys(err, "cannot create directory '%s'", part);
        *slash = '/';
    }
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return err_sys(err, "cannot create directory '%s'", path);
    return check_private(path, err);
}

int place_make(const struct place *place, struct err *err) {
    return make_dirs(place->run, err) < 0 ? -1 : make_dirs(place->home, err);
}
