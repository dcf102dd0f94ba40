/*
 * carrel image pull and push: run carrel-registry, which speaks to the registry, and pass its
 * archive to or from the daemon. The daemon needs no network for it.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/image_id.h"
#include "cli/cli.h"
#include "cli/image/dockerfile.h"
#include "cli/image/image.h"

enum { LAYERS_MAX = 128 }; /* of an image that is pulled, as in registry/document.h */

/* carrel-registry while it runs. */
struct helper {
    pid_t pid;
    int data;    /* its standard output for a pull, its standard input for a push */
    int answers; /* its standard input for a pull, or -1 */
    FILE *lines; /* its standard error */
    char code[32], text[400], remedy[200], digest[80];
    uint64_t total;                   /* bytes of the image */
    json_t *layers;                   /* digests of its layers, lowest first */
    uint64_t layer_bytes[LAYERS_MAX]; /* their sizes */
    bool asks;                        /* waits for an answer: how many layers not to pull */
};

static void helper_become(const struct place *place, const char *const *argv, const int fds[3]) {
    char program[PLACE_SIZE + 24];
    snprintf(program, sizeof(program), "%s/carrel-registry", place->libexec);
    for (int i = 0; i < 3; i++)
        if (dup2(fds[i], i) < 0)
            _exit(127);
    close_range(3, ~0u, 0);
    signal(SIGPIPE, SIG_DFL);
    execv(program, (char *const *)argv);
    _exit(127);
}

/* Pipes for its three streams: where it reads and writes, and the other ends. */
struct helper_pipes {
    int in[2], out[2], said[2];
};

static void pipes_done(struct helper_pipes *p) {
    int *const ends[] = {&p->in[0], &p->in[1], &p->out[0], &p->out[1], &p->said[0], &p->said[1]};
    for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++)
        close_fd(ends[i]);
}

static int helper_start(struct helper *h, const struct place *place, const char *verb,
                        const char *reference, bool insecure, struct err *err) {
    const char *argv[] = {"carrel-registry", verb, reference, insecure ? "insecure" : NULL, NULL};
    struct helper_pipes p DEFER(pipes_done) = {{-1, -1}, {-1, -1}, {-1, -1}};
    *h = (struct helper){.pid = -1, .data = -1, .answers = -1};
    if (pipe2(p.in, O_CLOEXEC) < 0 || pipe2(p.out, O_CLOEXEC) < 0 || pipe2(p.said, O_CLOEXEC) < 0)
        return err_sys(err, "cannot create a pipe to carrel-registry");
    h->lines = fdopen(p.said[0], "r");
    if (!h->lines)
        return err_sys(err, "cannot start carrel-registry");
    (void)TAKE_FD(p.said[0]);
    h->pid = fork();
    if (h->pid == 0)
        helper_become(place, argv, (int[]){p.in[0], p.out[1], p.said[1]});
    if (h->pid < 0) {
        fclose(h->lines);
        return err_sys(err, "cannot start carrel-registry");
    }
    if (strcmp(verb, "pull") == 0) {
        h->data = TAKE_FD(p.out[0]);
        h->answers = TAKE_FD(p.in[1]);
    } else {
        h->data = TAKE_FD(p.in[1]);
    }
    return 0;
}

static void helper_take_layer(struct helper *h, const char *text) {
    size_t n = strcspn(text, " "), count = json_array_size(h->layers);
    if (!h->layers)
        h->layers = json_array();
    if (count < LAYERS_MAX && json_array_append_new(h->layers, json_stringn(text, n)) == 0)
        h->layer_bytes[count] = strtoull(text + n, NULL, 10);
}

/* Reads one line; false at the end. */
static bool helper_line(struct helper *h) {
    char line[600];
    struct {
        const char *name;
        char *to;
        size_t size;
    } rows[] = {{"code ", h->code, sizeof(h->code)},
                {"text ", h->text, sizeof(h->text)},
                {"remedy ", h->remedy, sizeof(h->remedy)},
                {"digest ", h->digest, sizeof(h->digest)}};
    if (!h->lines || !fgets(line, sizeof(line), h->lines))
        return false;
    line[strcspn(line, "\n")] = '\0';
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        if (strncmp(line, rows[i].name, strlen(rows[i].name)) == 0)
            snprintf(rows[i].to, rows[i].size, "%s", line + strlen(rows[i].name));
    if (strncmp(line, "layer ", 6) == 0)
        helper_take_layer(h, line + 6);
    h->asks |= strcmp(line, "ask") == 0;
    if (strncmp(line, "total ", 6) == 0)
        h->total = strtoull(line + 6, NULL, 10);
    return true;
}

/* Waits for its end; its failure becomes *err. */
static int helper_end(struct helper *h, struct err *err) {
    int status = -1;
    close_fd(&h->data);
    close_fd(&h->answers);
    json_decref(TAKE(h->layers));
    while (helper_line(h))
        ;
    if (h->lines)
        fclose(h->lines);
    h->lines = NULL;
    while (h->pid > 0 && waitpid(h->pid, &status, 0) < 0 && errno == EINTR)
        ;
    h->pid = -1;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    if (!h->text[0])
        return err_set(err, ERR_INTERNAL, "carrel-registry ended without a result (status %d)",
                       status);
    err_set(err, err_code_named(h->code), "%s", h->text);
    return h->remedy[0] ? err_remedy(err, "%s", h->remedy) : -1;
}

static int pull_is_complete(void *arg, struct err *err) {
    return helper_end(arg, err);
}

/* Finds the name that the image gets in Carrel. */
static int pull_name(const struct registry_options *o, char ret[IMAGE_NAME_SIZE], struct err *err) {
    if (o->name) {
        snprintf(ret, IMAGE_NAME_SIZE, "%s", o->name);
        return 0;
    }
    if (dockerfile_image_name(o->reference, ret, IMAGE_NAME_SIZE))
        return 0;
    err_set(err, ERR_INVALID, "'%.100s' cannot be the name of an image in Carrel", o->reference);
    return err_remedy(err, "give it a name: --name NAME");
}

/* ---- pull ---- */

/*
 * Asks the daemon how many of the lowest layers it has. If it does not say, all are pulled: the
 * import then says what is wrong.
 */
static size_t layers_stored(struct client *c, const struct helper *h) {
    json_t *body DEFER(json_decrefp) = json_pack("{s:O}", "digests", h->layers);
    json_t *answer DEFER(json_decrefp) = NULL;
    char *text DEFER_FREE = json_dumps(body, JSON_COMPACT);
    struct buf bytes DEFER(buf_done) = BUF(64 << 10);
    const struct client_request r = {.method = "POST", .target = "/v1/layers", .body = &bytes};
    struct err ignored;
    if (!text || !buf_add(&bytes, text, strlen(text)) || client_call(c, &r, &answer, &ignored) < 0)
        return 0;
    long long stored = client_number(answer, "stored");
    return stored > 0 && (size_t)stored <= json_array_size(h->layers) ? (size_t)stored : 0;
}

/* Tells carrel-registry how many of the lowest layers not to pull. */
static void helper_answer(struct helper *h, size_t skip) {
    dprintf(h->answers, "%zu\n", skip); /* if it has ended, it says why */
    close_fd(&h->answers);
    for (size_t i = 0; i < skip; i++)
        h->total -= h->layer_bytes[i] < h->total ? h->layer_bytes[i] : h->total;
}

/* *ret_skipped: layers that were not pulled, because the daemon has them; NULL: pull all. */
static int pull_once(struct client *c, const struct registry_options *o, const char *name,
                     size_t *ret_skipped, json_t **ret, struct err *err) {
    struct helper h;
    struct err why;
    if (helper_start(&h, &c->place, "pull", o->reference, o->insecure, err) < 0)
        return -1;
    while (!h.asks && !h.text[0] && helper_line(&h))
        ;
    if (!h.asks)
        return helper_end(&h, err) < 0
                   ? -1
                   : err_set(err, ERR_INTERNAL, "carrel-registry ended without an image");
    if (ret_skipped)
        *ret_skipped = h.layers ? layers_stored(c, &h) : 0;
    helper_answer(&h, ret_skipped ? *ret_skipped : 0);
    const struct upload_source from = {.fd = h.data,
                                       .what = o->reference,
                                       .size = h.total,
                                       .layered = h.layers != NULL,
                                       .is_complete = pull_is_complete,
                                       .arg = &h};
    int r = image_upload_from(c, &from, name, o->quiet, ret, err);
    if (h.pid > 0 && helper_end(&h, &why) < 0 && h.text[0] && r == 0)
        r = -1;
    return r;
}

/* A new connection, because the request before this one may not have ended. */
static int pull_all(const struct client *c, const struct registry_options *o, const char *name,
                    json_t **ret, struct err *err) {
    struct client second = *c;
    second.http = client_again(c, err);
    int r = second.http ? pull_once(&second, o, name, NULL, ret, err) : -1;
    http_client_freep(&second.http);
    return r;
}

/* A layer that the daemon had may have been deleted meanwhile: then all are pulled. */
int image_pull(struct client *c, const struct registry_options *o, json_t **ret, struct err *err) {
    char name[IMAGE_NAME_SIZE];
    size_t skipped = 0;
    signal(SIGPIPE, SIG_IGN);
    if (pull_name(o, name, err) < 0)
        return -1;
    int r = pull_once(c, o, name, &skipped, ret, err);
    return r < 0 && skipped && err->code == ERR_GONE ? pull_all(c, o, name, ret, err) : r;
}

int image_push(struct client *c, const char *image, const struct registry_options *o, json_t **ret,
               struct err *err) {
    struct helper h;
    struct err why = {0};
    json_t *found DEFER(json_decrefp) = NULL;
    signal(SIGPIPE, SIG_IGN);
    if (image_show(c, image, &found, err) < 0 ||
        helper_start(&h, &c->place, "push", o->reference, o->insecure, err) < 0)
        return -1;
    int sent = image_download(c, image, "oci", o->quiet, h.data, o->reference, err);
    int ended = helper_end(&h, &why);
    if (ended < 0 && (sent == 0 || h.text[0])) /* a broken pipe is only the consequence */
        *err = why;
    if (sent < 0 || ended < 0)
        return -1;
    *ret =
        json_pack("{s:s, s:s, s:s}", "image", image, "reference", o->reference, "digest", h.digest);
    return 0;
}
