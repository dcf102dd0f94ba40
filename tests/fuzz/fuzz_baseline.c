/* Properties: what can be read, written again, is read as the same files; baseline_pick() finds the
 * lines of paths. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "base/fs/baseline.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct stat stat_of(const struct baseline_file *f) {
    struct stat st = {.st_ino = (ino_t)f->inode, .st_size = (off_t)f->size};
    st.st_mtim = (struct timespec){f->mtime_ns / 1000000000, f->mtime_ns % 1000000000};
    st.st_ctim = (struct timespec){f->ctime_ns / 1000000000, f->ctime_ns % 1000000000};
    return st;
}

/* Every second path is asked for, with everything below it. */
static void picked_lines_are_those_of_the_paths(const struct baseline *b, const struct buf *text) {
    struct baseline some = {0};
    struct buf paths = BUF(8 << 20), picked = BUF(8 << 20);
    struct err err;
    for (size_t i = 0; i < b->count; i += 2)
        assert(buf_addf(&paths, "/ ") && baseline_put_path(&paths, b->files[i].path) &&
               buf_add(&paths, "\n", 1));
    assert(baseline_pick(text->data ? text->data : "", text->len, paths.data ? paths.data : "",
                         paths.len, &picked));
    assert(baseline_read(picked.data ? picked.data : "", picked.len, &some, &err) == 0);
    for (size_t i = 0; i < b->count; i += 2)
        assert(baseline_find(&some, b->files[i].path));
    for (size_t i = 0; i < some.count; i++)
        assert(baseline_find(b, some.files[i].path));
    baseline_done(&some);
    buf_done(&paths);
    buf_done(&picked);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct baseline b = {0}, again = {0};
    struct buf text = BUF(8 << 20);
    struct err err;
    if (baseline_read((const char *)data, size, &b, &err) < 0)
        return 0;
    for (size_t i = 0; i < b.count; i++) {
        struct stat st = stat_of(&b.files[i]);
        assert(baseline_put(&text, b.files[i].path, &st));
        assert(baseline_find(&b, b.files[i].path) == &b.files[i]);
    }
    assert(baseline_read(text.data ? text.data : "", text.len, &again, &err) == 0);
    assert(again.count == b.count && !again.cut);
    for (size_t i = 0; i < b.count; i++) {
        struct stat st = stat_of(&b.files[i]);
        assert(strcmp(again.files[i].path, b.files[i].path) == 0);
        assert(!b.files[i].inode || baseline_same(&again.files[i], &st));
    }
    picked_lines_are_those_of_the_paths(&b, &text);
    baseline_done(&b);
    baseline_done(&again);
    buf_done(&text);
    return 0;
}
