#include "cli/ship/dirty.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "cli/ship/git.h"

enum { LIST_MAX = 256 << 20, SHA256_HEX = 64 };

/* The temporary repository. */
struct beside {
    char dir[32];
    char index[64];                  /* path of the copy of the owner's index */
    char index_env[96], objects[96]; /* variables that make git use it */
};

/* ---- filters ---- */

/* Commands of Git LFS, which `git lfs install --local` writes into a repository. */
static bool is_lfs(const char *command) {
    return strncmp(command, "git-lfs clean ", 14) == 0 ||
           strncmp(command, "git-lfs smudge ", 15) == 0 ||
           strncmp(command, "git-lfs filter-process", 22) == 0;
}

static int filter_refused(const char *key, struct err *err) {
    err_set(err, ERR_DENIED, "its configuration names a program that git would run here: %.200s",
            key);
    return err_remedy(err,
                      "if you trust the program, write this setting into your own ~/.gitconfig and "
                      "remove it from the repository: git config --local --unset %.100s",
                      key);
}

/*
 * Refuses a repository whose own configuration has a filter: git would run it as the owner. It may
 * come from an archive of somebody else. A filter of the owner's configuration is the owner's
 * choice. The scope of each setting comes from git, because conditional includes depend on HOME.
 */
static int filters_check(const char *path, struct err *err) {
    const char *const words[] = {"-C", path, "config", "--show-scope", "--null", "--list", NULL};
    struct buf list DEFER(buf_done) = BUF(LIST_MAX);
    if (git_ask_as_owner(words, NULL, &list, err) < 0)
        return -1;
    const char *end = list.data + list.len;
    for (const char *scope = list.data, *key; scope < end; scope = key + strlen(key) + 1) {
        key = scope + strlen(scope) + 1;
        if (key >= end)
            return err_set(err, ERR_INTERNAL, "git printed its configuration incompletely");
        bool own = strcmp(scope, "local") == 0 || strcmp(scope, "worktree") == 0;
        size_t n = strcspn(key, "\n");
        bool is_required = n > 9 && strncmp(key + n - 9, ".required", 9) == 0;
        if (!own || strncmp(key, "filter.", 7) != 0 || is_required || !key[n] ||
            is_lfs(key + n + 1))
            continue;
        char name[256];
        snprintf(name, sizeof(name), "%.*s", (int)n, key);
        return filter_refused(name, err);
    }
    return 0;
}

long dirty_count(const char *path) {
    const char *const words[] = {
        "-C", path, "status", "--porcelain", "--untracked-files=all", "--ignore-submodules=all",
        NULL};
    struct buf list DEFER(buf_done) = BUF(LIST_MAX);
    struct err none;
    if (filters_check(path, &none) < 0 || git_ask_as_owner(words, NULL, &list, &none) < 0 ||
        !list.len)
        return 0;
    long count = 1; /* the last line has no newline; git escapes newlines in names */
    for (size_t i = 0; i < list.len; i++)
        count += list.data[i] == '\n';
    return count;
}

/* Asks git where a part of the owner's repository is. */
static int part_of(const char *path, const char *part, struct buf *ret, struct err *err) {
    const char *const words[] = {"-C",         path, "rev-parse", "--path-format=absolute",
                                 "--git-path", part, NULL};
    return git_ask(words, ret, err);
}

static int borrow_objects(const char *path, const struct beside *b, struct err *err) {
    char file[96];
    struct buf objects DEFER(buf_done) = BUF(GIT_SAID_MAX);
    if (part_of(path, "objects", &objects, err) < 0)
        return -1;
    if (!buf_add(&objects, "\n", 1))
        return err_set(err, ERR_LIMIT, "the path of repository '%s' is too long", path);
    snprintf(file, sizeof(file), "%s/objects/info/alternates", b->dir);
    int fd DEFER_CLOSE = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int status = fd < 0 ? -errno : write_all(fd, objects.data, objects.len);
    return status < 0 ? err_num(err, status, "cannot write file '%s'", file) : 0;
}

/*
 * The index tells git which files it need not read again, and which ones a sparse checkout left
 * out. A repository without an index has no tracked files. The copy keeps its time: git reads a
 * file again if it is not older than the index, because its size and time may be as before.
 */
static int copy_index(const char *path, const struct beside *b, struct err *err) {
    struct buf index DEFER(buf_done) = BUF(GIT_SAID_MAX);
    ssize_t n;
    if (part_of(path, "index", &index, err) < 0)
        return -1;
    int from DEFER_CLOSE = open(index.data ? index.data : "", O_RDONLY | O_CLOEXEC);
    if (from < 0)
        return errno == ENOENT ? 0 : err_sys(err, "cannot open file '%s'", index.data);
    int to DEFER_CLOSE = open(b->index, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (to < 0)
        return err_sys(err, "cannot write file '%s'", b->index);
    struct stat st;
    while ((n = sendfile(to, from, NULL, 1 << 30)) > 0)
        ;
    if (n < 0 || fstat(from, &st) < 0 ||
        futimens(to, (const struct timespec[]){st.st_atim, st.st_mtim}) < 0)
        return err_sys(err, "cannot copy file '%s'", index.data);
    return 0;
}

static int make_beside(const char *path, const char *hash, struct beside *b, struct err *err) {
    const char *const init[] = {"init",
                                "-q",
                                "--bare",
                                "--template=",
                                strlen(hash) == SHA256_HEX ? "--object-format=sha256"
                                                           : "--object-format=sha1",
                                b->dir,
                                NULL};
    return git_run(init, -1, err) < 0 || borrow_objects(path, b, err) < 0
               ? -1
               : copy_index(path, b, err);
}

/* ---- the files of the working tree ---- */

/* Marks entries of the copied index, so that git does not look at their files. */
static int mark_batch(const char **words, size_t *n, size_t first, const char *const *env,
                      struct err *err) {
    struct buf nothing DEFER(buf_done) = BUF(GIT_SAID_MAX);
    if (*n == first)
        return 0;
    words[*n] = NULL;
    *n = first;
    return git_ask_as_owner(words, env, &nothing, err);
}

/*
 * Git would look for changes inside submodules, with their own configuration and its filters.
 * Submodules stay out, so their entries are left as they are.
 */
static int skip_submodules(const char *path, const char *const *env, struct err *err) {
    enum { FIRST = 5, BATCH = 32 };
    const char *const list_words[] = {"-C", path, "ls-files", "--stage", "-z", NULL};
    const char *words[FIRST + BATCH + 1] = {"-C", path, "update-index", "--skip-worktree", "--"};
    struct buf list DEFER(buf_done) = BUF(LIST_MAX);
    size_t n = FIRST;
    if (git_ask_as_owner(list_words, env, &list, err) < 0)
        return -1;
    const char *end = list.data + list.len;
    for (const char *entry = list.data; entry < end; entry += strlen(entry) + 1) {
        const char *name = strchr(entry, '\t');
        if (strncmp(entry, "160000 ", 7) != 0 || !name)
            continue;
        words[n++] = name + 1;
        if (n == FIRST + BATCH && mark_batch(words, &n, FIRST, env, err) < 0)
            return -1;
    }
    return mark_batch(words, &n, FIRST, env, err);
}

/* Stores the files of the working tree in the temporary repository; `ret` receives the tree. */
static int add_files(const char *path, const struct beside *b, struct buf *ret, struct err *err) {
    /* The owner's configuration decides which files are ignored and which filters apply. */
    const char *const env[] = {b->index_env, b->objects, NULL};
    const char *const add[] = {"-c", "advice.addEmbeddedRepo=false", "-C", path, "add", "-A", NULL};
    const char *const write[] = {"-C", path, "write-tree", NULL};
    struct buf nothing DEFER(buf_done) = BUF(GIT_SAID_MAX);
    return filters_check(path, err) < 0 || skip_submodules(path, env, err) < 0 ||
                   git_ask_as_owner(add, env, &nothing, err) < 0 ||
                   git_ask_as_owner(write, env, ret, err) < 0
               ? -1
               : 0;
}

static int name_commit(const struct beside *b, const char *ref, const char *hash, struct err *err) {
    const char *const words[] = {"-C", b->dir, "update-ref", ref, hash, NULL};
    return git_run(words, -1, err);
}

static int bundle_tree(const struct beside *b, const char *ref, const char *hash, const char *tree,
                       int out, struct err *err) {
    struct buf commit DEFER(buf_done) = BUF(GIT_SAID_MAX);
    const char *const make[] = {"-c",
                                "user.name=carrel",
                                "-c",
                                "user.email=carrel@localhost",
                                "-C",
                                b->dir,
                                "commit-tree",
                                "-p",
                                hash,
                                "-m",
                                "uncommitted work",
                                tree,
                                NULL};
    const char *const bundle[] = {"-C", b->dir, "bundle",  "create", "-q",
                                  "-",  ref,    DIRTY_REF, "--",     NULL};
    if (git_ask(make, &commit, err) < 0 || name_commit(b, ref, hash, err) < 0 ||
        name_commit(b, DIRTY_REF, commit.data, err) < 0)
        return -1;
    return git_run(bundle, out, err);
}

int dirty_bundle(const char *path, const char *ref, const char *hash, int out, struct err *err) {
    struct beside b = {.dir = "/tmp/carrel-repo-XXXXXX"};
    struct buf tree DEFER(buf_done) = BUF(GIT_SAID_MAX);
    if (!mkdtemp(b.dir))
        return err_sys(err, "cannot create a temporary directory in /tmp");
    snprintf(b.index, sizeof(b.index), "%s/index", b.dir);
    snprintf(b.index_env, sizeof(b.index_env), "GIT_INDEX_FILE=%s", b.index);
    snprintf(b.objects, sizeof(b.objects), "GIT_OBJECT_DIRECTORY=%s/objects", b.dir);
    int r = make_beside(path, hash, &b, err);
    if (r == 0)
        r = add_files(path, &b, &tree, err);
    if (r == 0)
        r = bundle_tree(&b, ref, hash, tree.data, out, err);
    git_temp_remove(b.dir);
    return r;
}
