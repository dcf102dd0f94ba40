#include "cli/grants.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/defer.h"

bool grants_cut_untrusted(char *words) {
    static const char mark[] = ":untrusted";
    size_t n = strlen(words), len = sizeof(mark) - 1;
    bool is = n > len && strcmp(words + n - len, mark) == 0;
    if (is)
        words[n - len] = '\0';
    return is;
}

/* Splits HOST[:GUEST][:MODE]. A part that starts with '/' is the path in the machine. */
static int grants_split(const char *text, char *host, char *guest, enum plan_grant_mode *mode,
                        bool *untrusted, struct err *err) {
    if (snprintf(host, PLAN_PATH_SIZE, "%s", text) >= PLAN_PATH_SIZE)
        return err_set(err, ERR_LIMIT, "--dir %.40s...: the value is too long", text);
    guest[0] = '\0';
    *mode = PLAN_GRANT_COW;
    *untrusted = grants_cut_untrusted(host);
    char *colon = strrchr(host, ':');
    if (colon && plan_mode_by_name(colon + 1, mode)) {
        *colon = '\0';
        colon = strrchr(host, ':');
    }
    if (colon && colon[1] == '/') {
        snprintf(guest, PLAN_PATH_SIZE, "%s", colon + 1);
        *colon = '\0';
    } else if (colon) {
        err_set(err, ERR_INVALID, "--dir %s: '%s' is not a path, ro, cow or rw", text, colon + 1);
        return err_remedy(err, "write --dir HOST[:/GUEST][:ro|cow|rw][:untrusted]");
    }
    return 0;
}

static int open_one(const char *text, struct plan *plan, struct grants *g, struct err *err) {
    char host[PLAN_PATH_SIZE], real[PATH_MAX];
    struct plan_grant *grant = &plan->grants[g->count];
    if (grants_split(text, host, grant->path, &grant->mode, &g->untrusted[g->count], err) < 0)
        return -1;
    if (!realpath(host, real))
        return err_sys(err, "cannot open directory '%s'", host);
    if (strlen(real) >= PLAN_PATH_SIZE)
        return err_set(err, ERR_LIMIT, "--dir %.40s...: the path is too long", real);
    int fd DEFER_CLOSE = open(real, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, "cannot open directory '%s'", real);
    if (!grant->path[0])
        snprintf(grant->path, sizeof(grant->path), "%s", real);
    snprintf(g->host[g->count], PLAN_PATH_SIZE, "%s", real);
    g->dirs[g->count++] = TAKE_FD(fd);
    plan->grant_count = g->count;
    return 0;
}

int grants_open(const struct option_list *dirs, struct plan *plan, struct grants *ret,
                struct err *err) {
    char here[PATH_MAX];
    *ret = (struct grants){.working = -1};
    for (size_t i = 0; i < PLAN_MAX_GRANTS; i++)
        ret->dirs[i] = ret->uppers[i] = -1;
    if (dirs->count > PLAN_MAX_GRANTS)
        return err_set(err, ERR_LIMIT, "--dir can be given at most %d times", PLAN_MAX_GRANTS);
    for (size_t i = 0; i < dirs->count; i++)
        if (open_one(dirs->items[i], plan, ret, err) < 0)
            return -1;
    for (size_t i = 0; getcwd(here, sizeof(here)) && i < ret->count; i++)
        if (strcmp(ret->host[i], here) == 0)
            ret->working = (int)i;
    return 0;
}

void grants_warn(const struct grants *g, const struct plan *plan) {
    struct stat st;
    for (size_t i = 0; i < g->count; i++)
        if (plan->grants[i].mode == PLAN_GRANT_RW && fstat(g->dirs[i], &st) == 0)
            fprintf(stderr,
                    "carrel: warning: directory '%s' is writable: changes reach the host without "
                    "review, and its sockets and pipes lead to processes of the host\n"
                    "carrel: warning: programs that the machine leaves there can run with the "
                    "rights of user %u and group %u, for every user who can enter the directory\n",
                    g->host[i], st.st_uid, st.st_gid);
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
