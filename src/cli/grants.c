#include "cli/grants.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/defer.h"

static const struct {
    const char *name;
    enum plan_grant_mode mode;
} modes[] = {{"ro", PLAN_GRANT_RO}, {"cow", PLAN_GRANT_COW}, {"rw", PLAN_GRANT_RW}};

static bool mode_by_name(const char *name, enum plan_grant_mode *ret) {
    for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++)
        if (strcmp(modes[i].name, name) == 0) {
            *ret = modes[i].mode;
            return true;
        }
    return false;
}

/* Cuts HOST, GUEST and mode out of the text; a part that starts with '/' is a path inside. */
static int split(const char *text, char *host, char *guest, enum plan_grant_mode *mode,
                 struct err *err) {
    if (snprintf(host, PLAN_PATH_SIZE, "%s", text) >= PLAN_PATH_SIZE)
        return err_set(err, ERR_LIMIT, "--dir %.40s... is too long", text);
    guest[0] = '\0';
    *mode = PLAN_GRANT_COW;
    char *colon = strrchr(host, ':');
    if (colon && mode_by_name(colon + 1, mode)) {
        *colon = '\0';
        colon = strrchr(host, ':');
    }
    if (colon && colon[1] == '/') {
        snprintf(guest, PLAN_PATH_SIZE, "%s", colon + 1);
        *colon = '\0';
    } else if (colon) {
        err_set(err, ERR_INVALID, "'%s' in --dir %s is neither a path nor ro, cow or rw", colon + 1,
                text);
        return err_remedy(err, "write --dir HOST[:/GUEST][:ro|cow|rw]");
    }
    return 0;
}

static bool contains(const char *dir, const char *path) {
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/')
        n--;
    return strncmp(dir, path, n) == 0 && (path[n] == '/' || path[n] == '\0' || n == 1);
}

static bool has_dots(const char *path) {
    for (const char *at = path; (at = strchr(at, '/')); at++) {
        size_t n = strcspn(at + 1, "/");
        if ((n == 1 && at[1] == '.') || (n == 2 && at[1] == '.' && at[2] == '.') ||
            (n == 0 && at[1]))
            return true;
    }
    return false;
}

/* Places that are the machine's own; a grant there or above would take them away from it. */
static bool reserved(const char *path) {
    static const char *const places[] = {"/proc",  "/dev",    "/sys",   "/run/carrel", "/usr",
                                         "/etc",   "/bin",    "/sbin",  "/lib",        "/lib32",
                                         "/lib64", "/libx32", "/libo32"};
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++)
        if (contains(places[i], path) || contains(path, places[i]))
            return true;
    return has_dots(path);
}

static int check_place(const struct plan *plan, const struct plan_grant *grant, const char *host,
                       struct err *err) {
    if (reserved(grant->path)) {
        err_set(err, ERR_INVALID, "'%s' cannot be the place of a directory in the machine",
                grant->path);
        return err_remedy(err, "choose another one: --dir %s:/home/user/dir", host);
    }
    for (size_t i = 0; i < plan->grant_count; i++)
        if (strcmp(plan->grants[i].path, grant->path) == 0)
            return err_set(err, ERR_INVALID, "two directories at '%s'", grant->path);
    return 0;
}

/* The store and the run directory hold what keeps machines apart, also for those that only read. */
static int check_own(const char *real, const char *const *own, struct err *err) {
    for (; *own; own++) {
        char place[PATH_MAX];
        if (!realpath(*own, place))
            snprintf(place, sizeof(place), "%s", *own);
        if (contains(real, place) || contains(place, real))
            return err_set(err, ERR_DENIED, "'%s' is, holds or is in Carrel's own directory '%s'",
                           real, place);
    }
    return 0;
}

static int open_one(const char *text, bool unreviewed, const char *const *own, struct plan *plan,
                    struct grants *g, struct err *err) {
    char host[PLAN_PATH_SIZE], real[PATH_MAX];
    struct plan_grant *grant = &plan->grants[g->count];
    if (split(text, host, grant->path, &grant->mode, err) < 0)
        return -1;
    if (!realpath(host, real))
        return err_sys(err, "open directory '%s'", host);
    if (strlen(real) >= PLAN_PATH_SIZE)
        return err_set(err, ERR_LIMIT, "directory '%.40s...' has too long a name", real);
    int fd DEFER_CLOSE = open(real, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, "open directory '%s'", real);
    if (!grant->path[0])
        snprintf(grant->path, sizeof(grant->path), "%s", real);
    if (grant->mode == PLAN_GRANT_RW && !unreviewed) {
        err_set(err, ERR_DENIED, "--dir %s:rw lets changes out without review", host);
        return err_remedy(err, "add --unreviewed, or use cow and --apply");
    }
    if (check_own(real, own, err) < 0 || check_place(plan, grant, host, err) < 0)
        return -1;
    snprintf(g->host[g->count], PLAN_PATH_SIZE, "%s", real);
    g->dirs[g->count++] = TAKE_FD(fd);
    plan->grant_count = g->count;
    return 0;
}

int grants_open(const struct option_list *dirs, bool unreviewed, const char *const *own,
                struct plan *plan, struct grants *ret, struct err *err) {
    char here[PATH_MAX];
    *ret = (struct grants){.working = -1};
    for (size_t i = 0; i < PLAN_MAX_GRANTS; i++)
        ret->dirs[i] = ret->uppers[i] = -1;
    if (dirs->count > PLAN_MAX_GRANTS)
        return err_set(err, ERR_LIMIT, "more than %d times --dir", PLAN_MAX_GRANTS);
    for (size_t i = 0; i < dirs->count; i++)
        if (open_one(dirs->items[i], unreviewed, own, plan, ret, err) < 0)
            return -1;
    for (size_t i = 0; getcwd(here, sizeof(here)) && i < ret->count; i++)
        if (strcmp(ret->host[i], here) == 0)
            ret->working = (int)i;
    return 0;
}

void grants_close(struct grants *g) {
    for (size_t i = 0; i < PLAN_MAX_GRANTS; i++) {
        if (g->dirs[i] >= 0)
            close(g->dirs[i]);
        if (g->uppers[i] >= 0)
            close(g->uppers[i]);
        g->dirs[i] = g->uppers[i] = -1;
    }
}
