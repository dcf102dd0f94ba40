/*
 * carrel ship --pick for repositories: asks which files and hunks are shipped, and makes one commit
 * of them in the quarantine. The commits of the machine are not shipped then.
 */
#include "cli/ship/repo_pick.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "cli/ship/git.h"
#include "cli/ship/pick.h"
#include "cli/ship/ship_show.h"
#include "review/flags.h"

enum { HASH_SIZE = 72, MODE_FILE = 0100644, MODE_PROGRAM = 0100755, MODE_LINK = 0120000 };
enum { TARGET_MAX = 4096, NOTE_MAX = FLAGS_TEXT + TARGET_MAX + 128 };

/* The pieces of the new commit. */
struct repo_pick {
    const char *repo;
    char base[HASH_SIZE]; /* its parent, which the files are compared with */
    int index;            /* lines for `git update-index --index-info` */
    long count;
    struct pick pick;
};

static bool is_plain(uint32_t mode) {
    return mode == MODE_FILE || mode == MODE_PROGRAM;
}

/* Reads an object of the quarantine byte for byte; false: it is absent, large or not a text. */
static bool read_text(const struct repo_pick *r, const char *object, struct buf *ret) {
    const char *const words[] = {"-C", r->repo, "cat-file", "blob", object, NULL};
    char bytes[64 << 10];
    struct err none;
    ssize_t n;
    int out DEFER_CLOSE = memfd_create("blob", MFD_CLOEXEC);
    if (out < 0 || git_run(words, out, &none) < 0 || lseek(out, 0, SEEK_SET) < 0)
        return false;
    while ((n = read(out, bytes, sizeof(bytes))) > 0)
        if (!buf_add(ret, bytes, (size_t)n))
            return false;
    return n == 0 && ship_is_text(ret->data ? ret->data : "", ret->len);
}

/* Says in the heading what the diff does not show: the mode, a link's target, what is no text. */
static void note_make(const struct repo_pick *r, const struct commits_file *c, bool has_text,
                      char ret[NOTE_MAX]) {
    char flags[FLAGS_TEXT], mode[64] = "", what[TARGET_MAX + 32] = "";
    struct buf target DEFER(buf_done) = BUF(TARGET_MAX);
    flags_text(c->flags, flags);
    if (c->before && c->after && c->before != c->after)
        snprintf(mode, sizeof(mode), "mode %o becomes %o", c->before, c->after);
    if (c->after == MODE_LINK)
        snprintf(what, sizeof(what), "link to %s",
                 read_text(r, c->blob, &target) ? target.data : "a path that is not a text");
    else if (c->after && !is_plain(c->after))
        snprintf(what, sizeof(what), "submodule, commit %s", c->blob);
    else if (c->after && !has_text)
        snprintf(what, sizeof(what), "%llu bytes that are not shown", (unsigned long long)c->size);
    snprintf(ret, NOTE_MAX, "%s%s%s%s%s", flags, *flags && *mode ? "; " : "", mode,
             (*flags || *mode) && *what ? "; " : "", what);
}

static int add_line(struct repo_pick *r, uint32_t mode, const char *hash, const char *path,
                    struct err *err) {
    r->count++;
    return dprintf(r->index, "%o %s\t%s", mode, hash, path) < 0 || write_all(r->index, "", 1) < 0
               ? err_sys(err, "cannot write the list of chosen files")
               : 0;
}

static int store_text(const struct repo_pick *r, const struct buf *text, char ret[HASH_SIZE],
                      struct err *err) {
    const char *const words[] = {"-C",      r->repo,        "hash-object", "-w",
                                 "--stdin", "--no-filters", NULL};
    ssize_t n;
    int in DEFER_CLOSE = memfd_create("in", MFD_CLOEXEC),
           out DEFER_CLOSE = memfd_create("out", MFD_CLOEXEC);
    if (in < 0 || out < 0 || write_all(in, text->data ? text->data : "", text->len) < 0 ||
        lseek(in, 0, SEEK_SET) < 0)
        return err_sys(err, "cannot create a file in memory (memfd)");
    if (git_feed(words, in, out, err) < 0)
        return -1;
    n = pread(out, ret, HASH_SIZE - 1, 0);
    ret[n > 0 ? n : 0] = '\0';
    ret[strcspn(ret, "\n")] = '\0';
    return 0;
}

static int pick_one(struct repo_pick *r, const struct commits_file *c, struct err *err) {
    char note[NOTE_MAX], old[4096 + HASH_SIZE], hash[HASH_SIZE];
    char zeros[HASH_SIZE]; /* stands for no object, as long as a hash of this repository */
    struct buf before DEFER(buf_done) = BUF(SHOWN_MAX), after DEFER(buf_done) = BUF(SHOWN_MAX),
                      made DEFER(buf_done) = BUF(2 * SHOWN_MAX);
    bool chosen[HUNKS_MAX + 1];
    struct pick_file f = {.path = c->path, .change = c->change, .note = note};
    snprintf(zeros, sizeof(zeros), "%0*d", (int)strlen(r->base), 0);
    snprintf(old, sizeof(old), "%s:%s", r->base, c->path);
    if (is_plain(c->before) && read_text(r, old, &before)) {
        f.before = before.data ? before.data : "";
        f.before_n = before.len;
    }
    if (is_plain(c->after) && read_text(r, c->blob, &after)) {
        f.after = after.data ? after.data : "";
        f.after_n = after.len;
    }
    note_make(r, c, f.after != NULL, note);
    enum pick_choice choice = pick_ask(&r->pick, &f, chosen);
    if (choice == PICK_NONE)
        return 0;
    if (choice == PICK_ALL)
        return add_line(r, c->after, c->change == 'D' ? zeros : c->blob, c->path, err);
    return pick_apply(&f, chosen, &made, err) < 0 || store_text(r, &made, hash, err) < 0
               ? -1
               : add_line(r, is_plain(c->before) ? c->before : c->after, hash, c->path, err);
}

static int ask_hash(const char *const *words, char ret[HASH_SIZE], struct err *err) {
    struct buf text DEFER(buf_done) = BUF(GIT_SAID_MAX);
    if (git_ask(words, &text, err) < 0)
        return -1;
    snprintf(ret, HASH_SIZE, "%s", text.data ? text.data : "");
    return 0;
}

static int commit_picked(const struct repo_pick *r, const char *machine, char ret[HASH_SIZE],
                         struct err *err) {
    char tree[HASH_SIZE], message[300];
    const char *const start[] = {"-C", r->repo, "read-tree", r->base, NULL};
    const char *const update[] = {"-C", r->repo, "update-index", "-z", "--index-info", NULL};
    const char *const write[] = {"-C", r->repo, "write-tree", NULL};
    snprintf(message, sizeof(message), "Chosen changes of machine %s", machine);
    const char *const commit[] = {"-c",          "user.name=carrel",
                                  "-c",          "user.email=carrel@localhost",
                                  "-C",          r->repo,
                                  "commit-tree", "-p",
                                  r->base,       "-m",
                                  message,       tree,
                                  NULL};
    if (lseek(r->index, 0, SEEK_SET) < 0)
        return err_sys(err, "cannot read the list of chosen files");
    return git_run(start, -1, err) < 0 || git_feed(update, r->index, -1, err) < 0 ||
                   ask_hash(write, tree, err) < 0
               ? -1
               : ask_hash(commit, ret, err);
}

int repo_pick(const struct repo_pick_from *from, char ret[REPO_PICK_HASH], struct err *err) {
    struct repo_pick r = {.repo = from->repo, .index = -1};
    const char *const base[] = {"-C", from->repo, "merge-base", from->base, from->work, NULL};
    ret[0] = '\0';
    if (from->changes->cut)
        return err_set(err, ERR_LIMIT, "--pick: the machine changed more than %d files",
                       COMMITS_FILES_MAX);
    if (ask_hash(base, r.base, err) < 0)
        return -1;
    int index DEFER_CLOSE = memfd_create("index", MFD_CLOEXEC);
    if (index < 0)
        return err_sys(err, "cannot create a file in memory (memfd)");
    r.index = index;
    for (size_t i = 0; i < from->changes->count; i++)
        if (from->changes->files[i].change != 'C' &&
            pick_one(&r, &from->changes->files[i], err) < 0)
            return -1;
    return r.count ? commit_picked(&r, from->machine, ret, err) : 0;
}
