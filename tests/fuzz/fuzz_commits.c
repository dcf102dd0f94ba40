/* Property: every row of changes that is read lies in its text, and names a change and an object.
 */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/defer.h"
#include "review/commits.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct commits c DEFER(commits_done) = {.count = 0};
    struct err err;
    const char *text = (const char *)data, *end = text + size;
    int status = commits_parse(text, size, &c, &err);
    assert(c.count <= COMMITS_FILES_MAX && (status == 0 || !c.cut));
    for (size_t i = 0; i < c.count; i++) {
        const struct commits_file *f = &c.files[i];
        assert(f->path > text && f->path < end && *f->path && f->path + strlen(f->path) < end);
        assert(strchr("AMD", f->change) && (strlen(f->blob) == 40 || strlen(f->blob) == 64));
    }
    return 0;
}
