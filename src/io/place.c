#include "io/place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool put(char to[PLACE_SIZE], const char *dir, const char *below) {
    return dir && *dir == '/' && snprintf(to, PLACE_SIZE, "%s%s", dir, below) < PLACE_SIZE;
}

static int find_run(char to[PLACE_SIZE], struct err *err) {
    char fallback[64];
    snprintf(fallback, sizeof(fallback), "/tmp/carrel-%u", (unsigned)geteuid());
    if (put(to, getenv("CARREL_RUN"), ""))
        return 0;
    if (geteuid() == 0 && put(to, "/run/carrel", ""))
        return 0;
    if (put(to, getenv("XDG_RUNTIME_DIR"), "/carrel") || put(to, fallback, ""))
        return 0;
    return err_set(err, ERR_INVALID, "no place for run files: set CARREL_RUN");
}

static int find_home(char to[PLACE_SIZE], struct err *err) {
    if (put(to, getenv("CARREL_HOME"), ""))
        return 0;
    if (geteuid() == 0 && put(to, "/var/lib/carrel", ""))
        return 0;
    if (put(to, getenv("XDG_DATA_HOME"), "/carrel") ||
        put(to, getenv("HOME"), "/.local/share/carrel"))
        return 0;
    return err_set(err, ERR_INVALID, "no place for data: set CARREL_HOME");
}

static int find_libexec(char to[PLACE_SIZE], struct err *err) {
    static const char *const tails[] = {"/libexec", "", "/../libexec/carrel", "/../lib/carrel"};
    char self[PLACE_SIZE - 32], probe[PLACE_SIZE + 32];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n < 0)
        return err_sys(err, "find own program");
    self[n] = '\0';
    *strrchr(self, '/') = '\0';
    for (size_t i = 0; i < sizeof(tails) / sizeof(*tails); i++) {
        snprintf(to, PLACE_SIZE, "%s%s", self, tails[i]);
        snprintf(probe, sizeof(probe), "%s/carrel-spawn", to);
        if (access(probe, X_OK) == 0)
            return 0;
    }
    err_set(err, ERR_NOT_FOUND, "carrel-spawn is not beside %s", self);
    return err_remedy(err, "install again: make install");
}

int place_find(struct place *ret, struct err *err) {
    struct place p;
    if (find_run(p.run, err) < 0 || find_home(p.home, err) < 0 || find_libexec(p.libexec, err) < 0)
        return -1;
    *ret = p;
    return 0;
}
