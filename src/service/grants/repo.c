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
#include "base/log.h"
#include "grant/dirs.h"
#include "service/exec/live.h"
#include "service/grants/inner.h"
#include "service/steps/live.h"

/* Author of commits in the machine if the owner has no git identity. */
#define AUTHOR "agent <agent@agents.invalid>"

enum { AUTHOR_PART = 200 };

static const char script[] =
    "set -e; PATH=${PATH:-/usr/bin:/bin}\n"
    "command -v git >/dev/null || {\n"
    "  echo 'git is not installed in the machine; use an image that has it' >&2; exit 3; }\n"
    "export GIT_TERMINAL_PROMPT=0\n"
    /* The bundle names a commit that has no branch or tag by the tag carrel-base. */
    "base=$2; case $2 in *[!0-9a-f]*) ;; *) test ${#2} -lt 40 || base=carrel-base ;; esac\n"
    "git clone -q --branch \"$base\" \"$0\" \"$1\"\n"
    "git -C \"$1\" remote remove origin\n"
    "git -C \"$1\" symbolic-ref -q HEAD >/dev/null || git -C \"$1\" checkout -q -b carrel\n"
    "test \"$base\" = \"$2\" || git -C \"$1\" tag -d carrel-base >/dev/null\n"
    /* The owner's uncommitted work: in the working tree, and not in the index. */
    "dirty=\n"
    "if test -n \"$(git bundle list-heads \"$0\" refs/carrel/dirty)\"; then\n"
    "  git -C \"$1\" fetch -q --no-tags \"$0\" refs/carrel/dirty\n"
    "  git -C \"$1\" read-tree -m -u HEAD FETCH_HEAD; git -C \"$1\" reset -q\n"
    "  dirty=$(git -C \"$1\" rev-parse FETCH_HEAD); rm -f \"$1/.git/FETCH_HEAD\"\n"
    "fi\n"
    /*
     * A review need not read the files that are as cloned. carrel-base has their commit. With
     * uncommitted work, that is its commit; then come the cloned commit, and the untracked files.
     */
    "(cd \"$1\"; head=$(git rev-parse HEAD) files=.git/carrel-base\n"
    "if for of in $head $dirty; do git ls-tree -r $of; done | grep -q '^160000'; then :\n"
    "elif test -z \"$dirty\" || git diff-tree --quiet $head $dirty; then echo $head >$files\n"
    "else echo $dirty $head >$files.new\n"
    "  git diff-tree -r --no-renames --diff-filter=A --name-only $head $dirty >>$files.new\n"
    "  mv $files.new $files\n"
    "fi)\n"
    /* A configuration of the image counts more than the default author. */
    "git -C \"$1\" config user.name >/dev/null || git -C \"$1\" config user.name \"$3\"\n"
    "git -C \"$1\" config user.email >/dev/null || git -C \"$1\" config user.email \"$4\"\n"
    "rm -f \"$0\"\n";

/* The default author of the machine's commits. */
struct author {
    char name[AUTHOR_PART], mail[AUTHOR_PART];
};

static bool is_author_part(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] < ' ' || strchr("<>\x7f", text[i]))
            return false;
    return n > 0 && n < AUTHOR_PART;
}

/* Reads "NAME <MAIL>"; false if the text has another form. */
static bool author_read(const char *text, struct author *ret) {
    const char *mail = strstr(text, " <");
    size_t n = mail ? strlen(mail + 2) : 0;
    if (!n || mail[n + 1] != '>' || !is_author_part(text, (size_t)(mail - text)) ||
        !is_author_part(mail + 2, n - 1))
        return false;
    snprintf(ret->name, sizeof(ret->name), "%.*s", (int)(mail - text), text);
    snprintf(ret->mail, sizeof(ret->mail), "%.*s", (int)(n - 1), mail + 2);
    return true;
}

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
    const char *author = r->value ? r->value : AUTHOR;
    struct author parts;
    if (!author_read(author, &parts)) {
        err_set(err, ERR_INVALID, "'%.100s' is not an author of commits", author);
        return err_remedy(err, "write it as NAME <MAIL>");
    }
    if (place_check(r->at ? r->at : at, err) < 0)
        return -1;
    row->what = xstrdup(r->what);
    row->place = xstrdup(r->at ? r->at : at);
    json_t *detail = json_pack("{s:s, s:s}", "ref", r->mode, "author", author);
    row->detail = detail ? json_dumps(detail, JSON_COMPACT) : NULL;
    json_decref(detail);
    if (!row->detail)
        return err_set(err, ERR_INVALID, "the branch or tag name, or the author, is not UTF-8");
    snprintf(row->mode, sizeof(row->mode), "clone");
    return 0;
}

/* A bundle that is being cloned in the machine. */
struct cloning {
    struct live *live;
    char grant[ID_SIZE], bundle[64];
    bool alone;       /* no other process was in the machine when the clone began */
    uint64_t changes; /* steps_changes() before that */
    char *place, *ref;
    struct author author;
    service_done_fn *done;
    void *arg;
};

/*
 * Keeps the id of the command that cloned the repository: a review compares with the step after it.
 * Keeps nothing if other processes, or changes of files, could have changed the clone before that
 * step. The clone itself is one change.
 */
static void note_clone(const struct cloning *c, const char *exec) {
    struct grant_row row DEFER(grant_row_done) = {0};
    struct live *l = c->live;
    struct err err;
    if (!exec || !c->alone || execs_running(l) > 0 || steps_changes(l) != c->changes + 1 ||
        store_grant_get(l->service->store, l->row.id, c->grant, &row, &err) < 0)
        return;
    json_t *detail = json_loads(row.detail, 0, NULL);
    json_object_set_new(detail, "exec", json_string(exec));
    free(row.detail);
    row.detail = detail ? json_dumps(detail, JSON_COMPACT) : NULL;
    json_decref(detail);
    if (!row.detail || store_grant_put(l->service->store, &row, &err) < 0)
        log_line(LOG_WARN, "service", "keep the id of the command that cloned a repository id=%s",
                 l->row.id);
}

static void clone_finish(struct cloning *c, const struct err *err) {
    c->done(c->arg, err);
    live_unref(c->live);
    free(c->place);
    free(c->ref);
    free(c);
}

static void cloned(void *arg, const char *exec, const struct err *err) {
    struct cloning *c = arg;
    if (!err)
        note_clone(c, exec);
    clone_finish(c, err);
}

static void clone_begin(void *arg, const struct err *busy) {
    struct cloning *c = arg;
    const char *const words[] = {c->bundle, c->place, c->ref, c->author.name, c->author.mail, NULL};
    c->alone = !busy && execs_running(c->live) == 0;
    inside_run(c->live, script, words, cloned, c);
}

static void copied(void *arg, const struct err *err) {
    struct cloning *c = arg;
    struct live *l = c->live;
    struct err gone;
    c->changes = steps_changes(l);
    if (!err && !l->machine) {
        live_state_error(l, &gone);
        err = &gone;
    }
    if (err)
        clone_finish(c, err);
    else
        l->service->driver->alone(l->machine, clone_begin, c);
}

/* A grant of an older version has no author. */
static void read_detail(const struct grant_row *row, struct cloning *c) {
    json_t *json = json_loads(row->detail, 0, NULL);
    const char *ref = json_string_value(json_object_get(json, "ref"));
    const char *author = json_string_value(json_object_get(json, "author"));
    c->ref = xstrdup(ref ? ref : "");
    if (!author || !author_read(author, &c->author))
        author_read(AUTHOR, &c->author);
    json_decref(json);
}

static void repo_give(struct live *l, const struct grant_row *row, int fd, service_done_fn *done,
                      void *arg) {
    struct cloning *c = xnew(struct cloning);
    c->place = xstrdup(row->place);
    c->live = l;
    read_detail(row, c);
    c->done = done;
    c->arg = arg;
    snprintf(c->grant, sizeof(c->grant), "%s", row->id);
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
