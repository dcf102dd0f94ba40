#include "cli/ship/dirty.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
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

long dirty_count(const char *path) {
    const char *const words[] = {"-C", path, "status", "--porcelain", "--untracked-files=all",
                                 NULL};
    struct buf list DEFER(buf_done) = BUF(LIST_MAX);
    struct err none;
    if (git_ask_as_owner(words, NULL, &list, &none) < 0 || !list.len)
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

/* The index tells git which files it need not read again, and which ones a sparse checkout left
 * out. A repository without an index has no tracked files. */
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
    while ((n = sendfile(to, from, NULL, 1 << 30)) > 0)
        ;
    return n < 0 ? err_sys(err, "cannot copy file '%s'", index.data) : 0;
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

/* Stores the files of the working tree in the temporary repository; `ret` receives the tree. */
static int add_files(const char *path, const struct beside *b, struct buf *ret, struct err *err) {
    /* The owner's configuration decides which files are ignored and which filters apply. */
    const char *const env[] = {b->index_env, b->objects, NULL};
    const char *const add[] = {"-c", "advice.addEmbeddedRepo=false", "-C", path, "add", "-A", NULL};
    const char *const write[] = {"-C", path, "write-tree", NULL};
    struct buf nothing DEFER(buf_done) = BUF(GIT_SAID_MAX);
    return git_ask_as_owner(add, env, &nothing, err) < 0 ||
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
