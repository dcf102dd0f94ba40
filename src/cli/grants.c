#include "cli/grants.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    snprintf(host, PLAN_PATH_SIZE, "%s", text);
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
        err_set(err, ERR_INVALID, "'%s' in --dir %s is neither a path nor ro, cow or rw", colon + 1, text);
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

/* Places that are the machine's own; a grant there would take them away from it. */
static bool reserved(const char *path) {
    static const char *const own[] = {"/proc", "/dev", "/sys", "/run/carrel", "/usr", "/etc", "/bin",
                                      "/lib", "/sbin", "/lib64"};
    if (strcmp(path, "/") == 0 || strstr(path, "/../") || strstr(path, "/./") || strstr(path, "//"))
        return true;
    for (size_t i = 0; i < sizeof(own) / sizeof(*own); i++)
        if (contains(own[i], path))
            return true;
    return false;
}

static int open_one(const char *text, bool unreviewed, const char *forbidden, struct plan *plan,
                    struct grants *g, struct err *err) {
    char host[PLAN_PATH_SIZE], real[PATH_MAX];
    struct plan_grant *grant = &plan->grants[g->count];
    if (split(text, host, grant->path, &grant->mode, err) < 0)
        return -1;
    if (!realpath(host, real) || strlen(real) >= PLAN_PATH_SIZE)
        return err_sys(err, "open directory '%s'", host);
    if (!grant->path[0])
        snprintf(grant->path, sizeof(grant->path), "%s", real);
    if (grant->mode == PLAN_GRANT_RW && !unreviewed) {
        err_set(err, ERR_DENIED, "--dir %s:rw lets changes out without review", host);
        return err_remedy(err, "add --unreviewed, or use cow and --apply");
    }
    if (contains(real, forbidden))
        return err_set(err, ERR_DENIED, "'%s' contains the store ('%s')", real, forbidden);
    if (reserved(grant->path)) {
        err_set(err, ERR_INVALID, "'%s' cannot be the place of a directory in the machine", grant->path);
        return err_remedy(err, "choose another one: --dir %s:/home/user/dir", host);
    }
    int fd = open(real, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, "open directory '%s'", real);
    snprintf(g->host[g->count], PLAN_PATH_SIZE, "%s", real);
    g->dirs[g->count++] = fd;
    plan->grant_count = g->count;
    return 0;
}

int grants_open(const struct option_list *dirs, bool unreviewed, const char *forbidden,
                struct plan *plan, struct grants *ret, struct err *err) {
    char here[PATH_MAX];
    *ret = (struct grants){.working = -1};
    for (size_t i = 0; i < PLAN_MAX_GRANTS; i++)
        ret->dirs[i] = ret->uppers[i] = -1;
    if (dirs->count > PLAN_MAX_GRANTS)
        return err_set(err, ERR_LIMIT, "more than %d times --dir", PLAN_MAX_GRANTS);
    for (size_t i = 0; i < dirs->count; i++)
        if (open_one(dirs->items[i], unreviewed, forbidden, plan, ret, err) < 0)
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
