/*
 * carrel image build: translates a recipe or a Dockerfile into the steps of a build, uploads the
 * files that they copy, and watches the build, which runs in the daemon.
 *
 * A step has everything that it does: its command with user, directory and variables, the hosts
 * that it may reach, and the configuration of the image after it. Machines reach only the hosts in
 * the recipe's net lines and, from the first packages line on, the mirrors that the image's apt
 * names.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fs/beneath.h"
#include "base/hex.h"
#include "base/sha256.h"
#include "base/tar.h"
#include "cli/image/build_copy.h"
#include "cli/image/build_source.h"
#include "cli/image/build_wait.h"
#include "cli/image/build_watch.h"
#include "cli/image/debian.h"
#include "cli/image/image.h"
#include "cli/image/recipe.h"
#include "cli/safe.h"

enum { HOSTS_MAX = 16, FILE_MAX = 64 << 20 };

/* Files that a step copies. */
struct build_files {
    const struct recipe_line *line;
    struct build_copy copy;
    struct buf bytes; /* of a `file` line: content of its file */
    mode_t mode;
};

struct build {
    struct client *client;
    const struct build_options *o;
    struct build_source from;
    json_t *steps;
    json_t *local; /* targets that may have private addresses */
    struct build_files *files;
    size_t file_count;
    const char *env[RECIPE_LINES_MAX];
    const char *net[HOSTS_MAX];
    size_t env_count, net_count;
    const char *args[RECIPE_LINES_MAX]; /* of a Dockerfile: variables of its commands only */
    size_t arg_count;
    const char *dirs[RECIPE_LINES_MAX]; /* directories that the next step creates */
    size_t dir_count;
    char run_as[128]; /* user of RUN */
    const char *run_in;
    bool apt; /* machines may reach the mirrors of their image's apt */
    const char *user, *workdir;
    const struct recipe_line *command, *entrypoint;
    size_t last; /* the last line that changes files */
};

static void build_done(struct build *b) {
    for (size_t i = 0; i < b->file_count; i++) {
        build_copy_done(&b->files[i].copy);
        buf_done(&b->files[i].bytes);
    }
    free(b->files);
    json_decref(b->steps);
    json_decref(b->local);
    build_source_done(&b->from);
}

/* ---- parts of a step ---- */

static json_t *texts_json(const char *const *v, size_t count) {
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_string(v[i]));
    return list;
}

static void set_pairs(json_t *object, const char *const *pairs, size_t count) {
    for (size_t i = 0; i < count; i++) {
        char name[256];
        size_t n = strcspn(pairs[i], "=");
        if (n >= sizeof(name))
            continue;
        snprintf(name, sizeof(name), "%.*s", (int)n, pairs[i]);
        json_object_set_new(object, name, json_string(pairs[i] + n + 1));
    }
}

static json_t *env_json(const struct build *b, bool with_args) {
    json_t *env = json_object();
    if (with_args)
        set_pairs(env, b->args, b->arg_count);
    set_pairs(env, b->env, b->env_count);
    return env;
}

/* A command alone would delete the entrypoint of the base image, which Dockerfiles keep. */
static void set_entrypoint(const struct build *b, json_t *config) {
    json_t *inherited = json_object_get(b->from.base, "entrypoint");
    if (b->entrypoint)
        json_object_set_new(config, "entrypoint",
                            texts_json(b->entrypoint->words, b->entrypoint->count));
    else if (b->from.is_dockerfile && b->command && json_array_size(inherited))
        json_object_set(config, "entrypoint", inherited);
}

/* The configuration that the recipe has set so far. */
static json_t *config_json(const struct build *b) {
    json_t *config = json_pack("{s:o}", "env", env_json(b, false));
    if (b->user)
        json_object_set_new(config, "user", json_string(b->user));
    if (b->workdir)
        json_object_set_new(config, "workdir", json_string(b->workdir));
    if (b->command)
        json_object_set_new(config, "command", texts_json(b->command->words, b->command->count));
    set_entrypoint(b, config);
    return config;
}

static json_t *net_json(const struct build *b) {
    json_t *net = texts_json(b->net, b->net_count);
    if (b->apt)
        json_array_append_new(net, json_string("apt"));
    return net;
}

static json_t *step_shown(const struct recipe_line *l, const char *how) {
    return l->shown
               ? json_pack("{s:s, s:s}", "what", l->shown, "how", how)
               : json_pack("{s:o, s:s}", "what",
                           json_sprintf("%s %s", recipe_verb_name(l->verb), l->text), "how", how);
}

/* ---- files ---- */

static int line_error(const struct build *b, const struct recipe_line *l, struct err *err) {
    return err_wrap(err, "line %u of the %s", l->number, b->from.recipe.kind);
}

/*
 * Reads a file in or below the directory of the recipe, once: the bytes that are hashed must be the
 * bytes that are copied. Other files are refused, because the author of a recipe may be a stranger.
 */
static int read_source(const struct build *b, struct build_files *f, struct err *err) {
    const char *name = f->line->words[0];
    char piece[16 << 10];
    struct stat st;
    int fd DEFER_CLOSE = beneath_open_file(b->from.dir, name, err);
    ssize_t n = 0;
    if (fd < 0)
        return line_error(b, f->line, err);
    if (fstat(fd, &st) < 0)
        return err_sys(err, "cannot read file '%s' of the recipe", name);
    f->mode = st.st_mode & 0755;
    while ((n = read(fd, piece, sizeof(piece))) > 0)
        if (!buf_add(&f->bytes, piece, (size_t)n))
            return err_set(err, ERR_LIMIT, "file '%s' of the recipe is larger than %d MiB", name,
                           FILE_MAX >> 20);
    return n < 0 ? err_sys(err, "cannot read file '%s' of the recipe", name) : 0;
}

static int collect_files(struct build *b, struct build_files *f, struct sha256 *key,
                         struct err *err) {
    if (f->line->verb == RECIPE_COPY)
        return build_copy_collect(&f->copy, b->from.dir, &b->from.ignore, f->line, key, err) < 0
                   ? line_error(b, f->line, err)
                   : 0;
    if (read_source(b, f, err) < 0)
        return -1;
    sha256_add(key, f->bytes.data ? f->bytes.data : "", f->bytes.len);
    sha256_add(key, &f->mode, sizeof(f->mode));
    return 0;
}

static int step_copy(struct build *b, const struct recipe_line *l, json_t *step, struct err *err) {
    char hex[2 * SHA256_BYTES + 1] = "";
    uint8_t hash[SHA256_BYTES];
    struct sha256 key;
    struct build_files *f = &b->files[b->file_count];
    *f = (struct build_files){.line = l, .bytes = BUF(FILE_MAX)};
    json_object_set_new(step, "archive", json_integer((json_int_t)b->file_count++));
    sha256_init(&key);
    if (collect_files(b, f, &key, err) < 0)
        return -1;
    sha256_end(&key, hash);
    hex_put(hash, SHA256_BYTES, hex);
    json_object_set_new(step, "key", json_string(hex));
    json_object_set_new(step, "to", json_string(l->words[l->count - 1]));
    json_object_set_new(step, "as_file", json_boolean(l->verb == RECIPE_FILE));
    json_object_set_new(step, "into", json_boolean(f->copy.has_dir || f->copy.sources > 1));
    if (l->chown)
        json_object_set_new(step, "chown", json_string(l->chown));
    return 0;
}

/* ---- commands ---- */

/* `line` NULL: the words of a Dockerfile's RUN, as its user and in its directory. */
static void step_run(const struct build *b, const struct recipe_line *l, const char *line,
                     json_t *step) {
    if (line)
        json_object_set_new(step, "command", json_string(line));
    else
        json_object_set_new(step, "argv", texts_json(l->words, l->count));
    json_object_set_new(step, "user", json_string(line ? "root" : b->run_as));
    json_object_set_new(step, "cwd", json_string(line ? "/" : b->run_in));
    json_object_set_new(step, "env", env_json(b, true));
}

static int step_install(const struct build *b, const struct recipe_line *l, json_t *step,
                        struct err *err) {
    struct buf line DEFER(buf_done) = BUF(64 << 10);
    bool fits = buf_addf(&line, "apt-get -q update && apt-get -q -y --no-install-recommends "
                                "-o APT::Sandbox::User=root install");
    for (size_t i = 0; fits && i < l->count; i++)
        fits = buf_addf(&line, " %s", l->words[i]);
    fits = fits && buf_addf(&line, " && apt-get clean && rm -rf /var/lib/apt/lists/*");
    if (!fits)
        return err_set(err, ERR_LIMIT, "line %u of the %s is too long", l->number,
                       b->from.recipe.kind);
    step_run(b, l, line.data, step);
    json_object_set_new(step, "fresh", json_true()); /* its mirrors are read from the image */
    return 0;
}

static int step_action(struct build *b, const struct recipe_line *l, json_t *step,
                       struct err *err) {
    switch (l->verb) {
    case RECIPE_PACKAGES:
        b->apt = true;
        return step_install(b, l, step, err);
    case RECIPE_FILE:
    case RECIPE_COPY:
        return step_copy(b, l, step, err);
    case RECIPE_EXEC:
    case RECIPE_RUN:
        step_run(b, l, l->verb == RECIPE_RUN ? l->text : NULL, step);
        return 0;
    default:
        return 0;
    }
}

/* ---- lines of the recipe ---- */

static bool changes_files(enum recipe_verb verb) {
    return verb == RECIPE_PACKAGES || verb == RECIPE_FILE || verb == RECIPE_RUN ||
           verb == RECIPE_COPY || verb == RECIPE_EXEC;
}

static int note_net(struct build *b, const char *target, struct err *err) {
    if (strcmp(target, "apt") == 0) {
        b->apt = true;
        return 0;
    }
    for (size_t i = 0; i < b->net_count; i++)
        if (strcmp(b->net[i], target) == 0)
            return 0;
    if (b->net_count == HOSTS_MAX)
        return err_set(err, ERR_LIMIT, "more than %d hosts for the lines to reach", HOSTS_MAX);
    b->net[b->net_count++] = target;
    return 0;
}

/* True if a line `net` of the recipe has this target. */
static bool recipe_reaches(const struct recipe *r, const char *target) {
    for (size_t i = 0; i < r->count; i++)
        for (size_t k = 0; r->lines[i].verb == RECIPE_NET && k < r->lines[i].count; k++)
            if (strcmp(r->lines[i].words[k], target) == 0)
                return true;
    return false;
}

/* --net TARGET[,local]. A recipe cannot open the local network: a stranger may have made it. */
static int note_net_option(struct build *b, const char *text, struct err *err) {
    static const char mark[] = ",local";
    size_t n = strlen(text), m = strlen(mark);
    bool is_local = n > m && strcmp(text + n - m, mark) == 0;
    if (!is_local)
        return note_net(b, text, err);
    json_t *target = json_stringn(text, n - m);
    if (!target || json_array_append_new(b->local, target) < 0)
        return err_set(err, ERR_INVALID, "--net %.100s: not a host or preset", text);
    /* A target of the recipe counts from its line on: a preset needs its tool in the image. */
    return recipe_reaches(&b->from.recipe, json_string_value(target))
               ? 0
               : note_net(b, json_string_value(target), err);
}

static int note_setting(struct build *b, const struct recipe_line *l, struct err *err) {
    switch (l->verb) {
    case RECIPE_ENV:
        b->env[b->env_count++] = l->text;
        return 0;
    case RECIPE_USER:
        b->user = l->words[0];
        return 0;
    case RECIPE_WORKDIR:
        b->workdir = l->words[0];
        return 0;
    case RECIPE_COMMAND:
        b->command = l;
        return 0;
    case RECIPE_ARG:
        b->args[b->arg_count++] = l->text;
        return 0;
    case RECIPE_DIR:
        b->workdir = b->run_in = b->dirs[b->dir_count++] = l->words[0];
        return 0;
    case RECIPE_AS:
        b->user = l->words[0];
        snprintf(b->run_as, sizeof(b->run_as), "%.*s", (int)strcspn(l->words[0], ":"), l->words[0]);
        return 0;
    case RECIPE_ENTRYPOINT:
        b->entrypoint = l;
        return 0;
    default:
        for (size_t i = 0; i < l->count; i++)
            if (note_net(b, l->words[i], err) < 0)
                return -1;
        return 0;
    }
}

/*
 * Settings after the last line that changes files are stored in the image of that line, so they
 * need no further image.
 */
static int note_rest(struct build *b, size_t from, struct err *err) {
    for (size_t i = from; i < b->from.recipe.count; i++)
        if (note_setting(b, &b->from.recipe.lines[i], err) < 0)
            return -1;
    return 0;
}

static int add_made(struct build *b, size_t i, struct err *err) {
    const struct recipe_line *l = &b->from.recipe.lines[i];
    json_t *step DEFER(json_decrefp) = step_shown(l, "making");
    json_object_set_new(step, "make", json_true());
    json_object_set_new(step, "place",
                        json_sprintf("line %u of the %s", l->number, b->from.recipe.kind));
    if (step_action(b, l, step, err) < 0)
        return -1;
    json_object_set_new(step, "net", net_json(b));
    json_object_set_new(step, "dirs", texts_json(b->dirs, b->dir_count));
    b->dir_count = 0;
    if (i == b->last && note_rest(b, i + 1, err) < 0)
        return -1;
    json_object_set_new(step, "config", config_json(b));
    json_array_append(b->steps, step);
    return 0;
}

static int add_lines(struct build *b, struct err *err) {
    const struct recipe_line *lines = b->from.recipe.lines;
    size_t count = b->from.recipe.count;
    for (size_t i = 1; i < count; i++)
        b->last = changes_files(lines[i].verb) || lines[i].verb == RECIPE_DIR ? i : b->last;
    if (!b->last) /* no line changes files: the last one gives an image with all settings */
        b->last = count - 1;
    json_array_append_new(b->steps, step_shown(&lines[0], "using"));
    for (size_t i = 1; i < count; i++) {
        if (i <= b->last && !changes_files(lines[i].verb) && note_setting(b, &lines[i], err) < 0)
            return -1;
        if (changes_files(lines[i].verb) || i == b->last) {
            if (add_made(b, i, err) < 0)
                return -1;
        } else {
            json_array_append_new(b->steps, step_shown(&lines[i], "setting"));
        }
    }
    return 0;
}

/* ---- base image ---- */

static int make_debian(struct build *b, const struct recipe_line *l, struct err *err) {
    struct build_wait wait;
    char what[160];
    const char *name = l->words[0];
    snprintf(what, sizeof(what), "%3d/%zu  making  base %s", 1, b->from.recipe.count, name);
    if (!b->o->quiet)
        fprintf(stderr, "%s\n", what);
    build_wait_begin(&wait, b->client, what, b->o->quiet);
    int r = debian_make(&wait, name, name + 7, err);
    build_wait_end(&wait);
    return r;
}

/* Imports an image without files: an archive with the root directory alone. */
static int make_scratch(struct build *b, const char *name, struct err *err) {
    struct tar_entry *root DEFER_FREE = xnew(struct tar_entry);
    struct buf archive DEFER(buf_done) = BUF(TAR_HEAD_MAX + 2 * TAR_BLOCK);
    static const uint8_t end[2 * TAR_BLOCK];
    uint8_t head[TAR_HEAD_MAX];
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "POST", .target = target, .body = &archive};
    *root = (struct tar_entry){.kind = TAR_DIR, .mode = 0755};
    snprintf(root->path, sizeof(root->path), "./");
    if (!buf_add(&archive, head, tar_put(head, root)) || !buf_add(&archive, end, sizeof(end)))
        return err_set(err, ERR_LIMIT, "out of memory");
    return client_target(target, err, "/v1/images?name=%s", name) < 0
               ? -1
               : client_call(b->client, &r, NULL, err);
}

static int find_base(struct build *b, struct err *err) {
    json_t *image DEFER(json_decrefp) = NULL;
    const struct recipe_line *l = &b->from.recipe.lines[0];
    const char *name = l->words[0];
    if (strcmp(name, "host") == 0 || image_show(b->client, name, &image, err) == 0)
        return 0;
    if (strncmp(name, "debian:", 7) == 0 && err->code == ERR_NOT_FOUND)
        return make_debian(b, l, err);
    if (strcmp(name, "scratch") == 0 && err->code == ERR_NOT_FOUND)
        return make_scratch(b, name, err);
    return b->from.is_dockerfile
               ? err_remedy(err, "fetch it: carrel image pull %.100s --name %s", l->words[1], name)
               : -1;
}

/* ---- the build ---- */

static json_t *build_json(const struct build *b) {
    json_t *recipe = json_pack("{s:s, s:b, s:O}", "base", b->from.recipe.lines[0].words[0],
                               "no_cache", b->o->no_cache, "steps", b->steps);
    if (b->o->name)
        json_object_set_new(recipe, "name", json_string(b->o->name));
    if (b->apt) {
        json_t *mirrors DEFER(json_decrefp) = debian_mirrors();
        json_array_extend(b->local, mirrors);
    }
    if (json_array_size(b->local))
        json_object_set(recipe, "local", b->local);
    return recipe;
}

static int start(struct build *b, json_t **ret, struct err *err) {
    json_t *recipe DEFER(json_decrefp) = build_json(b);
    char *text DEFER_FREE = json_dumps(recipe, JSON_COMPACT);
    struct buf body DEFER(buf_done) = BUF(CLIENT_BODY_MAX);
    const struct client_request r = {
        .method = "POST", .target = "/v1/images/builds", .body = &body};
    if (!text || !buf_add(&body, text, strlen(text)))
        return err_set(err, ERR_LIMIT, "the %s is too large", b->from.recipe.kind);
    return client_call(b->client, &r, ret, err);
}

static int send_files(struct build *b, const char *id, struct err *err) {
    for (size_t i = 0; i < b->file_count; i++) {
        const struct build_files *f = &b->files[i];
        char target[CLIENT_TARGET_SIZE], number[16];
        snprintf(number, sizeof(number), "%zu", i);
        if (client_target(target, err, "/v1/images/builds/%s/files/%s", id, number) < 0)
            return -1;
        int r = f->line->verb == RECIPE_COPY
                    ? build_copy_send(&f->copy, b->from.dir, b->client, target, f->line->chmod, err)
                    : build_copy_send_bytes(b->client, target, &f->bytes, f->mode, err);
        if (r < 0)
            return line_error(b, f->line, err);
    }
    return 0;
}

static int image_build_prepare(struct build *b, const char *path, struct err *err) {
    const char *user;
    if (build_source_read(&b->from, b->client, path, b->o, err) < 0)
        return -1;
    for (size_t i = 0; i < b->o->net_count; i++)
        if (note_net_option(b, b->o->net[i], err) < 0)
            return -1;
    user = build_source_user(&b->from);
    snprintf(b->run_as, sizeof(b->run_as), "%.*s", (int)strcspn(user, ":"), user);
    b->run_in = build_source_workdir(&b->from);
    b->files = calloc(b->from.recipe.count, sizeof(*b->files));
    return b->files ? find_base(b, err) : err_set(err, ERR_LIMIT, "out of memory");
}

static int image_build_run(struct build *b, const char *path, json_t **ret, struct err *err) {
    json_t *build DEFER(json_decrefp) = NULL, *end DEFER(json_decrefp) = NULL;
    if (image_build_prepare(b, path, err) < 0 || add_lines(b, err) < 0 || start(b, &build, err) < 0)
        return -1;
    const char *id = client_text(build, "id");
    build_watch_signals();
    if (send_files(b, id, err) < 0) {
        build_watch_cancel(b->client, id);
        return -1;
    }
    if (b->o->detach) {
        *ret = json_incref(build);
        return 0;
    }
    if (build_watch(b->client, id, b->o->quiet, &end, err) < 0)
        return err->code == ERR_INVALID && *err->remedy && !b->net_count && !b->apt
                   ? err_remedy(err, "see the output of the command; it reaches no network, unless "
                                     "--net allows it")
                   : -1;
    long long made = client_number(end, "made");
    if (!b->o->quiet)
        fprintf(stderr, "%lld instruction%s run, %lld cached\n", made, made == 1 ? "" : "s",
                client_number(end, "cached"));
    return image_show(b->client, b->o->name ? b->o->name : client_text(end, "image"), ret, err);
}

int image_build(struct client *c, const char *path, const struct build_options *o, json_t **ret,
                struct err *err) {
    struct build *b DEFER_FREE = xnew(struct build);
    b->client = c;
    b->o = o;
    b->from.dir = -1;
    b->steps = json_array();
    b->local = json_array();
    int r = image_build_run(b, path, ret, err);
    build_done(b);
    return r;
}
