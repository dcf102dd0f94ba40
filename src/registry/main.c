/*
 * carrel-registry: the part of `carrel image pull` and `push` that speaks to registries. It is a
 * program of its own, because TLS needs libraries that `carrel` does not load.
 *
 *   carrel-registry pull REFERENCE [insecure]   writes an OCI archive to standard output
 *   carrel-registry push REFERENCE [insecure]   reads an OCI archive from standard input
 *
 * Standard error has lines for the caller: "layers COUNT", "total BYTES", "digest DIGEST", and for
 * a failure "code NAME", "text TEXT" and "remedy TEXT".
 */
#include <signal.h>
#include <stdio.h>
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

static void print_total(void *arg, uint64_t bytes, size_t layers) {
    (void)arg;
    fprintf(stderr, "layers %zu\n", layers);
    fprintf(stderr, "total %llu\n", (unsigned long long)bytes);
}

static int pull_main(const struct reference *ref, bool insecure, struct err *err) {
    struct registry *r DEFER(registry_close) = registry_open(ref, "pull", insecure, err);
    const struct pull_options o = {.arch = NATIVE_OCI_ARCH, .total = print_total};
    return r ? registry_pull(r, ref, STDOUT_FILENO, &o, err) : -1;
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
                                         : pull_main(&ref, insecure, &err);
    if (r == 0)
        return 0;
    print_line("code", err_code_name(err.code));
    print_line("text", err.text);
    if (err.remedy[0])
        print_line("remedy", err.remedy);
    return 1;
}
