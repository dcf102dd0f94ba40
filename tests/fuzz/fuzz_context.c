/*
 * Files of a COPY step: the first line is its source, and the rest is what a client sent. Property:
 * it is refused, or the result is an archive with relative paths inside the destination.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "api/e2b/template_context.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/tar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BYTES_MAX = 4 << 20 };

static void check_path(const char *path) {
    assert(path[0] && path[0] != '/');
    for (const char *at = path; *at; at += strcspn(at, "/"), at += *at == '/') {
        size_t n = strcspn(at, "/");
        assert(!(n == 2 && at[0] == '.' && at[1] == '.'));
    }
}

static void check_archive(int fd) {
    static struct tar_reader r;
    static struct tar_entry entry;
    uint8_t block[TAR_BLOCK];
    memset(&r, 0, sizeof(r));
    for (off_t at = 0;;) {
        assert(pread(fd, block, sizeof(block), at) == sizeof(block));
        at += sizeof(block);
        enum tar_step step = tar_next(&r, block, &entry);
        assert(step != TAR_BAD);
        if (step == TAR_END)
            return;
        if (step == TAR_MORE)
            continue;
        assert(entry.kind != TAR_OTHER && entry.uid == 0 && entry.gid == 0);
        check_path(entry.path);
        at += (off_t)(entry.size + tar_padding(entry.size));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *end = size ? memchr(data, '\n', size) : NULL;
    char source[256], clean[CONTEXT_PATH_SIZE];
    int in DEFER_CLOSE = memfd_create("in", MFD_CLOEXEC);
    int out DEFER_CLOSE = memfd_create("out", MFD_CLOEXEC);
    uint64_t left = BYTES_MAX;
    const struct context_request r = {
        .in = in, .out = out, .source = source, .name = "name", .mode = -1, .bytes_left = &left};
    enum context_kind kind;
    struct err err;
    if (!end || (size_t)(end - data) >= sizeof(source) || in < 0 || out < 0)
        return 0;
    snprintf(source, sizeof(source), "%.*s", (int)(end - data), (const char *)data);
    if (context_source(source, clean, &err) == 0 && clean[0])
        check_path(clean);
    assert(write_all(in, end + 1, (size_t)(data + size - end - 1)) == 0);
    if (context_write(&r, &kind, &err) == 0)
        check_archive(out);
    else
        assert(err.text[0]);
    return 0;
}
