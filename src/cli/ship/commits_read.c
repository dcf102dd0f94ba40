#include "cli/ship/commits_read.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/defer.h"
#include "cli/ship/git.h"

enum { TEXT_MAX = 64 << 20 };

/*
 * Runs `git cat-file` for the blobs of up to `most` bytes in `c`, and maps its output. `how` is the
 * option for cat-file.
 */
static int ask_objects(const char *repo, const char *how, const struct commits *c, uint64_t most,
                       char **ret, size_t *ret_size, struct err *err) {
    const char *const words[] = {"-C", repo, "cat-file", how, NULL};
    int in DEFER_CLOSE = memfd_create("in", MFD_CLOEXEC);
    int out DEFER_CLOSE = memfd_create("out", MFD_CLOEXEC);
    bool ok = in >= 0 && out >= 0;
    for (size_t i = 0; ok && i < c->count; i++)
        if (commits_has_blob(&c->files[i]) && c->files[i].size <= most)
            ok = dprintf(in, "%s\n", c->files[i].blob) > 0;
    if (!ok || lseek(in, 0, SEEK_SET) < 0)
        return err_sys(err, "cannot create a temporary file for a list of git objects");
    if (git_feed(words, in, out, err) < 0)
        return -1;
    off_t size = lseek(out, 0, SEEK_END);
    char *map = size > 0 ? mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, out, 0) : NULL;
    if (map == MAP_FAILED)
        return err_sys(err, "cannot read git objects");
    *ret = map;
    *ret_size = size > 0 ? (size_t)size : 0;
    return 0;
}

static int read_sizes(const char *repo, struct commits *c, struct err *err) {
    char *text = NULL;
    size_t n = 0;
    if (ask_objects(repo, "--batch-check", c, UINT64_MAX, &text, &n, err) < 0)
        return -1;
    int status = commits_set_sizes(c, text, n, err);
    if (text)
        munmap(text, n);
    return status;
}

static int read_contents(const char *repo, struct commits *c, struct err *err) {
    char *text = NULL;
    size_t n = 0;
    uint64_t most = commits_scan_limit(c);
    if (ask_objects(repo, "--batch", c, most, &text, &n, err) < 0)
        return -1;
    int status = commits_scan(c, text, n, most, err);
    if (text)
        munmap(text, n);
    return status;
}

/*
 * True if the range has one commit. Then the difference shows all of its objects, and a list of
 * objects, for which git reads all trees of the commit before, has no more.
 */
static bool is_one_commit(const char *repo, const char *range) {
    const char *const words[] = {"-C", repo, "rev-list", "--count", "--max-count=2", range, NULL};
    struct buf count DEFER(buf_done) = BUF(TEXT_MAX);
    struct err none;
    return git_ask(words, &count, &none) == 0 && count.len == 1 && count.data[0] == '1';
}

int commits_read(const char *repo, const char *from, const char *to, bool is_parent, unsigned more,
                 struct commits *ret, struct err *err) {
    char since[300], range[300];
    snprintf(since, sizeof(since), "%s...%s", from, to);
    snprintf(range, sizeof(range), "%s..%s", from, to);
    const char *const diff[] = {
        "-C",          repo,           "diff",          "--raw",         "-z",
        "--no-abbrev", "--no-renames", "--no-ext-diff", "--no-textconv", since,
        NULL};
    const char *const list[] = {"-C", repo, "rev-list", "--objects", range, NULL};
    *ret = (struct commits){.changes = BUF(TEXT_MAX), .objects = BUF(TEXT_MAX)};
    if (git_ask(diff, &ret->changes, err) < 0 ||
        commits_parse(ret->changes.data ? ret->changes.data : "", ret->changes.len, ret, err) < 0 ||
        (!is_parent && !is_one_commit(repo, range) && git_ask(list, &ret->objects, err) < 0))
        return -1;
    commits_add_objects(ret);
    if (read_sizes(repo, ret, err) < 0 || read_contents(repo, ret, err) < 0)
        return -1;
    commits_keep_worthy(ret, more);
    return 0;
}
