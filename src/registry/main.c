/*
 * carrel-registry: the part of `carrel image pull` and `push` that speaks to registries. It is a
 * program of its own, because TLS needs libraries that `carrel` does not load.
 *
 *   carrel-registry pull REFERENCE [insecure]   writes an OCI archive to standard output
 *   carrel-registry push REFERENCE [insecure]   reads an OCI archive from standard input
 *
 * Standard error has lines for the caller: "digest DIGEST" after a push, and for a failure "code
 * NAME", "text TEXT" and "remedy TEXT". A pull writes "layer DIGEST SIZE" for each layer, lowest
 * first, and "ask"; it then reads how many of the lowest layers it must not pull from standard
 * input: a number and a newline. Without "layer" lines, the archive has one layer of several that
 * are equal, and is not in the order of the layers.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "base/native.h"
#include "registry/client.h"
#include "registry/pull.h"
#include "registry/push.h"

static void print_line(const char *name, const char *text) {
    char line[512];
    snprintf(line, sizeof(line), "%s %s", name, text);
    for (char *p = line; *p; p++)
        if ((unsigned char)*p < ' ')
            *p = ' ';
    fprintf(stderr, "%s\n", line);
}

static size_t ask_plan(void *arg, const struct document *doc, size_t layers) {
    char line[32] = "";
    (void)arg;
    fprintf(stderr, "total %llu\n", (unsigned long long)doc->bytes);
    for (size_t i = 0; i < layers; i++)
        fprintf(stderr, "layer %s %llu\n", doc->layers[i].digest,
                (unsigned long long)doc->layers[i].size);
    fprintf(stderr, "ask\n");
    return fgets(line, sizeof(line), stdin) ? (size_t)strtoull(line, NULL, 10) : 0;
}

static int pull_main(const struct reference *ref, const char *text, bool insecure,
                     struct err *err) {
    struct registry *r DEFER(registry_close) = registry_open(ref, "pull", insecure, err);
    const struct pull_options o = {.arch = NATIVE_OCI_ARCH, .plan = ask_plan};
    if (r && registry_pull(r, ref, STDOUT_FILENO, &o, err) == 0)
        return 0;
    return err_wrap(err, "cannot pull '%.100s'", text);
}

static int push_main(const struct reference *ref, bool insecure, struct err *err) {
    char digest[REFERENCE_DIGEST_SIZE];
    if (ref->digest[0])
        return err_set(err, ERR_INVALID, "an image is pushed to a tag, not to a digest");
    struct registry *r DEFER(registry_close) = registry_open(ref, "pull,push", insecure, err);
    if (!r || registry_push(r, ref, STDIN_FILENO, digest, err) < 0)
        return -1;
    print_line("digest", digest);
    return 0;
}

int main(int argc, char **argv) {
    struct reference ref;
    struct err err = {0};
    stdio_hold();
    signal(SIGPIPE, SIG_IGN);
    if (argc < 3 || argc > 4) {
        fprintf(stderr, "usage: carrel-registry pull|push REFERENCE [insecure]\n");
        return 2;
    }
    bool insecure = argc == 4 && strcmp(argv[3], "insecure") == 0;
    int r = reference_read(argv[2], &ref, &err);
    if (r == 0)
        r = strcmp(argv[1], "push") == 0 ? push_main(&ref, insecure, &err)
                                         : pull_main(&ref, argv[2], insecure, &err);
    if (r == 0)
        return 0;
    print_line("code", err_code_name(err.code));
    print_line("text", err.text);
    if (err.remedy[0])
        print_line("remedy", err.remedy);
    return 1;
}
