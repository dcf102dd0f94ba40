/*
 * The script runner without the worker around it, so that it also runs on an emulated CPU, where
 * nothing can be confined: wast_main [--suspend SEED] [--spec N] FILE… prints what carrel wast
 * prints, and before it fuel and hash of each script, which must be equal on every CPU.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/banned.h"
#include "base/defer.h"
#include "wasm/text/wast.h"

enum { MAX_FILE = 64 << 20 };

static int read_file(const char *path, struct buf *ret) {
    FILE *f = fopen(path, "rbe");
    char chunk[65536];
    size_t n;
    bool ok = f != NULL;
    while (ok && (n = fread(chunk, 1, sizeof(chunk), f)) > 0)
        ok = buf_add(ret, chunk, n);
    if (f)
        fclose(f);
    return ok ? 0 : -1;
}

static int run(const char *path, const struct wast_options *options, struct wast_result *sum) {
    struct buf file DEFER(buf_done) = BUF(MAX_FILE), report DEFER(buf_done) = BUF(MAX_FILE);
    struct wast_result r;
    if (read_file(path, &file) < 0)
        return perror(path), -1;
    wast_run(path, file.len ? file.data : "", file.len, options, &r, &report);
    printf("# fuel %llu, hash ", (unsigned long long)r.fuel);
    for (size_t i = 0; i < sizeof(r.hash); i++)
        printf("%02x", r.hash[i]);
    printf("\n");
    bool failed = r.broken || r.passed != r.total;
    fprintf(stderr, "%s", report.len ? report.data : "");
    printf("%s %u/%u (%u captures)%s\n", path, r.passed, r.total, r.captures,
           failed ? " FAILED" : "");
    sum->passed += r.passed;
    sum->total += r.total;
    sum->broken = sum->broken || failed;
    return 0;
}

int main(int argc, char **argv) {
    struct wast_options options = {.spec = 30};
    struct wast_result sum = {0};
    int i = 1;
    for (; i + 1 < argc && strncmp(argv[i], "--", 2) == 0; i += 2) {
        if (strcmp(argv[i], "--spec") == 0)
            options.spec = (argv[i + 1][0] - '0') * 10;
        else
            options.suspend = true, options.seed = strtoull(argv[i + 1], NULL, 10);
    }
    for (; i < argc; i++)
        if (run(argv[i], &options, &sum) < 0)
            return 2;
    printf("%u/%u\n", sum.passed, sum.total);
    return sum.broken;
}
