#include "api/e2b/code.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/e2b/code_inner.h"
#include "base/alloc.h"
#include "base/defer.h"
#include "service/exec/exec.h"

static const struct code_language languages[] = {
    {"python", "py", INTERPRETER_PYTHON, false, false},
    {"javascript", "js", INTERPRETER_JAVASCRIPT, false, false},
    {"typescript", "ts", INTERPRETER_JAVASCRIPT, true, false},
    {"bash", "sh", INTERPRETER_PYTHON, false, true},
};
enum { LANGUAGES = sizeof(languages) / sizeof(*languages), LISTED_DEFAULTS = 2 };

static const struct code_language *language_of(const char *name) {
    for (size_t i = 0; i < LANGUAGES; i++)
        if (strcmp(name, languages[i].name) == 0 || strcmp(name, languages[i].short_name) == 0)
            return &languages[i];
    return NULL;
}

/* ---- the contexts of a machine ---- */

static struct code_context *context_new(struct envd_call *c, const struct code_language *language,
                                        const char *id) {
    struct code *code = envd_code(c->envd);
    struct code_context *k = xnew(struct code_context), **at = &code->contexts;
    while (*at) /* lists tell the oldest first */
        at = &(*at)->next;
    *k = (struct code_context){.code = code, .at = at, .language = language, .who = c->who};
    snprintf(k->id, sizeof(k->id), "%s", id);
    snprintf(k->machine, sizeof(k->machine), "%s", c->machine);
    *at = k;
    return k;
}

void code_context_free(struct code_context *k) {
    *k->at = k->next;
    if (k->next)
        k->next->at = k->at;
    if (k->coproc)
        coproc_free(k->coproc);
    for (struct code_job *job = k->jobs, *next; job; job = next) {
        next = job->next;
        free(job);
    }
    loop_timer_free(k->limit);
    free(k);
}

static struct code_context *context_find(struct envd_call *c, const char *id) {
    for (struct code_context *k = envd_code(c->envd)->contexts; k; k = k->next)
        if (strcmp(k->machine, c->machine) == 0 && strcmp(k->id, id) == 0)
            return k;
    return NULL;
}

static size_t context_count(struct envd_call *c) {
    size_t n = 0;
    for (struct code_context *k = envd_code(c->envd)->contexts; k; k = k->next)
        n += strcmp(k->machine, c->machine) == 0;
    return n;
}

static bool is_default(const char *id) {
    const struct code_language *l = language_of(id);
    return l && strcmp(l->name, id) == 0;
}

/* A context that an earlier daemon made: its command is "code.LANGUAGE.ID". */
static void context_row(void *arg, const void *of) {
    struct envd_call *c = arg;
    const struct exec_view *view = of;
    char name[16];
    size_t prefix = strlen(CODE_PREFIX);
    if (!view->name || strncmp(view->name, CODE_PREFIX, prefix) != 0)
        return;
    const char *dot = strchr(view->name + prefix, '.');
    if (!dot || (size_t)(dot - view->name) - prefix >= sizeof(name) ||
        strlen(dot + 1) >= CODE_ID_SIZE || context_find(c, dot + 1))
        return;
    snprintf(name, sizeof(name), "%.*s", (int)(dot - view->name - (ptrdiff_t)prefix),
             view->name + prefix);
    const struct code_language *language = language_of(name);
    if (!language || context_count(c) >= CODE_CONTEXTS)
        return;
    struct code_context *k = context_new(c, language, dot + 1);
    snprintf(k->cwd, sizeof(k->cwd), "%s", view->cwd ? view->cwd : "/");
    snprintf(k->home, sizeof(k->home), "%s", k->cwd);
    snprintf(k->user, sizeof(k->user), "%s", view->user ? view->user : "");
}

static void machine_seen(void *arg, const struct machine_view *v, const struct err *err) {
    bool *ended = arg;
    (void)v;
    *ended = err;
}

/* Forgets the contexts of machines that have ended, and finds those of an earlier daemon. */
static void contexts_refresh(struct envd_call *c) {
    const struct list_request r = {.states = "running", .limit = STORE_PAGE_MAX};
    char next[CURSOR_SIZE];
    struct err err;
    for (struct code_context *k = envd_code(c->envd)->contexts, *after; k; k = after) {
        bool ended = false;
        after = k->next;
        service_show(c->service, &k->who, k->machine, machine_seen, &ended); /* answers at once */
        if (ended && !k->jobs)
            code_context_free(k);
    }
    /* An error means that the machine has no commands that can be listed. */
    (void)service_exec_list(c->service, &c->who, c->machine, &r, context_row, c, next, &err);
}

static struct code_context *context_make(struct envd_call *c, const struct code_language *language,
                                         const char *id, const char *cwd) {
    struct err err;
    if (context_count(c) >= CODE_CONTEXTS) {
        envd_fail(c, CONNECT_RESOURCE_EXHAUSTED,
                  "the sandbox has %d contexts, which is the limit: remove one", CODE_CONTEXTS);
        return NULL;
    }
    struct code_context *k = context_new(c, language, id);
    if (envd_path(cwd ? cwd : "~", c->user.home, k->cwd, &err) < 0) {
        code_context_free(k);
        envd_fail_with(c, &err);
        return NULL;
    }
    snprintf(k->user, sizeof(k->user), "%s", c->user.name);
    snprintf(k->home, sizeof(k->home), "%s", c->user.home);
    return k;
}

/* The default contexts exist always; they start when they are used. */
static struct code_context *context_get(struct envd_call *c, const char *id) {
    struct code_context *k = context_find(c, id);
    if (!k && is_default(id))
        return context_make(c, language_of(id), id, NULL);
    if (!k)
        envd_refuse(c, 404, "Context %.100s not found", id);
    return k;
}

/* ---- requests ---- */

static const char *text_of(struct envd_call *c, const char *name) {
    const char *text = json_string_value(json_object_get(c->json, name));
    return text && *text ? text : NULL;
}

/* NULL: the call was refused. */
static const struct code_language *language_in(struct envd_call *c) {
    const char *name = text_of(c, "language");
    const struct code_language *l = language_of(name ? name : "python");
    if (!l)
        envd_refuse(
            c, 404,
            "language '%.100s' is not supported; python, javascript, typescript and bash are",
            name);
    return l;
}

static bool has_env(struct envd_call *c) {
    const char *name;
    json_t *value, *env = json_object_get(c->json, "env_vars");
    json_object_foreach(env, name,
                        value) if (!*name || strchr(name, '=') || !json_is_string(value)) {
        envd_refuse(c, 400, "the variable '%.100s' has no text", name);
        return false;
    }
    return true;
}

static void code_execute(struct envd_call *c) {
    const char *code = json_string_value(json_object_get(c->json, "code"));
    const char *id = text_of(c, "context_id");
    const struct code_language *language;
    contexts_refresh(c);
    if (!code) {
        envd_refuse(c, 422, "the field 'code' must be a text");
    } else if (strlen(code) > CODE_MAX) {
        envd_refuse(c, 413, "the code is larger than %d KiB", CODE_MAX >> 10);
    } else if (id && text_of(c, "language")) {
        envd_refuse(c, 400, "Only one of context_id or language can be provided");
    } else if (has_env(c) && (language = language_in(c))) {
        struct code_context *k = context_get(c, id ? id : language->name);
        if (k)
            code_submit(k, c, CODE_EXECUTE);
    }
}

static void code_create(struct envd_call *c) {
    const struct code_language *language = language_in(c);
    if (!language)
        return;
    contexts_refresh(c);
    struct code_context *k = context_make(c, language, id_new('x').text, text_of(c, "cwd"));
    if (k)
        code_submit(k, c, CODE_START);
}

static void put_context(struct jot *j, const char *id, const char *language, const char *cwd) {
    jot_object(j, NULL);
    jot_string(j, "id", id);
    jot_string(j, "language", language);
    jot_string(j, "cwd", cwd);
    jot_end(j, '}');
}

void code_tell_context(struct envd_call *c, const struct code_context *k) {
    struct buf text DEFER(buf_done) = BUF(ENVD_ANSWER_MAX);
    struct jot j = JOT(&text);
    put_context(&j, k->id, k->language->name, k->cwd);
    envd_answer(c, &j, &text);
}

static void code_list(struct envd_call *c) {
    struct buf text DEFER(buf_done) = BUF(ENVD_ANSWER_MAX);
    struct jot j = JOT(&text);
    contexts_refresh(c);
    jot_array(&j, NULL);
    for (size_t i = 0; i < LISTED_DEFAULTS; i++)
        put_context(&j, languages[i].name, languages[i].name, c->user.home);
    for (struct code_context *k = envd_code(c->envd)->contexts; k; k = k->next)
        if (strcmp(k->machine, c->machine) == 0 && strcmp(k->id, languages[0].name) != 0 &&
            strcmp(k->id, languages[1].name) != 0)
            put_context(&j, k->id, k->language->name, k->cwd);
    jot_end(&j, ']');
    envd_answer(c, &j, &text);
}

/* The id in "/contexts/ID" or "/contexts/ID/restart". */
static void with_context(struct envd_call *c, enum code_work work) {
    struct http_text path = c->http->head->path;
    size_t at = strlen("/contexts/"), n = 0;
    char id[CODE_ID_SIZE] = "";
    while (at + n < path.n && path.s[at + n] != '/')
        n++;
    if (n < sizeof(id))
        snprintf(id, sizeof(id), "%.*s", (int)n, path.s + at);
    contexts_refresh(c);
    struct code_context *k = context_get(c, id);
    if (k)
        code_submit(k, c, work);
}

static void code_restart(struct envd_call *c) {
    with_context(c, CODE_RESTART);
}

static void code_remove(struct envd_call *c) {
    with_context(c, CODE_REMOVE);
}

/* "*" stands for the id of a context. */
static const struct {
    const char *verb, *path;
    struct envd_method method;
} methods[] = {
    {"POST", "/execute", {"/execute", ENVD_REST, true, code_execute}},
    {"POST", "/contexts", {"/contexts", ENVD_REST, true, code_create}},
    {"GET", "/contexts", {"/contexts", ENVD_REST, true, code_list}},
    {"DELETE", "/contexts/*", {"/contexts", ENVD_REST, true, code_remove}},
    {"POST", "/contexts/*/restart", {"/contexts", ENVD_REST, true, code_restart}},
};

static bool path_is(struct http_text path, const char *shape) {
    size_t i = 0;
    for (; *shape; shape++) {
        size_t from = i;
        if (*shape != '*') {
            if (i >= path.n || path.s[i++] != *shape)
                return false;
            continue;
        }
        while (i < path.n && path.s[i] != '/')
            i++;
        if (i == from)
            return false;
    }
    return i == path.n;
}

const struct envd_method *code_method(struct http_text verb, struct http_text path) {
    for (size_t i = 0; i < sizeof(methods) / sizeof(*methods); i++)
        if (http_text_is(verb, methods[i].verb) && path_is(path, methods[i].path))
            return &methods[i].method;
    return NULL;
}

/* ---- all contexts ---- */

struct code *code_new(struct loop *loop, struct service *service) {
    struct code *code = xnew(struct code);
    *code = (struct code){.loop = loop, .service = service};
    return code;
}

void code_free(struct code *code) {
    while (code && code->contexts)
        code_context_free(code->contexts);
    free(code);
}
