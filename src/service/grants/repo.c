/*
 * Repositories: the machine's git clones a bundle that the owner made, without remotes and without
 * the owner's configuration. The host's git reads the commits of a machine only from a bundle
 * (`carrel ship`).
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "grant/dirs.h"
#include "service/grants/inner.h"

static const char script[] =
    "set -e; PATH=${PATH:-/usr/bin:/bin}\n"
    "command -v git >/dev/null || { echo 'git is not installed' >&2; exit 3; }\n"
    "export GIT_TERMINAL_PROMPT=0\n"
    /* The bundle names a commit that has no branch or tag by the tag carrel-base. */
    "base=$2; case $2 in *[!0-9a-f]*) ;; *) test ${#2} -lt 40 || base=carrel-base ;; esac\n"
    "git clone -q --branch \"$base\" \"$0\" \"$1\"\n"
    "git -C \"$1\" remote remove origin\n"
    "git -C \"$1\" symbolic-ref -q HEAD >/dev/null || git -C \"$1\" checkout -q -b carrel\n"
    "test \"$base\" = \"$2\" || git -C \"$1\" tag -d carrel-base >/dev/null\n"
    "rm -f \"$0\"\n";

/* A valid branch or tag name that git cannot take for an option. */
static bool is_ref(const char *name) {
    size_t n = strlen(name);
    return n > 0 && n < 200 && name[0] != '-' && name[0] != '/' && !strstr(name, "..") &&
           !strpbrk(name, " ~^:?*[\\\x7f\t\n") && strcmp(name, "@") != 0;
}

static int repo_read(struct service *s, const char *owner, const struct grant_request *r,
                     struct grant_row *row, struct err *err) {
    const char *name = strrchr(r->what, '/');
    char at[PLAN_PATH_SIZE];
    (void)s, (void)owner;
    snprintf(at, sizeof(at), "/home/user/%s", name && name[1] ? name + 1 : "repo");
    if (!r->mode || !is_ref(r->mode)) {
        err_set(err, ERR_INVALID, "'%.100s' is not a branch or tag name", r->mode ? r->mode : "");
        return err_remedy(err, "use --repo PATH@BRANCH");
    }
    if (place_check(r->at ? r->at : at, err) < 0)
        return -1;
    row->what = xstrdup(r->what);
    row->place = xstrdup(r->at ? r->at : at);
    json_t *detail = json_pack("{s:s}", "ref", r->mode);
    row->detail = detail ? json_dumps(detail, JSON_COMPACT) : NULL;
    json_decref(detail);
    if (!row->detail)
        return err_set(err, ERR_INVALID, "the branch or tag name of the repository is not UTF-8");
    snprintf(row->mode, sizeof(row->mode), "clone");
    return 0;
}

/* A bundle that is being cloned in the machine. */
struct cloning {
    struct live *live;
    char bundle[64];
    char *place, *ref;
    service_done_fn *done;
    void *arg;
};

static void cloned(void *arg, const struct err *err) {
    struct cloning *c = arg;
    c->done(c->arg, err);
    live_unref(c->live);
    free(c->place);
    free(c->ref);
    free(c);
}

static void copied(void *arg, const struct err *err) {
    struct cloning *c = arg;
    const char *const words[] = {c->bundle, c->place, c->ref, NULL};
    if (err)
        cloned(c, err);
    else
        inside_run(c->live, script, words, cloned, c);
}

static char *ref_of(const struct grant_row *row) {
    json_t *json = json_loads(row->detail, 0, NULL);
    const char *text = json_string_value(json_object_get(json, "ref"));
    char *ref = xstrdup(text ? text : "");
    json_decref(json);
    return ref;
}

static void repo_give(struct live *l, const struct grant_row *row, int fd, service_done_fn *done,
                      void *arg) {
    struct cloning *c = xnew(struct cloning);
    c->place = xstrdup(row->place);
    c->live = l;
    c->ref = ref_of(row);
    c->done = done;
    c->arg = arg;
    snprintf(c->bundle, sizeof(c->bundle), "/tmp/.carrel-%s.bundle", row->id);
    live_ref(l);
    const struct handover to = {c->bundle, 0600};
    handover_file(l, fd, &to, copied, c);
}

static void repo_take(struct live *l, const struct grant_row *row, service_done_fn *done,
                      void *arg) {
    handover_remove(l, row->place, done, arg);
}

const struct grant_kind grant_repo = {.name = "repo",
                                      .copies = true,
                                      .delivered = true,
                                      .inherited = true,
                                      .read = repo_read,
                                      .give = repo_give,
                                      .take = repo_take};
