/*
 * Property: of any bytes, the entries of a table end within them; numbers grow and are in range,
 * paths are absolute or empty, and the requests at the end are the last bytes.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "spawn/fuse/table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_path(const char *path, uint32_t size) {
    assert(strlen(path) == size && size < TABLE_PATH_MAX);
    assert(size == 0 || path[0] == '/');
}

static void check_table(const uint8_t *bytes, size_t size) {
    static char path[TABLE_PATH_MAX];
    struct table_reader r;
    struct table_node node;
    struct table_handle handle;
    const uint8_t *rest;
    uint32_t last = 0;
    size_t left;
    int more;
    if (!table_begin(&r, bytes, size))
        return;
    while ((more = table_next_node(&r, &node, path)) > 0) {
        assert(node.id > last && node.id < NODES_MAX);
        check_path(path, node.path);
        last = node.id;
    }
    for (last = 0; more == 0 && (more = table_next_handle(&r, &handle, path)) > 0; more = 0) {
        assert(handle.id > last && handle.id < NODES_MAX);
        check_path(path, handle.path);
        last = handle.id;
    }
    if (more == 0 && table_end(&r, &rest, &left))
        assert(rest + left == bytes + size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *copy = malloc(size + 1); /* so that a read beyond it is seen */
    assert(copy);
    memcpy(copy, data, size);
    check_table(copy, size);
    free(copy);
    return 0;
}
