#include "cli/ship/bare_commit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "cli/ship/git.h"

/*
 * The files and directories of the temporary repository. Names of directories end with '/'. They
 * are created in this order and removed in reverse.
 */
static const char *const parts[] = {"objects/", "objects/info/", "objects/info/alternates",
                                    "refs/",    "refs/tags/",    BARE_COMMIT_REF,
                                    "config",   "HEAD"};
enum { PARTS = sizeof(parts) / sizeof(*parts), SHA256_HEX = 64 };

static const char *bare_commit_text_of(const char *part, const char *objects, const char *hash) {
    if (strcmp(part, "HEAD") == 0)
        return "ref: refs/heads/none";
    if (strcmp(part, BARE_COMMIT_REF) == 0)
        return hash;
    if (strcmp(part, "config") != 0)
        return objects;
    return strlen(hash) == SHA256_HEX ? "[core]\nrepositoryformatversion = 1\nbare = true\n"
                                        "[extensions]\nobjectformat = sha256"
                                      : "[core]\nrepositoryformatversion = 0\nbare = true";
}

static int bare_commit_make(int dir, const char *objects, const char *hash, struct err *err) {
    for (size_t i = 0; i < PARTS; i++) {
        const char *part = parts[i], *text = bare_commit_text_of(part, objects, hash);
        if (part[strlen(part) - 1] == '/') {
            if (mkdirat(dir, part, 0700) < 0)
                return err_sys(err, "cannot create directory '%s' of a temporary git repository",
                               part);
            continue;
        }
        int fd DEFER_CLOSE = openat(dir, part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        int status = fd < 0 ? -1 : write_all(fd, text, strlen(text));
        if (status < 0 || write_all(fd, "\n", 1) < 0)
            return err_sys(err, "cannot write file '%s' of a temporary git repository", part);
    }
    return 0;
}

static void remove_it(int dir, const char *path) {
    for (size_t i = PARTS; i-- > 0;)
        unlinkat(dir, parts[i], parts[i][strlen(parts[i]) - 1] == '/' ? AT_REMOVEDIR : 0);
    rmdir(path);
}

int bare_commit_bundle(const char *path, const char *hash, int out, struct err *err) {
    const char *const where[] = {"-C",         path,      "rev-parse", "--path-format=absolute",
                                 "--git-path", "objects", NULL};
    struct buf objects DEFER(buf_done) = BUF(GIT_SAID_MAX);
    char beside[] = "/tmp/carrel-repo-XXXXXX";
    if (git_ask(where, &objects, err) < 0)
        return err_wrap(err, "cannot find the objects of git repository '%s'", path);
    if (!objects.len)
        return err_set(err, ERR_INVALID, "git repository '%s' has no directory of objects", path);
    if (!mkdtemp(beside))
        return err_sys(err, "cannot create a temporary git repository in /tmp");
    int dir DEFER_CLOSE = open(beside, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const char *const words[] = {"-C", beside,          "bundle", "create", "-q",
                                 "-",  BARE_COMMIT_REF, "--",     NULL};
    int r = dir < 0 ? err_sys(err, "cannot open directory '%s'", beside)
                    : bare_commit_make(dir, objects.data, hash, err);
    if (r == 0)
        r = git_run(words, out, err);
    remove_it(dir, beside);
    return r;
}
