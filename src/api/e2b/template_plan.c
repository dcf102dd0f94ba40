#include "api/e2b/template_plan.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/e2b/template_context.h"
#include "base/alloc.h"
#include "base/defer.h"
#include "base/hex.h"
#include "base/parse.h"
#include "base/utf8.h"

enum { PATH_SIZE = 4096, USER_SIZE = 65, WHAT_MAX = 1000, VALUE_MAX = 64 << 10, ENV_MAX = 256 };

#define MARK "e2b"
#define NO_START ":"

/* $1: user, $2: "true" if the user may become root without a password */
static const char user_script[] =
    "id -u \"$1\" >/dev/null 2>&1 || useradd --create-home --shell /bin/bash \"$1\" ||\n"
    "    adduser -D \"$1\" || exit 1\n"
    "[ \"$2\" = true ] || exit 0\n"
    "mkdir -p /etc/sudoers.d && printf '%s ALL=(ALL:ALL) NOPASSWD: ALL\\n' \"$1\" "
    ">\"/etc/sudoers.d/90-$1\" &&\n"
    "    chmod 0440 \"/etc/sudoers.d/90-$1\"\n";

/* $1: directory, $2: its owner. Directories that exist keep theirs. */
static const char workdir_script[] =
    "d=$1 first=\n"
    "while [ ! -d \"$d\" ]; do first=$d; d=$(dirname \"$d\"); done\n"
    "[ -z \"$first\" ] || { mkdir -p \"$1\" && chown -R \"$2\" \"$first\"; }\n";

struct planning {
    struct template_plan *plan;
    const struct template_request *request;
    json_t *steps; /* of the recipe */
    json_t *env;
    char user[USER_SIZE], workdir[PATH_SIZE];
};

/* ---- what a sandbox starts with ---- */

static const char *word_at(const json_t *list, size_t i) {
    const char *text = json_string_value(json_array_get(list, i));
    return text ? text : "";
}

static uint64_t number_at(const json_t *list, size_t i) {
    uint64_t n = 0;
    return parse_u64(word_at(list, i), 0, UINT32_MAX, &n, NULL) == 0 ? n : 0;
}

bool template_start_read(const json_t *config, struct template_start *ret) {
    const json_t *list = json_object_get(config, "command");
    if (json_array_size(list) != 8 || strcmp(word_at(list, 4), MARK) != 0)
        return false;
    *ret = (struct template_start){
        .start = word_at(list, 3),
        .ready = word_at(list, 5),
        .cpus = number_at(list, 6),
        .mem_mb = number_at(list, 7),
    };
    if (strcmp(ret->start, NO_START) == 0)
        ret->start = NULL;
    if (!*ret->ready)
        ret->ready = NULL;
    return true;
}

static json_t *start_command(const struct template_base *base, const struct template_request *r) {
    struct template_start s = {0};
    if (base->is_template && !template_start_read(base->config, &s))
        s = (struct template_start){0};
    const char *start = r->start && *r->start ? r->start : s.start;
    const char *ready = r->ready && *r->ready ? r->ready : s.ready;
    char cpus[24], mem[24];
    snprintf(cpus, sizeof(cpus), "%llu", (unsigned long long)r->cpus);
    snprintf(mem, sizeof(mem), "%llu", (unsigned long long)r->mem_mb);
    return json_pack("[s,s,s,s,s,s,s,s]", "/bin/bash", "-l", "-c", start ? start : NO_START, MARK,
                     ready ? ready : "", cpus, mem);
}

/* ---- steps of the recipe ---- */

static json_t *step_add(struct planning *p, const char *word, const char *what, const char *place) {
    char *text DEFER_FREE = xformat("%s%s%s", word, *word ? " " : "", what);
    size_t n = strlen(text);
    if (n > WHAT_MAX)
        text[utf8_end(text, WHAT_MAX)] = '\0';
    json_t *step = json_pack("{s:s, s:s}", "what", text, "place", place);
    json_array_append_new(p->steps, step);
    return step;
}

static json_t *step_make(struct planning *p, const char *word, const char *what,
                         const char *place) {
    json_t *step = step_add(p, word, what, place);
    json_object_set_new(step, "make", json_true());
    if (p->request->net)
        json_object_set_new(step, "net", json_pack("[s]", "*"));
    return step;
}

static void step_script(json_t *step, const char *script, const char *one, const char *two) {
    json_object_set_new(step, "user", json_string("root"));
    json_object_set_new(step, "cwd", json_string("/"));
    json_object_set_new(step, "argv",
                        json_pack("[s,s,s,s,s,s]", "/bin/sh", "-c", script, MARK, one, two));
}

/* ---- values ---- */

static bool is_name_byte(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

static int put_variable(const struct planning *p, const char *name, size_t n, struct buf *out) {
    char key[256];
    if (n >= sizeof(key))
        return 0;
    snprintf(key, sizeof(key), "%.*s", (int)n, name);
    const char *value = json_string_value(json_object_get(p->env, key));
    return !value || buf_add(out, value, strlen(value)) ? 0 : -1;
}

/* Replaces $NAME and ${NAME} by what earlier steps and the base set. */
static int expand(const struct planning *p, const char *text, struct buf *out) {
    if (!buf_add(out, "", 0))
        return -1;
    while (*text) {
        size_t plain = strcspn(text, "$");
        if (!buf_add(out, text, plain))
            return -1;
        text += plain;
        if (!*text)
            break;
        bool braced = text[1] == '{';
        const char *name = text + 1 + braced;
        size_t n = 0;
        while (is_name_byte(name[n]))
            n++;
        if (n == 0 || (braced && name[n] != '}')) {
            if (!buf_add(out, text++, 1))
                return -1;
            continue;
        }
        if (put_variable(p, name, n, out) < 0)
            return -1;
        text = name + n + braced;
    }
    return 0;
}

/* Joins a path to the working directory. The result has no "." and "..". */
static int path_join(const char *dir, const char *path, char ret[PATH_SIZE], struct err *err) {
    char *whole DEFER_FREE = path[0] == '/' ? xstrdup(path) : xformat("%s/%s", dir, path);
    size_t len = 0, n;
    for (const char *at = whole; *at; at += n + (at[n] == '/')) {
        n = strcspn(at, "/");
        if (n == 0 || (n == 1 && at[0] == '.'))
            continue;
        if (n == 2 && at[0] == '.' && at[1] == '.') {
            while (len && ret[--len] != '/')
                continue;
            continue;
        }
        if (len + n + 2 >= PATH_SIZE)
            return err_set(err, ERR_INVALID, "the path '%.100s' is too long", path);
        ret[len++] = '/';
        memcpy(ret + len, at, n);
        len += n;
    }
    if (!len)
        ret[len++] = '/';
    ret[len] = '\0';
    return 0;
}

static int user_check(const char *user, bool group, struct err *err) {
    size_t n = strlen(user);
    bool ok = n && n < USER_SIZE && user[0] != '-';
    for (size_t i = 0; i < n; i++)
        ok &=
            is_name_byte(user[i]) || user[i] == '-' || user[i] == '.' || (group && user[i] == ':');
    return ok ? 0 : err_set(err, ERR_INVALID, "'%.60s' is not a valid user name", user);
}

/* ---- steps of the client ---- */

/* One step of the client, while it is translated. */
struct client_step {
    const char *type;
    const json_t *args;
    size_t count;
    const char *hash; /* NULL: none */
    char place[TEMPLATE_STEP_SIZE];
};

static int plan_run(struct planning *p, const struct client_step *s, struct err *err) {
    const char *command = word_at(s->args, 0);
    const char *user = s->count > 1 && *word_at(s->args, 1) ? word_at(s->args, 1) : p->user;
    if (!*command)
        return err_set(err, ERR_INVALID, "RUN requires a command");
    if (user_check(user, false, err) < 0)
        return -1;
    json_t *step = step_make(p, "RUN", command, s->place);
    json_object_set_new(step, "command", json_string(command));
    json_object_set_new(step, "user", json_string(user));
    json_object_set_new(step, "cwd", json_string(p->workdir));
    json_object_set_new(step, "env", json_deep_copy(p->env));
    return 0;
}

static int plan_env(struct planning *p, const struct client_step *s, struct err *err) {
    if (s->count == 0 || s->count % 2)
        return err_set(err, ERR_INVALID, "ENV requires names with a value each");
    for (size_t i = 0; i < s->count; i += 2) {
        struct buf value DEFER(buf_done) = BUF(VALUE_MAX);
        const char *name = word_at(s->args, i);
        if (!*name || strchr(name, '=') || strlen(name) > 255)
            return err_set(err, ERR_INVALID, "ENV: '%.60s' is not a valid name", name);
        if (expand(p, word_at(s->args, i + 1), &value) < 0)
            return err_set(err, ERR_LIMIT, "ENV: the value of '%.60s' is too long", name);
        json_object_set_new(p->env, name, json_stringn(value.data, value.len));
    }
    if (json_object_size(p->env) > ENV_MAX)
        return err_set(err, ERR_LIMIT, "ENV: there are more than %d variables", ENV_MAX);
    step_add(p, "ENV", word_at(s->args, 0), s->place);
    return 0;
}

static int plan_workdir(struct planning *p, const struct client_step *s, struct err *err) {
    char path[PATH_SIZE];
    if (!*word_at(s->args, 0))
        return err_set(err, ERR_INVALID, "WORKDIR requires a path");
    if (path_join(p->workdir, word_at(s->args, 0), path, err) < 0)
        return -1;
    snprintf(p->workdir, sizeof(p->workdir), "%s", path);
    step_script(step_make(p, "WORKDIR", word_at(s->args, 0), s->place), workdir_script, p->workdir,
                p->user);
    return 0;
}

static int plan_user(struct planning *p, const struct client_step *s, struct err *err) {
    const char *user = word_at(s->args, 0);
    if (user_check(user, false, err) < 0)
        return -1;
    snprintf(p->user, sizeof(p->user), "%s", user);
    step_script(step_make(p, "USER", user, s->place), user_script, p->user,
                strcmp(word_at(s->args, 1), "true") == 0 ? "true" : "false");
    return 0;
}

static int copy_mode(const char *text, int *ret, struct err *err) {
    char *end = NULL;
    long mode = *text ? strtol(text, &end, 8) : -1;
    if (*text && (*end || mode < 0 || mode > 07777))
        return err_set(err, ERR_INVALID, "COPY: '%.20s' are not valid permissions", text);
    *ret = (int)mode;
    return 0;
}

/* A destination that ends with "/" is a directory. */
static int copy_to(const struct planning *p, const char *to, char ret[PATH_SIZE], struct err *err) {
    size_t n = strlen(to);
    if (path_join(p->workdir, to, ret, err) < 0)
        return -1;
    bool is_dir = n && (to[n - 1] == '/' || strcmp(to, ".") == 0 || strcmp(to, "..") == 0);
    size_t len = strlen(ret);
    if (is_dir && len > 1) /* path_join() leaves room for it */
        snprintf(ret + len, PATH_SIZE - len, "/");
    return 0;
}

static int plan_copy(struct planning *p, const struct client_step *s, struct err *err) {
    struct template_copy *copy = &p->plan->copies[p->plan->copy_count];
    const char *source = word_at(s->args, 0), *owner = word_at(s->args, 2);
    char to[PATH_SIZE], clean[CONTEXT_PATH_SIZE];
    if (!*source || !*word_at(s->args, 1))
        return err_set(err, ERR_INVALID, "COPY requires a source and a destination");
    if (!s->hash || !hex_is(s->hash, TEMPLATE_HASH_SIZE - 1))
        return err_set(err, ERR_INVALID, "COPY requires the hash of its files");
    if (context_source(source, clean, err) < 0 || copy_to(p, word_at(s->args, 1), to, err) < 0 ||
        copy_mode(word_at(s->args, 3), &copy->mode, err) < 0 ||
        user_check(*owner ? owner : p->user, true, err) < 0)
        return -1;
    char *key DEFER_FREE = xformat("%s %s", s->hash, word_at(s->args, 3));
    char *what DEFER_FREE = xformat("%s %s", source, word_at(s->args, 1));
    json_t *step = step_make(p, "COPY", what, s->place);
    copy->step = json_array_size(p->steps) - 1;
    snprintf(copy->hash, sizeof(copy->hash), "%s", s->hash);
    copy->source = xstrdup(source);
    json_object_set_new(step, "archive", json_integer((json_int_t)p->plan->copy_count++));
    json_object_set_new(step, "key", json_string(key));
    json_object_set_new(step, "chown", json_string(*owner ? owner : p->user));
    json_object_set_new(step, "to", json_string(to));
    copy->to = json_string_value(json_object_get(step, "to"));
    return 0;
}

static int client_step_read(const json_t *value, size_t i, struct client_step *ret,
                            struct err *err) {
    const json_t *hash = json_object_get(value, "filesHash");
    size_t at;
    *ret = (struct client_step){.type = json_string_value(json_object_get(value, "type")),
                                .args = json_object_get(value, "args"),
                                .hash = json_string_value(hash)};
    ret->count = json_array_size(ret->args);
    snprintf(ret->place, sizeof(ret->place), "step %zu", i + 1);
    if (!ret->type)
        return err_set(err, ERR_INVALID, "the step has no type");
    for (at = 0; at < ret->count; at++)
        if (!json_is_string(json_array_get(ret->args, at)))
            return err_set(err, ERR_INVALID, "an argument is not a text");
    return 0;
}

static int plan_step(struct planning *p, const json_t *value, size_t i, struct err *err) {
    static const struct {
        const char *type;
        int (*plan)(struct planning *p, const struct client_step *s, struct err *err);
    } types[] = {{"RUN", plan_run},         {"ENV", plan_env},   {"ARG", plan_env},
                 {"WORKDIR", plan_workdir}, {"USER", plan_user}, {"COPY", plan_copy},
                 {"ADD", plan_copy}};
    struct client_step step;
    if (client_step_read(value, i, &step, err) < 0)
        return -1;
    for (size_t k = 0; k < sizeof(types) / sizeof(*types); k++)
        if (strcasecmp(step.type, types[k].type) == 0)
            return types[k].plan(p, &step, err);
    return err_set(err, ERR_INVALID, "steps of the type '%.40s' are not supported", step.type);
}

/* ---- the whole ---- */

/* Steps start with the variables, the user and the directory of the base. */
static int plan_base(struct planning *p, const struct template_base *base, struct err *err) {
    const char *user = json_string_value(json_object_get(base->config, "user"));
    const char *workdir = json_string_value(json_object_get(base->config, "workdir"));
    const json_t *entry;
    size_t i;
    p->env =
        json_pack("{s:s}", "PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    json_array_foreach(json_object_get(base->config, "env"), i, entry) {
        const char *text = json_string_value(entry), *value = text ? strchr(text, '=') : NULL;
        if (value && value > text)
            json_object_setn_new(p->env, text, (size_t)(value - text), json_string(value + 1));
    }
    if (!base->is_template) {
        user = "user";
        workdir = "/home/user";
    }
    snprintf(p->user, sizeof(p->user), "%s", user && *user ? user : "root");
    if (path_join("/", workdir ? workdir : "/", p->workdir, err) < 0)
        return -1;
    if (base->is_template)
        step_add(p, "FROM", base->what, "base");
    else
        step_script(step_make(p, "FROM", base->what, "base"), user_script, "user", "true");
    return 0;
}

static int plan_steps(struct planning *p, struct err *err) {
    const json_t *steps = p->request->steps, *step;
    size_t i;
    if (steps && !json_is_array(steps))
        return err_set(err, ERR_INVALID, "field 'steps' must be a list");
    p->plan->steps = json_array_size(steps);
    if (p->plan->steps > TEMPLATE_STEPS_MAX)
        return err_set(err, ERR_LIMIT, "field 'steps' has more than %d entries",
                       TEMPLATE_STEPS_MAX);
    json_array_foreach(steps, i, step) {
        if (plan_step(p, step, i, err) < 0)
            return err_wrap(err, "step %zu", i + 1);
    }
    return 0;
}

int template_plan_make(const struct template_base *base, const struct template_request *r,
                       struct template_plan *ret, struct err *err) {
    struct planning p = {.plan = ret, .request = r, .steps = json_array()};
    bool force = r->force;
    size_t i;
    const json_t *step;
    *ret = (struct template_plan){0};
    json_array_foreach(r->steps, i, step) {
        force |= json_is_true(json_object_get(step, "force"));
    }
    ret->recipe =
        json_pack("{s:s, s:b, s:o}", "base", base->image, "no_cache", (int)force, "steps", p.steps);
    int status = plan_base(&p, base, err);
    if (status == 0)
        status = plan_steps(&p, err);
    if (status == 0) {
        json_t *end = step_make(&p, "", "finalize", "finalize");
        json_object_set_new(end, "config",
                            json_pack("{s:O, s:s, s:s, s:o}", "env", p.env, "user", p.user,
                                      "workdir", p.workdir, "command", start_command(base, r)));
    } else {
        template_plan_done(ret);
    }
    json_decref(p.env);
    return status;
}

void template_plan_done(struct template_plan *p) {
    json_decref(p->recipe);
    for (size_t i = 0; i < p->copy_count; i++)
        free(p->copies[i].source);
    *p = (struct template_plan){0};
}

void template_copy_into(struct template_plan *p, size_t copy, const char *dir) {
    json_t *steps = json_object_get(p->recipe, "steps");
    json_t *step = json_array_get(steps, p->copies[copy].step);
    json_object_set_new(step, "to", json_string(dir));
    json_object_set_new(step, "into", json_true());
    p->copies[copy].to = json_string_value(json_object_get(step, "to"));
}

void template_step_name(const struct template_plan *p, uint64_t number,
                        char ret[TEMPLATE_STEP_SIZE]) {
    if (number <= 1)
        snprintf(ret, TEMPLATE_STEP_SIZE, "base");
    else if (number <= p->steps + 1)
        snprintf(ret, TEMPLATE_STEP_SIZE, "%u", (unsigned)(number - 1));
    else
        snprintf(ret, TEMPLATE_STEP_SIZE, "finalize");
}
