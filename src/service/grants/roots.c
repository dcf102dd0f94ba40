/*
 * The directories of this host that a page or a token may name: those below `roots` of carrel.conf.
 * The file is read each time, so a line counts as soon as it is written.
 */
#include "service/grants/roots.h"

#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "grant/dirs.h"
#include "service/rights.h"
#include "service/state.h"

/* Whether the caller's owner is the user that runs the daemon, who can write carrel.conf. */
static bool is_daemon_user(struct service *s, const struct caller *who) {
    struct owner_row daemon = {0};
    struct err none;
    return store_owner_by_uid(s->store, geteuid(), &daemon, &none) == 0 &&
           strcmp(daemon.name, who->owner) == 0;
}

/* A mistake is told whole only to the owner of the file: its lines may hold keys of providers. */
static int roots_unread(const struct roots *r, struct err *err) {
    if (r->is_own)
        return -1;
    err_set(err, ERR_INVALID, "carrel.conf of this host has a mistake");
    return err_remedy(err, "ask the administrator, who can correct the file");
}

int service_roots_read(struct service *s, const struct caller *who, struct roots *ret,
                       struct err *err) {
    struct conf *now DEFER_FREE = xnew(struct conf);
    const struct conf *conf = s->conf;
    *ret = (struct roots){.is_own = is_daemon_user(s, who)};
    if (conf->path[0]) {
        if (conf_read(conf->path, now, err) < 0)
            return roots_unread(ret, err);
        conf = now;
    }
    snprintf(ret->conf, sizeof(ret->conf), "%s", ret->is_own ? s->conf->path : "");
    for (size_t i = 0; i < conf->root_count; i++) {
        const char *owner = conf->root_owners[i];
        if (owner[0] ? strcmp(owner, who->owner) == 0 : ret->is_own)
            snprintf(ret->paths[ret->count++], CONF_TEXT_SIZE, "%s", conf->roots[i]);
    }
    return 0;
}

/* The refusal has the line that would allow this path, and nothing beside it. */
static int roots_refuse(const struct roots *r, const struct caller *who, const char *path,
                        struct err *err) {
    err_set(err, ERR_DENIED,
            "'%.100s' is not below a directory of `roots` in %s: a page or a token may hand over "
            "only those",
            path, r->conf[0] ? r->conf : "carrel.conf");
    if (r->is_own)
        return err_remedy(err, "add to section [daemon] there, without a restart: roots = %s",
                          path);
    return err_remedy(err, "ask the administrator for this line in [daemon]: roots = %s:%s",
                      who->owner, path);
}

int roots_open(struct service *s, const struct caller *who, const char *path, bool is_file,
               struct err *err) {
    struct roots *r DEFER_FREE = xnew(struct roots);
    const char *paths[CONF_ROOTS_MAX];
    if (dirs_path_check(path, err) < 0 || service_roots_read(s, who, r, err) < 0)
        return -1;
    for (size_t i = 0; i < r->count; i++)
        paths[i] = r->paths[i];
    if (!dirs_root_of(path, paths, r->count))
        return roots_refuse(r, who, path, err);
    return is_file ? files_open_under(path, paths, r->count, err)
                   : dirs_open_under(path, paths, r->count, err);
}
