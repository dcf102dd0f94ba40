/* Translates the instructions of a Dockerfile into lines of a recipe. */
#include "cli/image/dockerfile.h"

#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/image_id.h"
#include "cli/image/dockerfile_inner.h"

enum { DOCKER_PATH_MAX = 4000 };

struct docker {
    struct arena *arena;
    struct recipe *recipe;
    struct buf *notes;
    const struct dockerfile_input *in;
    struct docker_reader reader;
    struct docker_vars globals; /* ARG before FROM */
    struct docker_vars vars;
    const char *shell[RECIPE_WORDS_MAX];
    size_t shell_count;
    const char *workdir; /* absolute, without a slash at its end unless it is "/" */
    const struct docker_line *line;
    size_t left;     /* see struct docker_expand */
    bool *used_args; /* of in->args: whether an ARG has this name */
};

/* ---- lines of the recipe ---- */

static struct recipe_line *docker_add(struct docker *d, enum recipe_verb verb, const char *text,
                                      struct err *err) {
    struct recipe *r = d->recipe;
    if (r->count == RECIPE_LINES_MAX) {
        err_set(err, ERR_LIMIT, "the Dockerfile has more than %d instructions", RECIPE_LINES_MAX);
        return NULL;
    }
    struct recipe_line *l = &r->lines[r->count++];
    *l = (struct recipe_line){.verb = verb, .number = d->line->number, .text = text};
    l->shown = arena_printf(d->arena, "%s %s", d->line->name, d->line->rest);
    return l;
}

static int docker_word(struct recipe_line *l, const char *word, struct err *err) {
    if (l->count == RECIPE_WORDS_MAX)
        return err_set(err, ERR_LIMIT, "more than %d arguments", RECIPE_WORDS_MAX);
    l->words[l->count++] = word;
    return 0;
}

static char *docker_value(struct docker *d, const struct docker_vars *vars, const char *word,
                          struct err *err) {
    const struct docker_expand x = {d->arena, vars, d->reader.escape, &d->left};
    return docker_expand(&x, word, err);
}

/* Reads the exec form, a JSON array of strings. -1: the text is not one. */
static int docker_json(struct docker *d, const char *text, const char **ret, size_t max) {
    if (*text != '[')
        return -1;
    json_t *list DEFER(json_decrefp) = json_loads(text, 0, NULL), *word;
    size_t i;
    if (!list || json_array_size(list) > max)
        return -1;
    json_array_foreach(list, i, word) {
        if (!json_is_string(word))
            return -1;
        ret[i] = arena_copy(d->arena, json_string_value(word), json_string_length(word));
    }
    return (int)json_array_size(list);
}

/* Adds the words of a command: those of the exec form, or the shell and its script. */
static int docker_command(struct docker *d, struct recipe_line *l, struct err *err) {
    const char *words[RECIPE_WORDS_MAX], *script = d->line->rest;
    int n = d->line->body ? -1 : docker_json(d, script, words, RECIPE_WORDS_MAX);
    for (int i = 0; i < n; i++)
        if (docker_word(l, words[i], err) < 0)
            return -1;
    if (n >= 0)
        return 0;
    if (d->line->sole)
        script = d->line->body;
    else if (d->line->body)
        script = arena_printf(d->arena, "%s\n%s", script, d->line->body);
    for (size_t i = 0; i < d->shell_count; i++)
        if (docker_word(l, d->shell[i], err) < 0)
            return -1;
    return docker_word(l, script, err);
}

/* Takes the next option ("--name" or "--name=value") from the front of *text; NULL: none. */
static char *docker_flag(struct docker *d, char **text, const char **ret_value) {
    if (strncmp(*text, "--", 2) != 0)
        return NULL;
    size_t n = strcspn(*text, " \t"), name = strcspn(*text, "= \t");
    char *flag = arena_copy(d->arena, *text, name);
    *ret_value = name < n ? arena_copy(d->arena, *text + name + 1, n - name - 1) : "";
    *text += n + strspn(*text + n, " \t");
    return flag;
}

/* ---- paths ---- */

/* Joins and cleans paths: no "." and "..", and a slash at the end only if `path` has one. */
static char *docker_path(struct docker *d, const char *path, struct err *err) {
    if (strlen(d->workdir) + strlen(path) >= DOCKER_PATH_MAX) {
        err_set(err, ERR_LIMIT, "path '%.40s...' is too long", path);
        return NULL;
    }
    char *joined = arena_printf(d->arena, "%s/%s", *path == '/' ? "" : d->workdir, path);
    size_t len = strlen(path), n = 0;
    bool slash = len == 0 || path[len - 1] == '/' || strcmp(path, ".") == 0 ||
                 (len > 1 && strcmp(path + len - 2, "/.") == 0);
    char *to = arena_alloc(d->arena, strlen(joined) + 3);
    for (const char *at = joined; *(at += strspn(at, "/"));) {
        size_t part = strcspn(at, "/");
        if (part == 2 && strncmp(at, "..", 2) == 0) {
            while (n > 0 && to[--n] != '/')
                ;
        } else if (part != 1 || *at != '.') {
            to[n++] = '/';
            memcpy(to + n, at, part);
            n += part;
        }
        at += part;
    }
    if (n == 0 || slash)
        to[n++] = '/';
    to[n] = '\0';
    return to;
}

/* ---- instructions ---- */

bool dockerfile_image_name(const char *reference, char *ret, size_t size) {
    static const char *const hub[] = {"docker.io/library/", "docker.io/", "library/"};
    for (size_t i = 0; i < sizeof(hub) / sizeof(*hub); i++)
        if (strncmp(reference, hub[i], strlen(hub[i])) == 0) {
            reference += strlen(hub[i]);
            break;
        }
    size_t n = strlen(reference);
    if (n > 7 && strcmp(reference + n - 7, ":latest") == 0)
        n -= 7;
    if (n == 0 || n >= size)
        return false;
    for (size_t i = 0; i <= n; i++)
        ret[i] = i == n ? '\0' : reference[i] == '/' ? '.' : reference[i];
    return image_name_ok(ret) || strcmp(ret, "host") == 0;
}

static int docker_base_vars(struct docker *d, struct err *err) {
    for (size_t i = 0; i < d->in->env_count; i++) {
        const char *pair = d->in->env[i], *equals = strchr(pair, '=');
        if (equals &&
            docker_vars_set(&d->vars, arena_copy(d->arena, pair, (size_t)(equals - pair)),
                            arena_copy(d->arena, equals + 1, strlen(equals + 1)), true, err) < 0)
            return -1;
    }
    return docker_vars_get(&d->vars, "PATH")
               ? 0
               : docker_vars_set(&d->vars, "PATH", DOCKERFILE_PATH, true, err);
}

static int docker_from_check(struct docker *d, char **words, int n, struct err *err) {
    if (d->recipe->count) {
        err_set(err, ERR_UNSUPPORTED,
                "a second FROM: builds with several stages are not supported");
        return err_remedy(err, "build each stage as an image, and copy files between machines");
    }
    if (n != 1 && !(n == 3 && strcasecmp(words[1], "AS") == 0))
        return err_set(err, ERR_INVALID, "FROM takes IMAGE or IMAGE AS NAME");
    return 0;
}

static int docker_from(struct docker *d, struct err *err) {
    char *words[8], *text = d->line->rest, name[IMAGE_NAME_SIZE];
    const char *value;
    if (docker_flag(d, &text, &value)) {
        err_set(err, ERR_UNSUPPORTED, "options of FROM are not supported");
        return err_remedy(err, "leave out --platform: images are those of this processor");
    }
    int n = docker_split(d->arena, text, false, 0, words, 8);
    if (docker_from_check(d, words, n, err) < 0)
        return -1;
    char *image = docker_value(d, &d->globals, words[0], err);
    if (!image)
        return -1;
    if (!dockerfile_image_name(image, name, sizeof(name))) {
        err_set(err, ERR_INVALID, "FROM %.100s: not a name that an image in Carrel can have",
                image);
        return err_remedy(err, "import or tag the image under a short name, and write FROM NAME");
    }
    struct recipe_line *l = docker_add(d, RECIPE_BASE, arena_printf(d->arena, "%s", name), err);
    if (!l || docker_word(l, l->text, err) < 0 || docker_word(l, image, err) < 0)
        return -1;
    d->workdir = d->in->workdir && d->in->workdir[0] == '/' ? d->in->workdir : "/";
    return docker_base_vars(d, err);
}

static int docker_run(struct docker *d, struct err *err) {
    char *text = d->line->rest, *flag;
    const char *value;
    if ((flag = docker_flag(d, &text, &value))) {
        err_set(err, ERR_UNSUPPORTED, "option %.30s of RUN is not supported", flag);
        return err_remedy(err, strcmp(flag, "--mount") == 0
                                   ? "use COPY for files; steps that did not change are cached"
                                   : "leave the option out, and see: carrel image build --net");
    }
    if (d->line->sole && strncmp(d->line->body, "#!", 2) == 0) {
        err_set(err, ERR_UNSUPPORTED, "a here-document with its own interpreter is not supported");
        return err_remedy(err, "RUN python3 <<EOF, with the interpreter before the here-document");
    }
    if (!*text)
        return err_set(err, ERR_INVALID, "RUN takes a command");
    struct recipe_line *l = docker_add(d, RECIPE_EXEC, d->line->rest, err);
    if (!l || docker_command(d, l, err) < 0)
        return -1;
    return l->count ? 0 : err_set(err, ERR_INVALID, "RUN takes a command");
}

static int docker_default_command(struct docker *d, enum recipe_verb verb, struct err *err) {
    struct recipe_line *l = docker_add(d, verb, d->line->rest, err);
    return l ? docker_command(d, l, err) : -1;
}

static int docker_cmd(struct docker *d, struct err *err) {
    return docker_default_command(d, RECIPE_COMMAND, err);
}

static int docker_entrypoint(struct docker *d, struct err *err) {
    return docker_default_command(d, RECIPE_ENTRYPOINT, err);
}

static int docker_shell(struct docker *d, struct err *err) {
    const char *words[RECIPE_WORDS_MAX];
    int n = docker_json(d, d->line->rest, words, RECIPE_WORDS_MAX - 1);
    if (n < 1)
        return err_set(err, ERR_INVALID,
                       "SHELL takes a JSON array, such as [\"/bin/bash\", \"-c\"]");
    memcpy(d->shell, words, (size_t)n * sizeof(*words));
    d->shell_count = (size_t)n;
    return 0;
}

static bool docker_is_name(const char *name) {
    return *name && !isdigit((unsigned char)*name) &&
           name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")] ==
               '\0';
}

/* Reads NAME=VALUE with variables replaced; *ret_value is NULL without "=". */
static int docker_pair(struct docker *d, const struct docker_vars *vars, char *word,
                       char **ret_name, char **ret_value, struct err *err) {
    char *equals = strchr(word, '=');
    if (equals)
        *equals = '\0';
    if (!(*ret_name = docker_value(d, vars, word, err)))
        return -1;
    if (!docker_is_name(*ret_name))
        return err_set(err, ERR_INVALID, "'%.40s' is not a name of a variable", *ret_name);
    *ret_value = NULL;
    return equals && !(*ret_value = docker_value(d, vars, equals + 1, err)) ? -1 : 0;
}

static int docker_env_add(struct docker *d, const char *name, const char *value, struct err *err) {
    struct recipe_line *l =
        docker_add(d, RECIPE_ENV, arena_printf(d->arena, "%s=%s", name, value), err);
    if (!l)
        return -1;
    l->shown = arena_printf(d->arena, "ENV %s=%s", name, value);
    l->count = 1;
    return docker_vars_set(&d->vars, name, value, true, err);
}

static int docker_env(struct docker *d, struct err *err) {
    char *words[RECIPE_WORDS_MAX], *names[RECIPE_WORDS_MAX], *values[RECIPE_WORDS_MAX];
    char *text = d->line->rest;
    int n = docker_split(d->arena, text, true, d->reader.escape, words, RECIPE_WORDS_MAX);
    if (n < 1)
        return err_set(err, ERR_INVALID, "ENV takes NAME=VALUE, up to %d times", RECIPE_WORDS_MAX);
    if (!strchr(words[0], '=')) { /* ENV NAME VALUE, an old form */
        char *rest = text + strlen(words[0]);
        rest += strspn(rest, " \t");
        if (!*rest)
            return err_set(err, ERR_INVALID, "ENV takes NAME=VALUE");
        words[0] = arena_printf(d->arena, "%s=%s", words[0], rest);
        n = 1;
    }
    for (int i = 0; i < n; i++) /* all values are read before the first one is set */
        if (docker_pair(d, &d->vars, words[i], &names[i], &values[i], err) < 0)
            return -1;
    for (int i = 0; i < n; i++) {
        if (!values[i])
            return err_set(err, ERR_INVALID, "ENV takes NAME=VALUE, not '%.40s'", names[i]);
        if (docker_env_add(d, names[i], values[i], err) < 0)
            return -1;
    }
    return 0;
}

/* The value of --build-arg for this name; NULL: not given. */
static const char *docker_given_arg(const struct docker *d, const char *name) {
    size_t n = strlen(name);
    const char *found = NULL;
    for (size_t i = 0; i < d->in->arg_count; i++)
        if (strncmp(d->in->args[i], name, n) == 0 && d->in->args[i][n] == '=') {
            found = d->in->args[i] + n + 1;
            d->used_args[i] = true;
        }
    return found;
}

static bool docker_is_env(const struct docker *d, const char *name) {
    for (size_t i = 0; i < d->vars.count; i++)
        if (d->vars.v[i].is_env && strcmp(d->vars.v[i].name, name) == 0)
            return true;
    return false;
}

static int docker_arg_add(struct docker *d, char *word, struct err *err) {
    bool global = d->recipe->count == 0;
    struct docker_vars *vars = global ? &d->globals : &d->vars;
    char *name, *value;
    if (docker_pair(d, vars, word, &name, &value, err) < 0)
        return -1;
    const char *given = docker_given_arg(d, name);
    if (given)
        value = arena_copy(d->arena, given, strlen(given));
    else if (!value && !global && docker_vars_get(&d->globals, name))
        value = arena_printf(d->arena, "%s", docker_vars_get(&d->globals, name));
    if (docker_vars_set(vars, name, value, false, err) < 0)
        return -1;
    if (global || !value || docker_is_env(d, name))
        return 0;
    struct recipe_line *l =
        docker_add(d, RECIPE_ARG, arena_printf(d->arena, "%s=%s", name, value), err);
    if (!l)
        return -1;
    l->shown = arena_printf(d->arena, "ARG %s", name);
    l->count = 1;
    return 0;
}

static int docker_arg(struct docker *d, struct err *err) {
    char *words[RECIPE_WORDS_MAX];
    int n = docker_split(d->arena, d->line->rest, true, d->reader.escape, words, RECIPE_WORDS_MAX);
    if (n < 1)
        return err_set(err, ERR_INVALID, "ARG takes NAME or NAME=VALUE");
    for (int i = 0; i < n; i++)
        if (docker_arg_add(d, words[i], err) < 0)
            return -1;
    return 0;
}

static int docker_workdir(struct docker *d, struct err *err) {
    char *value = docker_value(d, &d->vars, d->line->rest, err);
    if (!value)
        return -1;
    if (!*value)
        return err_set(err, ERR_INVALID, "WORKDIR takes a path");
    char *path = docker_path(d, value, err);
    size_t n = path ? strlen(path) : 0;
    if (!path)
        return -1;
    if (n > 1 && path[n - 1] == '/')
        path[n - 1] = '\0';
    d->workdir = path;
    struct recipe_line *l = docker_add(d, RECIPE_DIR, path, err);
    return l ? docker_word(l, path, err) : -1;
}

static int docker_user(struct docker *d, struct err *err) {
    char *value = docker_value(d, &d->vars, d->line->rest, err);
    if (!value)
        return -1;
    if (!*value || strpbrk(value, " \t"))
        return err_set(err, ERR_INVALID, "USER takes USER or USER:GROUP");
    struct recipe_line *l = docker_add(d, RECIPE_AS, value, err);
    return l ? docker_word(l, value, err) : -1;
}

/* ---- COPY and ADD ---- */

static int docker_copy_flags(struct docker *d, struct recipe_line *l, char **text,
                             struct err *err) {
    const char *value;
    for (char *flag; (flag = docker_flag(d, text, &value));) {
        char *expanded = docker_value(d, &d->vars, value, err);
        if (!expanded)
            return -1;
        if (strcmp(flag, "--chown") == 0 && *expanded) {
            l->chown = expanded;
        } else if (strcmp(flag, "--chmod") == 0 && *expanded && strlen(expanded) <= 4 &&
                   expanded[strspn(expanded, "01234567")] == '\0') {
            l->chmod = expanded;
        } else if (strcmp(flag, "--from") == 0) {
            err_set(err, ERR_UNSUPPORTED, "COPY --from is not supported");
            return err_remedy(err,
                              "copy the files out of a machine first: carrel cp MACHINE:PATH .");
        } else if (strcmp(flag, "--link") != 0) {
            return err_set(err, ERR_UNSUPPORTED, "option %.30s%s%.30s of %s is not supported", flag,
                           *value ? "=" : "", value, d->line->name);
        }
    }
    return 0;
}

static bool docker_ends(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* ADD downloads and unpacks; both are refused, because a copy would be another image. */
static int docker_add_check(const char *source, struct err *err) {
    static const char *const archives[] = {".tar",  ".tar.gz",  ".tgz",    ".tar.bz2",
                                           ".tbz2", ".tar.zst", ".tar.xz", ".txz"};
    if (strstr(source, "://") || strncmp(source, "git@", 4) == 0) {
        err_set(err, ERR_UNSUPPORTED, "ADD %.60s: ADD of a URL is not supported", source);
        return err_remedy(err, "download it beside the Dockerfile and use COPY, or use RUN curl "
                               "with --net HOST");
    }
    for (size_t i = 0; i < sizeof(archives) / sizeof(*archives); i++)
        if (docker_ends(source, archives[i])) {
            err_set(err, ERR_UNSUPPORTED, "ADD %.60s: ADD does not unpack archives here", source);
            return err_remedy(err, "COPY the archive and unpack it with RUN tar");
        }
    return 0;
}

/* Splits the arguments of COPY or ADD, in shell or exec form, and replaces variables. */
static int docker_copy_words(struct docker *d, const char *text, const char **ret,
                             struct err *err) {
    char *words[RECIPE_WORDS_MAX];
    int n = docker_json(d, text, ret, RECIPE_WORDS_MAX);
    if (n < 0) {
        n = docker_split(d->arena, text, false, 0, words, RECIPE_WORDS_MAX);
        for (int i = 0; i < n; i++)
            ret[i] = words[i];
    }
    if (n < 2)
        return err_set(err, ERR_INVALID, "%s takes one or more sources and a destination",
                       d->line->name);
    for (int i = 0; i < n; i++)
        if (!(ret[i] = docker_value(d, &d->vars, ret[i], err)))
            return -1;
    return n;
}

static int docker_copy(struct docker *d, struct err *err) {
    const char *words[RECIPE_WORDS_MAX];
    char *text = d->line->rest;
    if (d->line->body) {
        err_set(err, ERR_UNSUPPORTED, "here-documents of %s are not supported", d->line->name);
        return err_remedy(err, "put the text into a file, or use RUN cat >FILE <<EOF");
    }
    struct recipe_line *l = docker_add(d, RECIPE_COPY, d->line->rest, err);
    if (!l || docker_copy_flags(d, l, &text, err) < 0)
        return -1;
    int n = docker_copy_words(d, text, words, err);
    for (int i = 0; i < n; i++) {
        bool last = i == n - 1;
        if (!last && strcmp(d->line->name, "ADD") == 0 && docker_add_check(words[i], err) < 0)
            return -1;
        const char *word = last ? docker_path(d, words[i], err) : words[i];
        if (!word || docker_word(l, word, err) < 0)
            return -1;
    }
    return n < 0 ? -1 : 0;
}

/* ---- instructions without effect ---- */

static int docker_ignored(struct docker *d, struct err *err) {
    (void)err;
    if (d->notes &&
        !buf_addf(d->notes, "line %u of the Dockerfile: %s has no effect%s\n", d->line->number,
                  d->line->name, strcmp(d->line->name, "EXPOSE") == 0 ? "; see carrel expose" : ""))
        d->notes = NULL; /* enough was said */
    return 0;
}

static const struct {
    const char *name;
    int (*read)(struct docker *d, struct err *err);
} docker_instructions[] = {
    {"FROM", docker_from},
    {"RUN", docker_run},
    {"COPY", docker_copy},
    {"ADD", docker_copy},
    {"ENV", docker_env},
    {"ARG", docker_arg},
    {"WORKDIR", docker_workdir},
    {"USER", docker_user},
    {"CMD", docker_cmd},
    {"ENTRYPOINT", docker_entrypoint},
    {"SHELL", docker_shell},
    {"EXPOSE", docker_ignored},
    {"LABEL", docker_ignored},
    {"MAINTAINER", docker_ignored},
    {"VOLUME", docker_ignored},
    {"HEALTHCHECK", docker_ignored},
    {"STOPSIGNAL", docker_ignored},
};

static int docker_instruction(struct docker *d, struct err *err) {
    const char *name = d->line->name;
    if (d->recipe->count == 0 && strcmp(name, "FROM") != 0 && strcmp(name, "ARG") != 0)
        return err_set(err, ERR_INVALID, "%.20s before FROM: the first instruction must be FROM",
                       name);
    for (size_t i = 0; i < sizeof(docker_instructions) / sizeof(*docker_instructions); i++)
        if (strcmp(docker_instructions[i].name, name) == 0)
            return docker_instructions[i].read(d, err);
    if (strcmp(name, "ONBUILD") == 0) {
        err_set(err, ERR_UNSUPPORTED, "ONBUILD is not supported");
        return err_remedy(err, "put the instruction into the Dockerfiles that use this image");
    }
    return err_set(err, ERR_INVALID, "unknown instruction '%.20s'", name);
}

static int docker_translate(struct docker *d, struct err *err) {
    struct docker_line line;
    int more;
    d->line = &line;
    while ((more = docker_next(&d->reader, &line, err)) > 0)
        if (docker_instruction(d, err) < 0)
            return err_wrap(err, "line %u of the Dockerfile", line.number);
    if (more == 0 && d->recipe->count == 0)
        return err_set(err, ERR_INVALID, "the Dockerfile has no FROM");
    return more;
}

static int docker_open(const char *bytes, size_t len, struct recipe *ret, struct err *err) {
    *ret = (struct recipe){.kind = "Dockerfile"};
    if (len > RECIPE_BYTES_MAX)
        return err_set(err, ERR_LIMIT, "the Dockerfile is larger than %d KiB",
                       RECIPE_BYTES_MAX >> 10);
    if (memchr(bytes, '\0', len))
        return err_set(err, ERR_INVALID, "the Dockerfile is not text: it contains binary data");
    ret->lines = xcalloc(RECIPE_LINES_MAX, sizeof(*ret->lines));
    return 0;
}

/* Editors may put a mark of three bytes in front of a text in UTF-8. */
static struct docker_reader docker_reader_of(struct arena *arena, const char *bytes, size_t len) {
    size_t skip = len >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    return (struct docker_reader){.arena = arena,
                                  .at = arena_copy(arena, bytes + skip, len - skip),
                                  .number = 1,
                                  .escape = '\\'};
}

static void docker_note_args(struct docker *d) {
    for (size_t i = 0; d->notes && i < d->in->arg_count; i++) {
        int n = (int)strcspn(d->in->args[i], "=");
        if (!d->used_args[i] &&
            !buf_addf(d->notes, "--build-arg %.*s has no effect: the Dockerfile has no ARG %.*s\n",
                      n, d->in->args[i], n, d->in->args[i]))
            d->notes = NULL; /* enough was said */
    }
}

int dockerfile_read(const char *bytes, size_t len, const struct dockerfile_input *in,
                    struct recipe *ret, struct buf *notes, struct err *err) {
    struct docker *d DEFER_FREE = xnew(struct docker);
    if (docker_open(bytes, len, ret, err) < 0)
        return -1;
    d->arena = &ret->arena;
    d->recipe = ret;
    d->notes = notes;
    d->in = in;
    d->workdir = "/";
    d->left = DOCKERFILE_VALUES_MAX;
    d->shell[0] = "/bin/sh";
    d->shell[1] = "-c";
    d->shell_count = 2;
    d->reader = docker_reader_of(&ret->arena, bytes, len);
    bool *used DEFER_FREE = xcalloc(in->arg_count + 1, sizeof(bool));
    d->used_args = used;
    if (docker_translate(d, err) == 0) {
        docker_note_args(d);
        return 0;
    }
    recipe_done(ret);
    return -1;
}

bool dockerfile_is(const char *bytes, size_t len) {
    struct arena arena DEFER(arena_done) = {0};
    struct docker_line line;
    struct err err;
    if (len > RECIPE_BYTES_MAX || memchr(bytes, '\0', len))
        return false;
    struct docker_reader r = docker_reader_of(&arena, bytes, len);
    return docker_next(&r, &line, &err) > 0 &&
           (strcmp(line.name, "FROM") == 0 || strcmp(line.name, "ARG") == 0);
}
