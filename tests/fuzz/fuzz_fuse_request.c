/*
 * Property: a stream of requests is followed until one has an impossible size; and a request that
 * is read has names that end within it and stay in one directory, and data that end where it ends.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "spawn/fuse/request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_inside(const uint8_t *bytes, size_t size, const char *text) {
    const uint8_t *at = (const uint8_t *)text;
    assert(at > bytes && at < bytes + size && memchr(at, '\0', (size_t)(bytes + size - at)));
    assert(*at);
}

static void check_request(const uint8_t *bytes, size_t size) {
    struct fuse_request r;
    if (fuse_request_read(bytes, size, &r) < 0)
        return;
    assert(r.data + r.size == bytes + size && r.data >= bytes + sizeof(r.head));
    if (r.second)
        check_inside(bytes, size, r.second);
    if (!r.name)
        return;
    check_inside(bytes, size, r.name);
    uint32_t op = r.head.opcode;
    bool is_attribute = op == FUSE_SETXATTR || op == FUSE_GETXATTR || op == FUSE_REMOVEXATTR;
    assert(is_attribute || (!strchr(r.name, '/') && strcmp(r.name, "..") != 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    for (;;) {
        long n = fuse_request_size(data, size);
        if (n <= 0 || (size_t)n > size)
            return 0;
        uint8_t *copy = malloc((size_t)n); /* so that a read beyond it is seen */
        assert(copy);
        memcpy(copy, data, (size_t)n);
        check_request(copy, (size_t)n);
        free(copy);
        data += n;
        size -= (size_t)n;
    }
}
