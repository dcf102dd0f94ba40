#include "service/exec/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cell_command.h"
#include "base/parse.h"
#include "base/text/accounts.h"

/* The default environment. Nothing of the daemon's own environment is passed on. */
static const char *const defaults[][2] = {
    {"PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
    {"LANG", "C.UTF-8"},
    {"PAGER", "cat"},
    {"DEBIAN_FRONTEND", "noninteractive"},
    {"GIT_TERMINAL_PROMPT", "0"},
    {"PIP_NO_INPUT", "1"},
    {"NPM_CONFIG_YES", "true"},
};

/* Collected variables; a later one replaces an earlier one of the same name. */
struct gathering {
    const char *names[EXEC_ENV_MAX];
    const char *values[EXEC_ENV_MAX];
    size_t count;
    size_t bytes;
};

static int plan_gather(struct gathering *g, const char *name, const char *value, struct err *err) {
    size_t at = 0;
    if (!*name || strchr(name, '='))
        return err_set(err, ERR_INVALID, "'%.60s' is not a valid name of an environment variable",
                       name);
    while (at < g->count && strcmp(g->names[at], name) != 0)
        at++;
    if (at == EXEC_ENV_MAX)
        return err_set(err, ERR_LIMIT, "the command has more than %d environment variables",
                       EXEC_ENV_MAX);
    if (at < g->count)
        g->bytes -= strlen(name) + strlen(g->values[at]) + 2;
    g->bytes += strlen(name) + strlen(value) + 2;
    if (g->bytes > EXEC_TEXT_MAX)
        return err_set(err, ERR_LIMIT, "the environment of the command is larger than %d KiB",
                       EXEC_TEXT_MAX / 1024);
    g->names[at] = name;
    g->values[at] = value;
    g->count += at == g->count;
    return 0;
}

static int gather_pairs(struct gathering *g, const struct texts *pairs, struct err *err) {
    for (size_t i = 0; pairs && i + 1 < pairs->count; i += 2)
        if (plan_gather(g, pairs->v[i], pairs->v[i + 1], err) < 0)
            return -1;
    return 0;
}

static int plan_settle(struct exec_plan *p, const struct gathering *g, struct err *err) {
    size_t first = p->account ? 1 : 0; /* MSG_EXEC_NAMED: the user comes before the variables */
    p->env = calloc(g->count + first + 1, sizeof(*p->env));
    p->text = malloc(g->bytes + 1);
    if (!p->env || !p->text)
        return err_set(err, ERR_LIMIT, "out of memory");
    size_t at = 0;
    for (size_t i = 0; i < g->count; i++) {
        p->env[first + i] = p->text + at;
        at +=
            (size_t)snprintf(p->text + at, g->bytes + 1 - at, "%s=%s", g->names[i], g->values[i]) +
            1;
    }
    if (p->account) {
        p->env[0] = p->account;
        p->exec.flags |= MSG_EXEC_NAMED;
    }
    p->exec.env = (struct msg_strs){.v = p->env};
    return 0;
}

static void be(struct exec_plan *p, const char *user, const char *home, uint32_t uid,
               uint32_t gid) {
    p->user = user;
    p->home = home;
    p->exec.uid = uid;
    p->exec.gid = gid;
    p->exec.groups = (struct msg_groups){.count = 1, .v = {gid}};
}

static int no_user(const char *user, struct err *err) {
    err_set(err, ERR_INVALID, "'%.40s' is not a valid name of a user", user);
    return err_remedy(err, "use a name from the machine's /etc/passwd, or a number up to 65534");
}

/* A user that only the machine's passwd file has: name, or number with an unknown home. */
static int set_account(struct exec_plan *p, const char *user, uint32_t uid, bool has_names,
                       struct err *err) {
    if (!has_names && uid == MSG_ID_LOOKUP) {
        err_set(err, ERR_UNSUPPORTED,
                "cannot look up user '%.40s': the machine was started by an older version", user);
        return err_remedy(err, "use 'user', 'root' or a uid, or stop and start the machine");
    }
    be(p, user, has_names ? MSG_CWD_HOME : "/", uid, has_names ? MSG_ID_NONE : uid);
    return 0;
}

static int set_user(struct exec_plan *p, const char *user, const struct exec_defaults *image,
                    bool has_names, struct err *err) {
    uint64_t uid = MSG_ID_LOOKUP;
    p->account = has_names ? user ? user : image ? image->user : "user" : NULL;
    if (image && !user)
        be(p, image->user, image->home, image->uid, image->gid);
    else if (!user || strcmp(user, "user") == 0)
        be(p, "user", image ? "/" : "/home/user", 1000, 1000);
    else if (strcmp(user, "root") == 0)
        be(p, "root", "/root", 0, 0);
    else if (parse_u64(user, 0, 65534, &uid, NULL) == 0 || account_name_is_valid(user))
        return set_account(p, user, (uint32_t)uid, has_names, err);
    else
        return no_user(user, err);
    return 0;
}

static int set_argv(struct exec_plan *p, const struct exec_request *r, struct err *err) {
    static const char *const shell[] = {"/bin/sh", "-c"};
    if ((r->argv.count > 0) == (r->command != NULL)) {
        err_set(err, ERR_INVALID, "a command requires either field 'argv' or field 'command'");
        return err_remedy(err, "'argv' is a list of arguments, 'command' a line for the shell");
    }
    size_t bytes = r->command ? strlen(r->command) : 0;
    for (size_t i = 0; i < r->argv.count; i++)
        bytes += strlen(r->argv.v[i]) + 1;
    if (bytes > EXEC_TEXT_MAX)
        return err_set(err, ERR_LIMIT, "the command is larger than %d KiB", EXEC_TEXT_MAX / 1024);
    p->argv = calloc(r->argv.count + CELL_ALLOWED_BEFORE + 4, sizeof(*p->argv));
    if (!p->argv)
        return err_set(err, ERR_LIMIT, "out of memory");
    if (r->command) {
        memcpy(p->argv, shell, sizeof(shell));
        p->argv[2] = r->command;
        p->exec.flags |= MSG_EXEC_SHELL;
    } else {
        memcpy(p->argv, r->argv.v, r->argv.count * sizeof(*p->argv));
        if (!p->argv[0][0])
            return err_set(err, ERR_INVALID,
                           "the first argument of the command, the program name, is empty");
    }
    p->shown = p->argv;
    p->exec.argv = (struct msg_strs){.v = p->argv};
    return 0;
}

static int set_cwd(struct exec_plan *p, const char *cwd, const struct exec_defaults *image,
                   struct err *err) {
    bool is_home = !cwd && !image;
    if (!cwd)
        cwd = image ? image->cwd : p->home;
    if ((cwd[0] != '/' && !is_home) || strlen(cwd) > 4095)
        return err_set(err, ERR_INVALID, "the working directory '%.60s' is not an absolute path",
                       cwd);
    p->exec.cwd = (struct msg_str){.s = cwd, .n = (uint32_t)strlen(cwd)};
    return 0;
}

/* An image may lack the host's shell, but has /bin/sh. */
static int gather_account(struct gathering *g, const struct exec_plan *p,
                          const struct exec_defaults *image, struct err *err) {
    const char *const pairs[] = {"USER", p->user, "LOGNAME", p->user,
                                 "HOME", p->home, "SHELL",   image ? "/bin/sh" : "/bin/bash"};
    for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i += 2)
        if (plan_gather(g, pairs[i], pairs[i + 1], err) < 0)
            return -1;
    return 0;
}

/* The command `carrel` of the machine is found last, so that it hides no program of an image. */
static int gather_own_path(struct gathering *g, struct exec_plan *p, struct err *err) {
    size_t at = 0;
    while (strcmp(g->names[at], "PATH") != 0)
        at++;
    p->path = xformat("%s:" EXEC_OWN_PATH, g->values[at]);
    return plan_gather(g, "PATH", p->path, err);
}

static int set_env(struct exec_plan *p, const struct exec_request *r,
                   const struct exec_defaults *image, const struct texts *network_env,
                   const struct texts *machine_env, struct err *err) {
    struct gathering g = {.count = 0};
    bool known = strcmp(p->home, MSG_CWD_HOME) != 0;
    for (size_t i = 0; i < sizeof(defaults) / sizeof(*defaults); i++)
        if (plan_gather(&g, defaults[i][0], defaults[i][1], err) < 0)
            return -1;
    if (known && gather_account(&g, p, image, err) < 0)
        return -1;
    if (plan_gather(&g, "TERM", r->terminal ? "xterm-256color" : "dumb", err) < 0 ||
        (image && gather_pairs(&g, &image->env, err) < 0) || gather_own_path(&g, p, err) < 0)
        return -1;
    if (gather_pairs(&g, network_env, err) < 0 || gather_pairs(&g, machine_env, err) < 0 ||
        gather_pairs(&g, &r->env, err) < 0)
        return -1;
    return plan_settle(p, &g, err);
}

int exec_plan_make(struct exec_plan *ret, const struct exec_request *r,
                   const struct exec_defaults *image, const struct texts *network_env,
                   const struct texts *machine_env, const char *cwd, bool has_names,
                   struct err *err) {
    *ret = (struct exec_plan){0};
    if (set_argv(ret, r, err) < 0 || set_user(ret, r->user, image, has_names, err) < 0 ||
        set_cwd(ret, r->cwd ? r->cwd : cwd, image, err) < 0 ||
        set_env(ret, r, image, network_env, machine_env, err) < 0) {
        exec_plan_done(ret);
        return -1;
    }
    ret->exec.timeout_ms = r->timeout.value;
    if (r->terminal) {
        ret->exec.rows = (uint16_t)r->pty.rows.value;
        ret->exec.cols = (uint16_t)r->pty.cols.value;
    }
    return 0;
}

/* ---- cell machines ---- */

static int cell_unsupported(const char *what, const char *remedy, struct err *err) {
    err_set(err, ERR_UNSUPPORTED, "a cell machine does not support %s", what);
    return err_remedy(err, "%s", remedy);
}

static int check_cell_request(const struct exec_request *r, struct err *err) {
    if (r->command)
        return cell_unsupported("command lines of a shell",
                                "give the program and its arguments as separate words", err);
    if (r->terminal)
        return cell_unsupported("terminals", "run a program with carrel exec, without --tty", err);
    if (r->user && strcmp(r->user, "root") != 0)
        return cell_unsupported("users", "leave out --user", err);
    if (r->cwd && strcmp(r->cwd, "/") != 0)
        return cell_unsupported("working directories", "use absolute paths, and leave out --cwd",
                                err);
    return 0;
}

/* Memory of the worker itself, which counts for the limit of the machine too. */
#define CELL_OWN_BYTES (16ull << 20)

static uint64_t smaller(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* module: NULL, or limits that are lower than those of the machine. */
static void put_cell_limits(struct exec_plan *p, const struct cell_limits *limits,
                            const struct exec_module *module) {
    uint64_t own = limits->mem_bytes > 2 * CELL_OWN_BYTES ? CELL_OWN_BYTES : limits->mem_bytes / 2;
    uint64_t pages = (limits->mem_bytes - own) >> 16;
    const uint64_t numbers[] = {module ? smaller(module->fuel, limits->fuel) : limits->fuel,
                                limits->fuel_rate, module ? smaller(module->pages, pages) : pages};
    p->argv[0] = limits->knows_allow ? CELL_ALLOWED_NAME : CELL_MACHINE_NAME;
    if (limits->knows_allow) {
        p->argv[4] = limits->allowed;
        p->argv[5] = limits->machine;
    }
    if (module) {
        capabilities_text(module->allowed, p->allowed);
        p->argv[0] = CELL_MODULE_NAME;
        p->argv[4] = p->allowed;
    }
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
        snprintf(p->limits[i], sizeof(p->limits[i]), "%llu", (unsigned long long)numbers[i]);
        p->argv[1 + i] = p->limits[i];
    }
}

static int check_capabilities(const struct cell_limits *limits, const struct exec_module *module,
                              struct err *err) {
    if (module ? limits->knows_module : limits->knows_allow || !limits->allowed[0])
        return 0;
    err_set(err, ERR_UNSUPPORTED,
            "cannot give programs capabilities: the machine was started by an older version");
    return err_remedy(err, "stop and resume the machine: carrel stop, carrel resume");
}

int exec_plan_make_cell(struct exec_plan *ret, const struct exec_request *r,
                        const struct cell_limits *limits, const struct exec_defaults *image,
                        const struct texts *network_env, const struct texts *machine_env,
                        struct err *err) {
    struct gathering g = {.count = 0};
    *ret = (struct exec_plan){0};
    if (check_cell_request(r, err) < 0 || check_capabilities(limits, r->module, err) < 0 ||
        set_argv(ret, r, err) < 0 || (image && gather_pairs(&g, &image->env, err) < 0) ||
        gather_pairs(&g, network_env, err) < 0 || gather_pairs(&g, machine_env, err) < 0 ||
        gather_pairs(&g, &r->env, err) < 0 || plan_settle(ret, &g, err) < 0) {
        exec_plan_done(ret);
        return -1;
    }
    size_t before = limits->knows_allow ? CELL_ALLOWED_BEFORE : CELL_WORDS_BEFORE;
    memmove(ret->argv + before, ret->argv, (r->argv.count + 1) * sizeof(*ret->argv));
    ret->shown = ret->argv + before;
    put_cell_limits(ret, limits, r->module);
    be(ret, "root", "/", 0, 0);
    ret->exec.cwd = (struct msg_str){.s = "/", .n = 1};
    ret->exec.timeout_ms = r->timeout.value;
    return 0;
}

void exec_plan_done(struct exec_plan *p) {
    free(p->argv);
    free(p->env);
    free(p->text);
    free(p->path);
    *p = (struct exec_plan){0};
}
