#include "io/place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool place_put(char to[PLACE_SIZE], const char *dir, const char *below) {
    return dir && *dir == '/' && snprintf(to, PLACE_SIZE, "%s%s", dir, below) < PLACE_SIZE;
}

static int find_run(char to[PLACE_SIZE], struct err *err) {
    char fallback[64];
    snprintf(fallback, sizeof(fallback), "/tmp/carrel-%u", (unsigned)geteuid());
    if (place_put(to, getenv("CARREL_RUN"), ""))
        return 0;
    if (geteuid() == 0 && place_put(to, "/run/carrel", ""))
        return 0;
    if (place_put(to, getenv("XDG_RUNTIME_DIR"), "/carrel") || place_put(to, fallback, ""))
        return 0;
    return err_set(err, ERR_INVALID,
                   "cannot choose the directory for sockets and logs: set CARREL_RUN");
}

static int find_home(char to[PLACE_SIZE], struct err *err) {
    if (place_put(to, getenv("CARREL_HOME"), ""))
        return 0;
    if (geteuid() == 0 && place_put(to, "/var/lib/carrel", ""))
        return 0;
    if (place_put(to, getenv("XDG_DATA_HOME"), "/carrel") ||
        place_put(to, getenv("HOME"), "/.local/share/carrel"))
        return 0;
    return err_set(err, ERR_INVALID, "cannot choose the data directory: set CARREL_HOME");
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
    if (find_run(p.run, err) < 0 || find_home(p.home, err) < 0 || find_libexec(p.libexec, err) < 0)
        return -1;
    *ret = p;
    return 0;
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
    struct stat st;
    if ((mkdir(path, 0700) < 0 && errno != EEXIST) || lstat(path, &st) < 0)
        return err_sys(err, "cannot create directory '%s'", path);
    /* In /tmp another user may have created the directory first. */
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 022)) {
        err_set(err, ERR_DENIED, "'%s' is not a private directory of this user", path);
        return err_remedy(err, "set CARREL_RUN and CARREL_HOME to directories of your own");
    }
    return 0;
}

int place_make(const struct place *place, struct err *err) {
    return make_dirs(place->run, err) < 0 ? -1 : make_dirs(place->home, err);
}
