/*
 * carrel image build: builds an image from a recipe or a Dockerfile, line by line, in machines of
 * the daemon.
 *
 * Each line gives an intermediate image. Its name is a hash of the image before it and of all that
 * the line does, so an unchanged line is not run again. Machines reach only the hosts in the
 * recipe's net lines and, from the first packages line on, the mirrors that the image's apt names.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/beneath.h"
#include "base/hex.h"
#include "base/sha256.h"
#include "cli/image/build_copy.h"
#include "cli/image/build_owner.h"
#include "cli/image/build_source.h"
#include "cli/image/build_wait.h"
#include "cli/image/debian.h"
#include "cli/image/image.h"
#include "cli/image/recipe.h"
#include "cli/safe.h"
#include "cli/table.h"

enum { KEY_HEX = 32, HOSTS_MAX = 16, FILE_MAX = 64 << 20 };

struct build {
    struct client *client;
    const struct build_options *o;
    struct build_source from;
    struct buf source; /* content of the file that the last `file` line names */
    mode_t source_mode;
    struct sha256 key; /* hash of all lines so far */
    char image[80];    /* image that the next line starts from */
    char machine[64];  /* machine that runs the lines; empty: none yet */
    char made_of[80];  /* image that the machine was made of */
    const char *env[RECIPE_LINES_MAX];
    const char *net[HOSTS_MAX];
    size_t env_count, net_count;
    const char *args[RECIPE_LINES_MAX]; /* of a Dockerfile: variables of its commands only */
    size_t arg_count;
    const char *dirs[RECIPE_LINES_MAX]; /* directories that the next step creates */
    size_t dir_count;
    struct build_copy copy; /* files of the last COPY */
    char run_as[128];       /* user of RUN */
    const char *run_in;
    bool apt; /* machines may reach the mirrors of their image's apt */
    const char *user, *workdir;
    const struct recipe_line *command, *entrypoint;
    size_t last; /* the last line that changes files */
    unsigned cached, made;
    struct build_wait wait; /* for the line that is being made */
    char what[160];         /* that line, as it is shown */
};

static void image_build_say(const struct build *b, const struct recipe_line *l, const char *how) {
    if (b->o->quiet)
        return;
    fprintf(stderr, "%3zu/%zu  %-7s %s%s%s\n", (size_t)(l - b->from.recipe.lines) + 1,
            b->from.recipe.count, how, l->shown ? l->shown : recipe_verb_name(l->verb),
            l->shown ? "" : " ", l->shown ? "" : l->text);
}

/* Shows that the work on a line begins; build_wait_end() ends what is shown of it. */
static void image_build_wait(struct build *b, const struct recipe_line *l) {
    image_build_say(b, l, "making");
    snprintf(b->what, sizeof(b->what), "%3zu/%zu  making  %s%s%s",
             (size_t)(l - b->from.recipe.lines) + 1, b->from.recipe.count,
             l->shown ? l->shown : recipe_verb_name(l->verb), l->shown ? "" : " ",
             l->shown ? "" : l->text);
    build_wait_begin(&b->wait, b->client, b->what, b->o->quiet);
}

/* ---- keys of intermediate images ---- */

static void key_add(struct build *b, const char *what, const void *bytes, size_t n) {
    char head[32];
    snprintf(head, sizeof(head), "%.10s %zu", what, n);
    sha256_add(&b->key, head, strlen(head) + 1);
    sha256_add(&b->key, bytes, n);
}

static void key_name(const struct build *b, char ret[80]) {
    struct sha256 copy = b->key;
    uint8_t hash[SHA256_BYTES];
    int n = snprintf(ret, 80, "build:");
    sha256_end(&copy, hash);
    hex_put(hash, KEY_HEX / 2, ret + n);
}

/* ---- requests ---- */

static int post(struct build *b, const char *target, const struct buf *body, json_t **ret,
                struct err *err) {
    const struct client_request r = {.method = "POST", .target = target, .body = body};
    return client_call(b->client, &r, ret, err);
}

static bool is_there(struct build *b, const char *name, json_t **ret) {
    struct err err;
    return image_show(b->client, name, ret, &err) == 0;
}

static void put_hosts(const struct build *b, struct jot *j) {
    jot_array(j, "net");
    for (size_t i = 0; i < b->net_count + b->apt; i++) {
        jot_object(j, NULL);
        jot_string(j, "target", i < b->net_count ? b->net[i] : "apt");
        jot_end(j, '}');
    }
    jot_end(j, ']');
}

static void put_env(const struct build *b, struct jot *j, bool with_args) {
    jot_object(j, "env");
    for (size_t i = 0; with_args && i < b->arg_count; i++) {
        char name[256];
        size_t n = strcspn(b->args[i], "=");
        bool later = false;
        for (size_t k = i + 1; k < b->arg_count; k++)
            later |= strncmp(b->args[k], b->args[i], n + 1) == 0;
        for (size_t k = 0; k < b->env_count; k++)
            later |= strncmp(b->env[k], b->args[i], n + 1) == 0;
        if (later || n >= sizeof(name))
            continue;
        snprintf(name, sizeof(name), "%.*s", (int)n, b->args[i]);
        jot_string(j, name, b->args[i] + n + 1);
    }
    for (size_t i = 0; i < b->env_count; i++) {
        char name[256];
        size_t n = strcspn(b->env[i], "=");
        bool later = false;
        for (size_t k = i + 1; k < b->env_count; k++)
            later |= strncmp(b->env[k], b->env[i], n + 1) == 0;
        if (later || n >= sizeof(name))
            continue;
        snprintf(name, sizeof(name), "%.*s", (int)n, b->env[i]);
        jot_string(j, name, b->env[i] + n + 1);
    }
    jot_end(j, '}');
}

static int allow_local(struct build *b, const char *rule, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    struct buf body DEFER(buf_done) = BUF(8192);
    struct jot j = JOT(&body);
    jot_object(&j, NULL);
    jot_string(&j, "target", rule);
    jot_bool(&j, "local", true);
    jot_end(&j, '}');
    return client_target(target, err, "/v1/machines/%s/net/rules", b->machine) < 0
               ? -1
               : post(b, target, &body, NULL, err);
}

/* Whether this host's apt uses the mirror of a rule such as "http://deb.example:8080". */
static bool is_known_mirror(const char *rule) {
    char host[512];
    const char *at = strstr(rule, "://");
    at = at ? at + 3 : rule;
    snprintf(host, sizeof(host), "%.*s", (int)strcspn(at, ":/"), at);
    return debian_uses_mirror(host);
}

/*
 * Lets the machine reach mirrors with private addresses, if apt of this host uses them too. The
 * image alone cannot open the local network: a stranger may have made it.
 */
static int allow_local_mirrors(struct build *b, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "GET", .target = target};
    json_t *net DEFER(json_decrefp) = NULL, *rule;
    size_t i, known = 0;
    if (client_target(target, err, "/v1/machines/%s/net", b->machine) < 0 ||
        client_call(b->client, &r, &net, err) < 0)
        return -1;
    const json_t *rules = json_object_get(net, "rules");
    json_array_foreach(rules, i, rule) {
        known += is_known_mirror(client_text(rule, "target"));
    }
    if (known == json_array_size(rules) && !b->net_count) /* the rules stay those of the preset */
        return allow_local(b, "apt", err);
    json_array_foreach(rules, i, rule) {
        const char *text = client_text(rule, "target");
        if (is_known_mirror(text) && allow_local(b, text, err) < 0)
            return -1;
    }
    return 0;
}

static int open_machine(struct build *b, struct err *err) {
    struct buf body DEFER(buf_done) = BUF(256 << 10);
    struct jot j = JOT(&body);
    json_t *m DEFER(json_decrefp) = NULL;
    if (b->machine[0])
        return 0;
    jot_object(&j, NULL);
    jot_string(&j, "image", b->image);
    jot_string(&j, "steps", "manual");
    jot_string(&j, "ttl", "2h");
    jot_object(&j, "limits");
    jot_string(&j, "disk", "8G");
    jot_end(&j, '}');
    put_hosts(b, &j);
    jot_end(&j, '}');
    if (post(b, "/v1/machines", &body, &m, err) < 0)
        return -1;
    snprintf(b->machine, sizeof(b->machine), "%s", client_text(m, "id"));
    snprintf(b->made_of, sizeof(b->made_of), "%s", b->image);
    return b->apt ? allow_local_mirrors(b, err) : 0;
}

static void close_machine(struct build *b) {
    char target[CLIENT_TARGET_SIZE];
    struct err err;
    const struct client_request r = {.method = "DELETE", .target = target};
    if (!b->machine[0])
        return;
    if (client_target(target, &err, "/v1/machines/%s", b->machine) == 0)
        client_call(b->client, &r, NULL, &err);
    b->machine[0] = '\0';
}

/* ---- instructions that change files ---- */

static void put_words(struct jot *j, const char *name, const char *const *words, size_t count) {
    jot_array(j, name);
    for (size_t i = 0; i < count; i++)
        jot_string(j, NULL, words[i]);
    jot_end(j, ']');
}

/* `line` NULL: the words of a Dockerfile's RUN, as its user and in its directory. */
static int run_line(struct build *b, const struct recipe_line *l, const char *line,
                    struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    struct buf body DEFER(buf_done) = BUF(1 << 20);
    struct jot j = JOT(&body);
    const struct client_request r = {.method = "POST", .target = target, .body = &body};
    json_t *exec DEFER(json_decrefp) = NULL;
    jot_object(&j, NULL);
    if (line)
        jot_string(&j, "command", line);
    else
        put_words(&j, "argv", l->words, l->count);
    jot_string(&j, "user", line ? "root" : b->run_as);
    jot_string(&j, "cwd", line ? "/" : b->run_in);
    put_env(b, &j, true);
    jot_end(&j, '}');
    if (j.failed)
        return err_set(err, ERR_LIMIT, "line %u of the %s is too long", l->number,
                       b->from.recipe.kind);
    if (client_target(target, err, "/v1/machines/%s/execs", b->machine) < 0 ||
        build_wait_exec(&b->wait, &r, &exec, err) < 0)
        return err_wrap(err, "line %u of the %s", l->number, b->from.recipe.kind);
    long long status = client_number(exec, "status");
    if (status == 0)
        return 0;
    build_wait_output(&b->wait);
    if (status < 0)
        return err_set(err, ERR_UNKNOWN,
                       "line %u of the %s: the exit status of the command is not known: %s",
                       l->number, b->from.recipe.kind, client_text(exec, "reason"));
    err_set(err, ERR_INVALID, "line %u of the %s: the command exited with status %lld", l->number,
            b->from.recipe.kind, status);
    return err_remedy(err, "see the output of the command above");
}

static int install(struct build *b, const struct recipe_line *l, struct err *err) {
    struct buf line DEFER(buf_done) = BUF(64 << 10);
    bool fits = buf_addf(&line, "apt-get -q update && apt-get -q -y --no-install-recommends "
                                "-o APT::Sandbox::User=root install");
    for (size_t i = 0; fits && i < l->count; i++)
        fits = buf_addf(&line, " %s", l->words[i]);
    fits = fits && buf_addf(&line, " && apt-get clean && rm -rf /var/lib/apt/lists/*");
    return fits ? run_line(b, l, line.data, err)
                : err_set(err, ERR_LIMIT, "line %u of the %s is too long", l->number,
                          b->from.recipe.kind);
}

/*
 * Opens a file in or below the directory of the recipe. Other files are refused, because the
 * author of a recipe may be a stranger.
 */
static int open_source(const struct build *b, const struct recipe_line *l, struct err *err) {
    int fd = beneath_open_file(b->from.dir, l->words[0], err);
    return fd < 0 ? err_wrap(err, "line %u of the %s", l->number, b->from.recipe.kind) : fd;
}

/* Reads the file once: the bytes that are hashed must be the bytes that are copied. */
static int read_source(struct build *b, const struct recipe_line *l, struct err *err) {
    char piece[16 << 10];
    struct stat st;
    int fd DEFER_CLOSE = open_source(b, l, err);
    ssize_t n = 0;
    if (fd < 0)
        return -1;
    if (fstat(fd, &st) < 0)
        return err_sys(err, "cannot read file '%s' of the recipe", l->words[0]);
    b->source_mode = st.st_mode & 0755;
    buf_drop(&b->source, b->source.len);
    while ((n = read(fd, piece, sizeof(piece))) > 0)
        if (!buf_add(&b->source, piece, (size_t)n))
            return err_set(err, ERR_LIMIT, "file '%s' of the recipe is larger than %d MiB",
                           l->words[0], FILE_MAX >> 20);
    return n < 0 ? err_sys(err, "cannot read file '%s' of the recipe", l->words[0]) : 0;
}

static int image_build_put_file(struct build *b, const struct recipe_line *l, struct err *err) {
    char target[CLIENT_TARGET_SIZE], octal[8];
    struct buf made DEFER(buf_done) = BUF(8192);
    struct jot j = JOT(&made);
    const char *slash = strrchr(l->words[1], '/');
    if (slash > l->words[1]) {
        char parent[4096];
        snprintf(parent, sizeof(parent), "%.*s", (int)(slash - l->words[1]), l->words[1]);
        jot_object(&j, NULL);
        jot_string(&j, "path", parent);
        jot_string(&j, "user", "root");
        jot_end(&j, '}');
        if (client_target(target, err, "/v1/machines/%s/files/mkdir", b->machine) < 0 ||
            post(b, target, &made, NULL, err) < 0)
            return -1;
    }
    snprintf(octal, sizeof(octal), "%o", b->source_mode);
    const struct client_request r = {.method = "PUT", .target = target, .body = &b->source};
    if (client_target(target, err, "/v1/machines/%s/files?path=%s&user=root&mode=%s", b->machine,
                      l->words[1], octal) < 0)
        return -1;
    return client_call(b->client, &r, NULL, err);
}

/* A command alone would delete the entrypoint of the base image, which Dockerfiles keep. */
static void put_entrypoint(const struct build *b, struct jot *j) {
    json_t *inherited = json_object_get(b->from.base, "entrypoint");
    if (b->entrypoint) {
        put_words(j, "entrypoint", b->entrypoint->words, b->entrypoint->count);
    } else if (b->from.is_dockerfile && b->command && json_array_size(inherited)) {
        char *text DEFER_FREE = json_dumps(inherited, JSON_COMPACT);
        jot_raw(j, "entrypoint", text ? text : "[]");
    }
}

/* Creates an image from the machine, with the configuration that the recipe has set so far. */
static int image_build_keep(struct build *b, const char *name, json_t **ret, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    struct buf body DEFER(buf_done) = BUF(256 << 10);
    struct jot j = JOT(&body);
    jot_object(&j, NULL);
    jot_string(&j, "name", name);
    put_env(b, &j, false);
    if (b->user)
        jot_string(&j, "user", b->user);
    if (b->workdir)
        jot_string(&j, "workdir", b->workdir);
    if (b->command)
        put_words(&j, "command", b->command->words, b->command->count);
    put_entrypoint(b, &j);
    jot_end(&j, '}');
    if (j.failed)
        return err_set(
            err, ERR_LIMIT,
            "the settings of the recipe are too large for the configuration of an image");
    const struct client_request r = {.method = "POST", .target = target, .body = &body};
    return client_target(target, err, "/v1/machines/%s/image", b->machine) < 0
               ? -1
               : build_wait_call(&b->wait, &r, ret, err);
}

/* ---- base image ---- */

/* The base image does not exist. */
static int image_build_no_base(struct build *b, const char *name, json_t **ret, struct err *err) {
    if (image_show(b->client, name, ret, err) == 0)
        return 0;
    return b->from.is_dockerfile
               ? err_remedy(err, "fetch it: carrel image pull REFERENCE --name %s", name)
               : -1;
}

static int image_build_begin(struct build *b, const struct recipe_line *l, struct err *err) {
    json_t *image DEFER(json_decrefp) = NULL;
    const char *name = l->words[0];
    if (strcmp(name, "host") == 0) {
        image_build_say(b, l, "using");
        snprintf(b->image, sizeof(b->image), "host");
        key_add(b, "base", "host", 4);
        return 0;
    }
    if (!is_there(b, name, &image)) {
        if (strncmp(name, "debian:", 7) != 0)
            return image_build_no_base(b, name, &image, err);
        image_build_wait(b, l);
        int r = debian_make(&b->wait, name, name + 7, err);
        build_wait_end(&b->wait);
        if (r < 0 || image_show(b->client, name, &image, err) < 0)
            return -1;
    } else {
        image_build_say(b, l, "using");
    }
    snprintf(b->image, sizeof(b->image), "%s", client_text(image, "id"));
    key_add(b, "base", b->image, strlen(b->image));
    return 0;
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
    if (b->net_count == HOSTS_MAX)
        return err_set(err, ERR_LIMIT, "more than %d hosts for the lines to reach", HOSTS_MAX);
    b->net[b->net_count++] = target;
    return 0;
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
        close_machine(b); /* a new machine gets the larger list of hosts */
        return 0;
    }
}

static int add_docker_line_to_key(struct build *b, const struct recipe_line *l, struct err *err) {
    key_add(b, "docker", &l->verb, sizeof(l->verb));
    for (size_t i = 0; i < l->count; i++)
        if (l->words[i])
            key_add(b, "word", l->words[i], strlen(l->words[i]));
    key_add(b, "text", l->text, strlen(l->text));
    if (l->verb == RECIPE_COPY &&
        build_copy_collect(&b->copy, b->from.dir, &b->from.ignore, l, &b->key, err) < 0)
        return err_wrap(err, "line %u of the %s", l->number, b->from.recipe.kind);
    return 0;
}

static int add_to_key(struct build *b, const struct recipe_line *l, struct err *err) {
    if (b->from.is_dockerfile)
        return add_docker_line_to_key(b, l, err);
    const char *verb = recipe_verb_name(l->verb);
    key_add(b, verb, l->text, strlen(l->text));
    if (l->verb != RECIPE_FILE)
        return 0;
    if (read_source(b, l, err) < 0)
        return -1;
    key_add(b, "contents", b->source.data ? b->source.data : "", b->source.len);
    key_add(b, "mode", &b->source_mode, sizeof(b->source_mode));
    return 0;
}

/* Makes the directories that WORKDIR has named since the last step. */
static int make_dirs(struct build *b, struct err *err) {
    for (size_t i = 0; i < b->dir_count; i++)
        if (build_mkdir(b->client, b->machine, b->dirs[i], err) < 0)
            return -1;
    return 0;
}

static int do_line(struct build *b, const struct recipe_line *l, struct err *err) {
    switch (l->verb) {
    case RECIPE_PACKAGES:
        return install(b, l, err);
    case RECIPE_FILE:
        return image_build_put_file(b, l, err);
    case RECIPE_COPY:
        if (build_copy_send(&b->copy, b->from.dir, b->client, b->machine, l, err) < 0)
            return err_wrap(err, "line %u of the %s", l->number, b->from.recipe.kind);
        return 0;
    case RECIPE_EXEC:
        return run_line(b, l, NULL, err);
    case RECIPE_RUN:
        return run_line(b, l, l->text, err);
    default:
        return 0;
    }
}

static int do_step(struct build *b, const struct recipe_line *l, struct err *err) {
    if (l->verb == RECIPE_PACKAGES && strcmp(b->made_of, b->image) != 0)
        close_machine(b); /* rules for mirrors are read from the image, not from the machine */
    if (open_machine(b, err) < 0 || make_dirs(b, err) < 0)
        return err_wrap(err, "line %u of the %s", l->number, b->from.recipe.kind);
    return do_line(b, l, err);
}

static int make_step(struct build *b, const struct recipe_line *l, struct err *err) {
    char name[80];
    json_t *image DEFER(json_decrefp) = NULL;
    key_name(b, name);
    if (l->verb == RECIPE_PACKAGES && !b->apt) {
        b->apt = true;
        close_machine(b); /* a new machine gets the rules for mirrors */
    }
    if (!b->o->no_cache && is_there(b, name, &image)) {
        image_build_say(b, l, "cached");
        b->cached++;
        close_machine(b); /* the machine was created from an earlier image */
    } else {
        image_build_wait(b, l);
        int r = do_step(b, l, err) < 0 ? -1 : image_build_keep(b, name, &image, err);
        build_wait_end(&b->wait);
        if (r < 0)
            return -1;
        b->made++;
    }
    b->dir_count = 0;
    snprintf(b->image, sizeof(b->image), "%s", client_text(image, "id"));
    return 0;
}

/*
 * Settings after the last line that changes files are stored in the image of that line, so they
 * need no further image.
 */
static int note_rest(struct build *b, size_t from, struct err *err) {
    for (size_t i = from; i < b->from.recipe.count; i++)
        if (add_to_key(b, &b->from.recipe.lines[i], err) < 0 ||
            note_setting(b, &b->from.recipe.lines[i], err) < 0)
            return -1;
    return 0;
}

static int make_all(struct build *b, struct err *err) {
    const struct recipe_line *lines = b->from.recipe.lines;
    for (size_t i = 1; i < b->from.recipe.count; i++)
        b->last = changes_files(lines[i].verb) || lines[i].verb == RECIPE_DIR ? i : b->last;
    if (image_build_begin(b, &lines[0], err) < 0)
        return -1;
    for (size_t i = 1; i <= b->last; i++) {
        if (add_to_key(b, &lines[i], err) < 0)
            return -1;
        if (i == b->last && note_rest(b, i + 1, err) < 0)
            return -1;
        bool makes = changes_files(lines[i].verb) || i == b->last;
        if (!makes)
            image_build_say(b, &lines[i], "setting");
        if (!changes_files(lines[i].verb) && note_setting(b, &lines[i], err) < 0)
            return -1;
        if (makes && make_step(b, &lines[i], err) < 0)
            return -1;
    }
    for (size_t i = b->last + 1; i < b->from.recipe.count; i++)
        image_build_say(b, &lines[i], "setting");
    if (b->last == 0 && b->from.recipe.count > 1) { /* no line changes files */
        if (note_rest(b, 1, err) < 0 || open_machine(b, err) < 0)
            return -1;
        char name[80];
        json_t *image DEFER(json_decrefp) = NULL;
        key_name(b, name);
        build_wait_begin(&b->wait, b->client, "saving", b->o->quiet);
        int r = image_build_keep(b, name, &image, err);
        build_wait_end(&b->wait);
        if (r < 0)
            return -1;
        snprintf(b->image, sizeof(b->image), "%s", client_text(image, "id"));
    }
    return 0;
}

static int give_name(struct build *b, json_t **ret, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    struct buf body DEFER(buf_done) = BUF(1024);
    struct jot j = JOT(&body);
    if (!b->o->name)
        return image_show(b->client, b->image, ret, err);
    jot_object(&j, NULL);
    jot_string(&j, "name", b->o->name);
    jot_end(&j, '}');
    return client_target(target, err, "/v1/images/%s/names", b->image) < 0
               ? -1
               : post(b, target, &body, ret, err);
}

static int image_build_prepare(struct build *b, const char *path, struct err *err) {
    const char *user;
    for (size_t i = 0; i < b->o->net_count; i++)
        if (note_net(b, b->o->net[i], err) < 0)
            return -1;
    if (build_source_read(&b->from, b->client, path, b->o, err) < 0)
        return -1;
    user = build_source_user(&b->from);
    snprintf(b->run_as, sizeof(b->run_as), "%.*s", (int)strcspn(user, ":"), user);
    b->run_in = build_source_workdir(&b->from);
    return 0;
}

int image_build(struct client *c, const char *path, const struct build_options *o, json_t **ret,
                struct err *err) {
    struct build *b DEFER_FREE = xnew(struct build);
    b->client = c;
    b->o = o;
    b->from.dir = -1;
    b->source = BUF(FILE_MAX);
    sha256_init(&b->key);
    key_add(b, "recipe", "1", 1);
    int r = image_build_prepare(b, path, err);
    if (r == 0)
        r = make_all(b, err);
    close_machine(b);
    if (r == 0)
        r = give_name(b, ret, err);
    if (r == 0 && !o->quiet)
        fprintf(stderr, "%u instruction%s run, %u cached\n", b->made, b->made == 1 ? "" : "s",
                b->cached);
    build_source_done(&b->from);
    build_copy_done(&b->copy);
    buf_done(&b->source);
    return r;
}
