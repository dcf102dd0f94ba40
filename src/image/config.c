#include "image/config.h"

#include <stdlib.h>
#include <string.h>

#include "base/defer.h"
#include "base/jot.h"
#include "base/native.h"

const char *image_arch(void) {
    return NATIVE_OCI_ARCH;
}

static void texts_done(struct config_texts *t) {
    while (t->count)
        free(t->v[--t->count]);
}

void image_config_done(struct image_config *c) {
    free(c->user);
    free(c->workdir);
    free(c->arch);
    texts_done(&c->env);
    texts_done(&c->entrypoint);
    texts_done(&c->command);
    *c = (struct image_config){0};
}

/* Strings of a configuration go into environments and messages, so their length is limited. */
static int check_text(const char *text, const char *what, struct err *err) {
    if (strlen(text) > CONFIG_TEXT_MAX)
        return err_set(err, ERR_LIMIT, "%s in the image's configuration is longer than %d KiB",
                       what, CONFIG_TEXT_MAX >> 10);
    return 0;
}

static int take_text(const json_t *object, const char *name, char **ret, struct err *err) {
    const json_t *value = json_object_get(object, name);
    const char *text = json_string_value(value);
    if (!value || json_is_null(value) || (text && !*text))
        return 0;
    if (!text)
        return err_set(err, ERR_INVALID, "field '%s' of the image's configuration is not a string",
                       name);
    if (check_text(text, name, err) < 0)
        return -1;
    *ret = strdup(text);
    return *ret ? 0 : err_set(err, ERR_LIMIT, "out of memory");
}

static size_t name_length(const char *pair) {
    return strcspn(pair, "=");
}

/* Returns the index of an environment variable, or the index at which to insert it. */
static size_t env_place(const struct config_texts *env, const char *pair, int *ret_same) {
    size_t n = name_length(pair), at = 0;
    *ret_same = 0;
    for (; at < env->count; at++) {
        size_t m = name_length(env->v[at]);
        int order = memcmp(env->v[at], pair, m < n ? m : n);
        if (order == 0)
            order = m < n ? -1 : m > n;
        *ret_same = order == 0;
        if (order >= 0)
            break;
    }
    return at;
}

int image_config_set_env(struct image_config *c, const char *pair, struct err *err) {
    int same;
    if (check_text(pair, "an environment variable", err) < 0)
        return -1;
    if (!strchr(pair, '=') || pair[0] == '=')
        return err_set(err, ERR_INVALID, "the image's environment entry '%.60s' is not NAME=VALUE",
                       pair);
    size_t at = env_place(&c->env, pair, &same);
    if (!same && c->env.count == CONFIG_ENV_MAX)
        return err_set(err, ERR_LIMIT, "the image has more than %d environment variables",
                       CONFIG_ENV_MAX);
    char *copy = strdup(pair);
    if (!copy)
        return err_set(err, ERR_LIMIT, "out of memory");
    if (same) {
        free(c->env.v[at]);
    } else {
        memmove(c->env.v + at + 1, c->env.v + at, (c->env.count - at) * sizeof(*c->env.v));
        c->env.count++;
    }
    c->env.v[at] = copy;
    return 0;
}

static int take_list(const json_t *object, const char *name, size_t max, struct config_texts *ret,
                     struct image_config *env, struct err *err) {
    const json_t *list = json_object_get(object, name);
    size_t i;
    json_t *value;
    if (!list || json_is_null(list))
        return 0;
    if (!json_is_array(list))
        return err_set(err, ERR_INVALID, "field '%s' of the image's configuration is not a list",
                       name);
    if (json_array_size(list) > max)
        return err_set(err, ERR_LIMIT,
                       "field '%s' of the image's configuration has more than %zu entries", name,
                       max);
    json_array_foreach(list, i, value) {
        const char *text = json_string_value(value);
        if (!text)
            return err_set(
                err, ERR_INVALID,
                "field '%s' of the image's configuration contains an entry that is not a string",
                name);
        if (env) {
            if (image_config_set_env(env, text, err) < 0)
                return -1;
            continue;
        }
        if (check_text(text, name, err) < 0)
            return -1;
        if (!(ret->v[ret->count] = strdup(text)))
            return err_set(err, ERR_LIMIT, "out of memory");
        ret->count++;
    }
    return 0;
}

struct names {
    const char *user, *workdir, *env, *entrypoint, *command;
};

static int take_all(const json_t *object, const struct names *n, struct image_config *c,
                    struct err *err) {
    if (take_text(object, n->user, &c->user, err) < 0 ||
        take_text(object, n->workdir, &c->workdir, err) < 0 ||
        take_list(object, n->env, CONFIG_ENV_MAX, NULL, c, err) < 0 ||
        take_list(object, n->entrypoint, CONFIG_WORDS_MAX, &c->entrypoint, NULL, err) < 0 ||
        take_list(object, n->command, CONFIG_WORDS_MAX, &c->command, NULL, err) < 0)
        return -1;
    if (c->workdir && c->workdir[0] != '/')
        return err_set(err, ERR_INVALID, "the image's working directory '%.60s' is not absolute",
                       c->workdir);
    return 0;
}

static json_t *config_load(const char *json, size_t len, struct err *err) {
    json_error_t why;
    if (len > CONFIG_JSON_MAX) {
        err_set(err, ERR_LIMIT, "the image's configuration is larger than %d MiB",
                CONFIG_JSON_MAX >> 20);
        return NULL;
    }
    json_t *root = json_loadb(json, len, JSON_REJECT_DUPLICATES, &why);
    if (!root) {
        err_set(err, ERR_INVALID, "the image's configuration is not JSON: %s", why.text);
        return NULL;
    }
    if (json_is_object(root))
        return root;
    json_decref(root);
    err_set(err, ERR_INVALID, "the image's configuration is not a JSON object");
    return NULL;
}

int image_config_read_oci(const char *json, size_t len, struct image_config *ret, struct err *err) {
    static const struct names names = {"User", "WorkingDir", "Env", "Entrypoint", "Cmd"};
    json_t *root DEFER(json_decrefp) = config_load(json, len, err);
    *ret = (struct image_config){0};
    if (!root)
        return -1;
    const json_t *config = json_object_get(root, "config");
    if (config && !json_is_object(config) && !json_is_null(config))
        return err_set(err, ERR_INVALID,
                       "field 'config' of the image's configuration is not a JSON object");
    if (take_text(root, "architecture", &ret->arch, err) == 0 &&
        take_all(config, &names, ret, err) == 0)
        return 0;
    image_config_done(ret);
    return -1;
}

int image_config_read(const char *json, size_t len, struct image_config *ret, struct err *err) {
    static const struct names names = {"user", "workdir", "env", "entrypoint", "command"};
    json_t *root DEFER(json_decrefp) = config_load(json, len, err);
    *ret = (struct image_config){0};
    if (!root)
        return -1;
    if (take_text(root, "arch", &ret->arch, err) == 0 && take_all(root, &names, ret, err) == 0)
        return 0;
    image_config_done(ret);
    return -1;
}

static void print_list(struct jot *j, const char *name, const struct config_texts *t) {
    if (!t->count)
        return;
    jot_array(j, name);
    for (size_t i = 0; i < t->count; i++)
        jot_string(j, NULL, t->v[i]);
    jot_end(j, ']');
}

int image_config_print(const struct image_config *c, struct buf *ret, struct err *err) {
    struct jot j = JOT(ret);
    size_t before = ret->len;
    jot_object(&j, NULL);
    if (c->arch)
        jot_string(&j, "arch", c->arch);
    print_list(&j, "command", &c->command);
    print_list(&j, "entrypoint", &c->entrypoint);
    print_list(&j, "env", &c->env);
    if (c->user)
        jot_string(&j, "user", c->user);
    if (c->workdir)
        jot_string(&j, "workdir", c->workdir);
    jot_end(&j, '}');
    return j.failed || ret->len - before > CONFIG_BYTES_MAX
               ? err_set(err, ERR_LIMIT, "the image's configuration is larger than %d KiB",
                         CONFIG_BYTES_MAX >> 10)
               : 0;
}
