/* The machine of an agent and a directory: finds it by its metadata, or makes it. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/sha256.h"
#include "cli/agent/agent.h"
#include "cli/cli.h"
#include "cli/exec.h"
#include "cli/machine.h"
#include "cli/ship/dirty.h"
#include "cli/ship/git.h"
#include "cli/table.h"

/* Metadata of the machine of an agent. */
#define META_AGENT "agent"
#define META_DIR "agent_dir"
#define META_LOGIN "agent_login"

/* ---- the directory ---- */

bool agent_path_is_below(const char *path, const char *dir) {
    size_t n = strlen(dir);
    return strncmp(path, dir, n) == 0 && (!path[n] || path[n] == '/' || strcmp(dir, "/") == 0);
}

/*
 * Asks git once: the start of an agent waits for it. The path may contain line breaks, a hash not.
 * A directory that only looks like a repository, such as a part of a clone with the files HEAD,
 * config, objects and refs, would choose its own configuration: only one with .git counts.
 */
static bool is_repo(const char *dir, char top[PATH_MAX]) {
    const char *const words[] = {"-c",
                                 "safe.bareRepository=explicit",
                                 "-C",
                                 dir,
                                 "rev-parse",
                                 "--show-toplevel",
                                 "HEAD^{commit}",
                                 NULL};
    struct buf said DEFER(buf_done) = BUF(GIT_SAID_MAX);
    struct err none;
    if (git_ask(words, &said, &none) < 0 || !said.len)
        return false;
    char *end = strrchr(said.data, '\n');
    if (!end || end == said.data || end - said.data >= PATH_MAX)
        return false;
    *end = '\0';
    snprintf(top, PATH_MAX, "%s", said.data);
    return agent_path_is_below(dir, top);
}

int agent_slice_find(struct agent_slice *ret, struct err *err) {
    const char *given = getenv("HOME");
    char home[PATH_MAX];
    if (!given || !realpath(given, home))
        return err_set(err, ERR_INVALID,
                       "HOME is not the path of a directory, so it cannot be kept from the agent");
    if (!getcwd(ret->dir, sizeof(ret->dir)))
        return err_sys(err, "cannot find the present directory");
    ret->is_repo = is_repo(ret->dir, ret->top);
    if (!ret->is_repo)
        snprintf(ret->top, sizeof(ret->top), "%s", ret->dir);
    bool has_home = agent_path_is_below(home, ret->top);
    if (!has_home && strcmp(ret->top, "/") != 0)
        return 0;
    err_set(err, ERR_DENIED, "directory '%s' %s: the agent would get all of it", ret->top,
            strcmp(ret->top, "/") == 0    ? "is the root of this host"
            : strcmp(ret->top, home) == 0 ? "is your home"
                                          : "contains your home");
    return err_remedy(err, "change to the directory of a project");
}

/* ---- machines that exist ---- */

static const char *meta_of(const json_t *machine, const char *name) {
    return client_text(json_object_get(machine, "metadata"), name);
}

int agent_machines(struct client *c, const char *agent, const char *dir, json_t **ret,
                   struct err *err) {
    json_t *all DEFER(json_decrefp) = NULL, *m;
    size_t i;
    if (machines_list(c, &all, err) < 0)
        return -1;
    *ret = json_pack("{s:[]}", "machines");
    json_array_foreach(json_object_get(all, "machines"), i, m) {
        const char *name = meta_of(m, META_AGENT), *at = meta_of(m, META_DIR);
        if (*name && *at && (!agent || strcmp(agent, name) == 0) && (!dir || strcmp(dir, at) == 0))
            json_array_append(json_object_get(*ret, "machines"), m);
    }
    return 0;
}

int agent_make_parent(const struct agent *a, const char *path, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    struct buf body DEFER(buf_done) = BUF(8192);
    struct jot j = JOT(&body);
    const struct client_request r = {.method = "POST", .target = target, .body = &body};
    jot_object(&j, NULL);
    jot_bytes(&j, "path", path, (size_t)(strrchr(path, '/') - path));
    jot_end(&j, '}');
    if (j.failed)
        return err_set(err, ERR_LIMIT, "the path '%s' is too long", path);
    return client_target(target, err, "/v1/machines/%s/files/mkdir", a->machine) < 0
               ? -1
               : client_call(a->client, &r, NULL, err);
}

/* Finds the machine of this agent, and names the machines of other agents on the directory. */
static int machine_find(struct agent *a, const json_t **ret, json_t **list, struct err *err) {
    size_t i;
    json_t *m;
    *ret = NULL;
    if (agent_machines(a->client, NULL, a->slice.top, list, err) < 0)
        return -1;
    json_array_foreach(json_object_get(*list, "machines"), i, m) {
        if (strcmp(meta_of(m, META_AGENT), a->row->name) == 0)
            *ret = m;
        else
            cli_done(a->o->quiet,
                     "agent %s has its own copy of this directory, in machine %s: each is reviewed "
                     "by itself",
                     meta_of(m, META_AGENT), client_text(m, "name"));
    }
    return 0;
}

static int wake(struct agent *a, const json_t *m, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "POST", .target = target};
    if (strcmp(client_text(m, "state"), "running") == 0)
        return 0;
    return client_target(target, err, "/v1/machines/%s/resume", a->machine) < 0
               ? -1
               : client_call(a->client, &r, NULL, err);
}

/* Options of new machines have no effect on one that exists. */
static int check_unused(const struct agent *a, struct err *err) {
    const struct new_options *n = &a->o->made;
    bool given = n->image || n->net.count || n->env.count || n->spec.mem || n->spec.cpu_milli ||
                 n->spec.disk || a->o->budget || (a->o->login && !a->uses_login);
    if (!given)
        return 0;
    err_set(err, ERR_EXISTS,
            "machine '%s' exists, and --image, --net, --env, --mem, --cpus, "
            "--disk, --budget and --login are for a new one",
            a->name);
    return err_remedy(err,
                      "change it with carrel net, set or models raise, or delete it: carrel rm "
                      "%s",
                      a->name);
}

static int machine_use(struct agent *a, const json_t *m, struct err *err) {
    char age[16];
    snprintf(a->machine, sizeof(a->machine), "%s", client_text(m, "id"));
    snprintf(a->name, sizeof(a->name), "%s", client_text(m, "name"));
    a->uses_login = a->row->login && strcmp(meta_of(m, META_LOGIN), a->row->login->name) == 0;
    agent_home_of(a, m);
    table_age(client_text(m, "created"), age);
    if (check_unused(a, err) < 0 || wake(a, m, err) < 0)
        return -1;
    cli_done(
        a->o->quiet,
        "agent %s in machine %s, with the copy of %s that it got %s ago; budget: carrel models "
        "show %s",
        a->row->name, a->name, a->slice.top, age, a->name);
    return 0;
}

/* Changes that were not shipped are lost with the machine, so they need a yes. */
static int check_changes(struct agent *a, struct err *err) {
    char question[512];
    long long count;
    if (a->o->yes)
        return 0;
    if (agent_changes(a, &count, err) < 0)
        return err_wrap(err, "--fresh");
    snprintf(question, sizeof(question),
             "machine %s has %lld change%s, which may not be shipped; delete it? [y/N] ", a->name,
             count, count == 1 ? "" : "s");
    if (!count || (!a->o->task && agent_confirms(question)))
        return 0;
    err_set(err, ERR_BUSY, "machine '%s' has changes, so it was not deleted", a->name);
    return err_remedy(err, "ship them: carrel ship %s%s; or delete them: --fresh -y",
                      a->slice.is_repo ? "--uncommitted " : "", a->name);
}

/* Deletes the machine of the agent, so that a new one gets the present files. */
static int machine_drop(struct agent *a, const json_t *m, struct err *err) {
    char target[CLIENT_TARGET_SIZE], running[ID_SIZE] = "";
    const struct client_request r = {.method = "DELETE", .target = target};
    snprintf(a->machine, sizeof(a->machine), "%s", client_text(m, "id"));
    snprintf(a->name, sizeof(a->name), "%s", client_text(m, "name"));
    if (wake(a, m, err) < 0)
        return -1;
    int found = exec_find_running(a->client, a->machine, AGENT_EXEC, running, err);
    if (found < 0)
        return -1;
    if (found) {
        err_set(err, ERR_BUSY, "agent '%s' is running in machine '%s'", a->row->name, a->name);
        return err_remedy(err, "return to it: carrel agent %s", a->row->name);
    }
    if (check_changes(a, err) < 0 || client_target(target, err, "/v1/machines/%s", a->machine) < 0)
        return -1;
    return client_call(a->client, &r, NULL, err);
}

/* ---- a new machine ---- */

/* Names the machine AGENT-DIRECTORY-HASH; the hash keeps directories of one name apart. */
static void name_machine(struct agent *a) {
    char hash[SHA256_HEX], base[33];
    const char *last = strrchr(a->slice.top, '/');
    size_t n = 0;
    for (const char *at = last ? last + 1 : ""; *at && n < sizeof(base) - 1; at++)
        base[n++] = isalnum((unsigned char)*at) ? (char)tolower((unsigned char)*at) : '-';
    base[n] = '\0';
    sha256_hex(a->slice.top, strlen(a->slice.top), hash);
    snprintf(a->name, sizeof(a->name), "%s-%s-%.6s", a->row->name, base, hash);
}

/* Writes the budget as --models takes it: a plain number is money. */
static void budget_of(const struct agent *a, char ret[128]) {
    char asked[96];
    const char *given = a->o->budget, *money = client_text(a->conf, "money");
    if (!given && agent_project_budget(a->project, asked))
        given = asked;
    long long tokens = client_number(a->conf, "tokens");
    bool has_money = strcmp(money, "0") != 0;
    if (given && isdigit((unsigned char)given[0]))
        snprintf(ret, 128, "money=%.100s", given);
    else if (given)
        snprintf(ret, 128, "%.120s", given);
    else if (!tokens && !has_money)
        snprintf(ret, 128, "any");
    else if (!has_money)
        snprintf(ret, 128, "tokens=%lld", tokens);
    else if (!tokens)
        snprintf(ret, 128, "money=%.100s", money);
    else
        snprintf(ret, 128, "tokens=%lld,money=%.60s", tokens, money);
}

static int budget_check(const struct agent *a, const char *budget, struct err *err) {
    struct buf text DEFER(buf_done) = BUF(4096);
    struct jot j = JOT(&text);
    struct err none;
    const char *given = a->o->budget ? a->o->budget : "";
    if (strlen(given) < 100 && net_put_models(&j, budget, &none) == 0)
        return 0;
    err_set(err, ERR_INVALID, "--budget %.100s: not a limit of model calls", given);
    return err_remedy(err, "use any, an amount of money, tokens=N, or tokens=N,money=X");
}

static bool has_lfs(const char *top) {
    char path[PATH_MAX], text[4096];
    snprintf(path, sizeof(path), "%.*s/.gitattributes", PATH_MAX - 32, top);
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;
    text[n] = '\0';
    if (f)
        fclose(f);
    return strstr(text, "filter=lfs") != NULL;
}

static bool has_modules(const char *top) {
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%.*s/.gitmodules", PATH_MAX - 32, top);
    return access(path, F_OK) == 0;
}

/* A file .git may lead to the history of another directory, as in a linked working tree. */
static void tell_history(const struct agent *a) {
    const char *const words[] = {
        "-C", a->slice.top, "rev-parse", "--path-format=absolute", "--git-common-dir", NULL};
    struct buf dir DEFER(buf_done) = BUF(GIT_SAID_MAX);
    struct err none;
    if (a->slice.is_repo && git_ask(words, &dir, &none) == 0 && dir.len &&
        !agent_path_is_below(dir.data, a->slice.top))
        cli_done(a->o->quiet, "the history of the clone comes from %s", dir.data);
}

/* Says in one line what the agent got, what stayed out, and the budget. */
static void tell_new(const struct agent *a, const char *budget) {
    char what[PATH_MAX + 256];
    const char *top = a->slice.top;
    long dirty = a->slice.is_repo ? dirty_count(top) : 0;
    if (!a->slice.is_repo)
        snprintf(what, sizeof(what), "a copy of directory %s, with all its files", top);
    else if (dirty)
        snprintf(what, sizeof(what),
                 "a clone of repository %s with %ld changed or untracked file%s; ignored files%s "
                 "stayed out",
                 top, dirty, dirty == 1 ? "" : "s", has_modules(top) ? " and submodules" : "");
    else
        snprintf(what, sizeof(what), "a clone of repository %s; ignored files%s stayed out", top,
                 has_modules(top) ? " and submodules" : "");
    cli_done(a->o->quiet, "agent %s in new machine %s has %s; budget %s%s%s", a->row->name, a->name,
             what, budget, a->uses_login ? "; login " : "",
             a->uses_login ? a->row->login->name : "");
    if (a->slice.is_repo && has_lfs(top))
        cli_done(a->o->quiet,
                 "files in Git LFS are pointers in the machine, without their content");
    tell_history(a);
    if (access(top, W_OK) < 0)
        cli_done(a->o->quiet,
                 "directory %s is read-only for you: changes can be reviewed, but not shipped",
                 top);
}

/* Adds the hosts of the project file, and those that its packages come from. */
static int put_hosts(const struct agent *a, struct new_options *n,
                     char texts[2 * PROJECT_LIST_MAX][PROJECT_WORD_SIZE + 8], struct err *err) {
    const struct project *p = agent_project(a);
    size_t count = 0;
    for (size_t i = 0; p && i < p->allow_count; i++)
        snprintf(texts[count++], sizeof(*texts), "allow:%s", p->allow[i]);
    for (size_t i = 0; p && i < p->package_count; i++)
        snprintf(texts[count++], sizeof(*texts), "allow:%.*s", (int)strcspn(p->packages[i], ":"),
                 p->packages[i]);
    for (size_t i = 0; i < count; i++) {
        bool known = false;
        for (size_t k = 0; k < i; k++)
            known |= strcmp(texts[k], texts[i]) == 0;
        if (!known && n->net.count == OPTION_LIST_MAX)
            return err_set(err, ERR_LIMIT, "there are more than %d network rules", OPTION_LIST_MAX);
        if (!known)
            n->net.items[n->net.count++] = texts[i];
    }
    return 0;
}

static int machine_make(struct agent *a, const char *program, struct err *err) {
    char dir[PATH_MAX + 64], own[PATH_MAX + 64], budget[128], meta[3][PATH_MAX + 32];
    char home[AGENT_HOME_SIZE + 32];
    char hosts[2 * PROJECT_LIST_MAX][PROJECT_WORD_SIZE + 8];
    json_t *made DEFER(json_decrefp) = NULL;
    struct new_options n = a->o->made;
    const char *top = a->slice.top;
    name_machine(a);
    budget_of(a, budget);
    snprintf(meta[0], sizeof(meta[0]), META_AGENT "=%s", a->row->name);
    snprintf(meta[1], sizeof(meta[1]), META_DIR "=%s", top);
    snprintf(dir, sizeof(dir), a->slice.is_repo ? "%s:%s:dirty" : "%s:%s:cow", top, top);
    snprintf(own, sizeof(own), "%s:" AGENT_INSIDE ":ro", program);
    if (strchr(top, ':'))
        return err_set(err, ERR_INVALID, "the path '%s' contains a colon", top);
    if (budget_check(a, budget, err) < 0 || put_hosts(a, &n, hosts, err) < 0 ||
        agent_home_make(a, home, err) < 0)
        return -1;
    if (*home)
        n.spec.volumes.items[n.spec.volumes.count++] = home;
    n.name = a->name;
    n.models = budget;
    n.quiet = true;
    n.image = n.image ? n.image : a->row->image;
    n.meta = (struct option_list){.items = {meta[0], meta[1]}, .count = 2};
    if (a->uses_login) {
        snprintf(meta[2], sizeof(meta[2]), META_LOGIN "=%s", a->row->login->name);
        n.meta.items[n.meta.count++] = meta[2];
        n.handed.logins = (struct option_list){.items = {a->row->login->name}, .count = 1};
    }
    if (a->slice.is_repo)
        n.handed.repos = (struct option_list){.items = {dir}, .count = 1};
    else
        n.spec.dirs.items[n.spec.dirs.count++] = dir;
    if (*program)
        n.spec.dirs.items[n.spec.dirs.count++] = own;
    if (new_make(&n, a->client, &made, err) < 0)
        return err_wrap(err, "cannot make the machine of agent '%s'", a->row->name);
    snprintf(a->machine, sizeof(a->machine), "%s", client_text(made, "id"));
    a->is_new = true;
    tell_new(a, budget);
    return 0;
}

int agent_machine_open(struct agent *a, struct err *err) {
    json_t *list DEFER(json_decrefp) = NULL;
    const json_t *found;
    char program[PATH_MAX] = "";
    if (!a->client->local) {
        err_set(err, ERR_UNSUPPORTED, "carrel agent works only with a daemon on this host");
        return err_remedy(err, "unset CARREL_URL");
    }
    if (agent_slice_find(&a->slice, err) < 0 || agent_project_open(a, err) < 0 ||
        machine_find(a, &found, &list, err) < 0)
        return -1;
    if (found && !a->o->fresh)
        return machine_use(a, found, err);
    if (found && machine_drop(a, found, err) < 0)
        return -1;
    if (a->o->resume && !agent_home_exists(a)) {
        err_set(err, ERR_NOT_FOUND, "agent '%s' has no session for directory '%s'", a->row->name,
                a->slice.top);
        return err_remedy(err, "start one: carrel agent %s", a->row->name);
    }
    if (a->o->login && !a->row->login) {
        err_set(err, ERR_UNSUPPORTED, "agent '%s' cannot use a login", a->row->name);
        return err_remedy(err, "use an API key: see docs/reference/models.md");
    }
    a->uses_login = a->o->login;
    if (!a->uses_login && agent_check_models(a, err) < 0)
        return -1;
    if (a->row->packages && !agent_program_is_there(a->row, program) &&
        agent_program_make(a->client, a->row, a->o->quiet, program, err) < 0)
        return -1;
    return machine_make(a, program, err);
}
