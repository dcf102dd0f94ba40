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

/* carrel-registry while it runs. */
struct helper {
    pid_t pid;
    int data;    /* its standard output for a pull, its standard input for a push */
    FILE *lines; /* its standard error */
    char code[32], text[400], remedy[200], digest[80];
    uint64_t total, layers;
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

static int helper_start(struct helper *h, const struct place *place, const char *verb,
                        const char *reference, bool insecure, struct err *err) {
    const char *argv[] = {"carrel-registry", verb, reference, insecure ? "insecure" : NULL, NULL};
    bool pulls = strcmp(verb, "pull") == 0;
    int data[2], said[2];
    *h = (struct helper){.pid = -1, .data = -1};
    if (pipe2(data, O_CLOEXEC) < 0)
        return err_sys(err, "cannot create a pipe to carrel-registry");
    if (pipe2(said, O_CLOEXEC) < 0) {
        err_sys(err, "cannot create a pipe to carrel-registry");
        close(data[0]);
        close(data[1]);
        return -1;
    }
    int null DEFER_CLOSE = open("/dev/null", O_RDWR | O_CLOEXEC);
    h->pid = fork();
    if (h->pid == 0)
        helper_become(place, argv,
                      pulls ? (int[]){null, data[1], said[1]} : (int[]){data[0], null, said[1]});
    close(data[pulls ? 1 : 0]);
    close(said[1]);
    h->data = data[pulls ? 0 : 1];
    h->lines = fdopen(said[0], "r");
    if (!h->lines)
        close(said[0]);
    return h->pid < 0 || !h->lines ? err_sys(err, "cannot start carrel-registry") : 0;
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
    if (strncmp(line, "layers ", 7) == 0)
        h->layers = strtoull(line + 7, NULL, 10);
    if (strncmp(line, "total ", 6) == 0)
        h->total = strtoull(line + 6, NULL, 10);
    return true;
}

/* Waits for its end; its failure becomes *err. */
static int helper_end(struct helper *h, struct err *err) {
    int status = -1;
    close_fd(&h->data);
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

int image_pull(struct client *c, const struct registry_options *o, json_t **ret, struct err *err) {
    struct helper h;
    struct err why;
    char name[IMAGE_NAME_SIZE];
    signal(SIGPIPE, SIG_IGN);
    if (pull_name(o, name, err) < 0 ||
        helper_start(&h, &c->place, "pull", o->reference, o->insecure, err) < 0)
        return -1;
    while (!h.total && !h.text[0] && helper_line(&h))
        ;
    if (!h.total)
        return helper_end(&h, err) < 0
                   ? -1
                   : err_set(err, ERR_INTERNAL, "carrel-registry ended without an image");
    const struct upload_source from = {.fd = h.data,
                                       .what = o->reference,
                                       .size = h.total,
                                       .layered = h.layers > 0,
                                       .is_complete = pull_is_complete,
                                       .arg = &h};
    int r = image_upload_from(c, &from, name, o->quiet, ret, err);
    if (h.pid > 0 && helper_end(&h, &why) < 0 && h.text[0] && r == 0)
        r = -1;
    return r;
}

int image_push(struct client *c, const char *image, const struct registry_options *o, json_t **ret,
               struct err *err) {
    struct helper h;
    struct err why = {0};
    signal(SIGPIPE, SIG_IGN);
    if (helper_start(&h, &c->place, "push", o->reference, o->insecure, err) < 0)
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
