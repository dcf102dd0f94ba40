/*
 * Programs of agents: npm downloads the pinned package, its hash is compared, and tar unpacks it
 * into a directory that machines get read-only. No script of a package is run.
 *
 * npm has its own configuration of registry, proxy and login, so it is asked for the download. Its
 * result is only used if the hash is the one in the table.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/dir.h"
#include "base/fs/folder.h"
#include "cli/agent/agent.h"
#include "cli/image/build_wait.h"
#include "cli/ship/git.h"

enum { SAID_MAX = 64 << 10, SHA512_DIGITS = 128 };

/* ---- programs of this host ---- */

/* A program, with its output and its errors in files in memory. */
struct tool {
    struct build_wait *wait;
    const char *dir; /* where it runs: npm obeys the .npmrc of its directory */
    int out, said;
};

/* Variables that npm and tar get. An .npmrc could send any other one, such as a key, elsewhere. */
static const char *const tool_names[] = {"HOME",          "PATH",           "LANG",
                                         "TMPDIR",        "XDG_CACHE_HOME", "XDG_CONFIG_HOME",
                                         "HTTP_PROXY",    "HTTPS_PROXY",    "NO_PROXY",
                                         "http_proxy",    "https_proxy",    "no_proxy",
                                         "SSL_CERT_FILE", "SSL_CERT_DIR",   "NODE_EXTRA_CA_CERTS"};

static bool is_for_tool(const char *entry) {
    if (strncasecmp(entry, "npm_config_", 11) == 0)
        return true;
    for (size_t i = 0; i < sizeof(tool_names) / sizeof(*tool_names); i++) {
        size_t n = strlen(tool_names[i]);
        if (strncmp(entry, tool_names[i], n) == 0 && entry[n] == '=')
            return true;
    }
    return false;
}

static void tool_environment(void) {
    size_t kept = 0;
    for (size_t i = 0; environ[i]; i++)
        if (is_for_tool(environ[i]))
            environ[kept++] = environ[i];
    environ[kept] = NULL;
}

static void become_tool(const struct tool *t, const char *const *argv) {
    int null = open("/dev/null", O_RDONLY);
    umask(022); /* every user of the machine reads what tar writes */
    if (dup2(null, 0) < 0 || dup2(t->out, 1) < 0 || dup2(t->said, 2) < 0 || chdir(t->dir) < 0)
        _exit(127);
    tool_environment();
    close_range(3, ~0u, 0);
    execvp(argv[0], (char *const *)argv);
    _exit(127);
}

/* Reads the reason: of npm the line after its code, of others the last line. */
static void tool_reason(int said, char *ret, size_t size) {
    char text[4096];
    ssize_t n = pread(said, text, sizeof(text) - 1, 0);
    ret[0] = '\0';
    text[n > 0 ? n : 0] = '\0';
    for (char *rest = text, *line; (line = strsep(&rest, "\n"));) {
        bool is_npm = strncmp(line, "npm error ", 10) == 0;
        if (!*line || strncmp(line, "npm warn", 8) == 0 || strncmp(line, "npm error code", 14) == 0)
            continue;
        snprintf(ret, size, "%s", is_npm ? line + 10 : line);
        if (is_npm)
            return;
    }
}

static int tool_run(struct tool *t, const char *const *argv, struct err *err) {
    char why[200];
    int status = -1;
    if (ftruncate(t->out, 0) < 0 || ftruncate(t->said, 0) < 0 || lseek(t->out, 0, SEEK_SET) < 0 ||
        lseek(t->said, 0, SEEK_SET) < 0)
        return err_sys(err, "cannot prepare the output of %s", argv[0]);
    pid_t pid = fork();
    if (pid == 0)
        become_tool(t, argv);
    if (pid < 0)
        return err_sys(err, "cannot start %s", argv[0]);
    build_wait_process(t->wait, pid, &status);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
        err_set(err, ERR_UNSUPPORTED, "%s is not installed on this host", argv[0]);
        return err_remedy(err, "install it: apt install %s",
                          strcmp(argv[0], "sha512sum") == 0 ? "coreutils" : argv[0]);
    }
    tool_reason(t->said, why, sizeof(why));
    return err_set(err, ERR_UNKNOWN, "%s failed: %s", argv[0], *why ? why : "it gave no reason");
}

/* ---- one package ---- */

static bool package_fits(const struct agent_package *p) {
    struct utsname host;
    return !p->cpu || (uname(&host) == 0 && strcmp(p->cpu, host.machine) == 0);
}

/* Finds the archive that npm has written, the only file in the directory. */
static int find_archive(const char *dir, char ret[PATH_MAX], struct err *err) {
    DIR *d DEFER(dir_close) = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] != '.' && snprintf(ret, PATH_MAX, "%s/%s", dir, e->d_name) < (int)PATH_MAX)
            return 0;
    return err_set(err, ERR_UNKNOWN, "npm downloaded no file");
}

static int compare_hash(struct tool *t, const struct agent_package *p, const char *archive,
                        struct err *err) {
    const char *const words[] = {"sha512sum", "--", archive, NULL};
    char hash[SHA512_DIGITS + 1] = "";
    if (tool_run(t, words, err) < 0)
        return -1;
    if (pread(t->out, hash, SHA512_DIGITS, 0) == SHA512_DIGITS && strcmp(hash, p->sha512) == 0)
        return 0;
    err_set(err, ERR_DENIED, "the download of '%s' does not have the hash that Carrel knows",
            p->spec);
    return err_remedy(err, "nothing was unpacked; check the registry that npm uses: npm config get "
                           "registry");
}

static int unpack(struct tool *t, const char *archive, const char *to, struct err *err) {
    const char *const words[] = {"tar",
                                 "--extract",
                                 "--gzip",
                                 "--no-same-owner",
                                 "--no-same-permissions",
                                 "--strip-components=1",
                                 "--exclude=package/include",
                                 "--directory",
                                 to,
                                 "--file",
                                 archive,
                                 NULL};
    return tool_run(t, words, err);
}

/* Downloads the package into WORK/packed, and unpacks it below WORK/program. */
static int package_make(struct tool *t, const struct agent_package *p, const char *work,
                        struct err *err) {
    char packed[PATH_MAX], to[PATH_MAX], archive[PATH_MAX];
    snprintf(packed, sizeof(packed), "%.*s/packed", PATH_MAX - 64, work);
    snprintf(to, sizeof(to), "%.*s/program/%s", PATH_MAX - 64, work, p->into);
    const char *const pack[] = {
        "npm", "pack", "--ignore-scripts", "--pack-destination", packed, "--", p->spec, NULL};
    if (mkdir(packed, 0700) < 0 || (mkdir(to, 0755) < 0 && errno != EEXIST))
        return err_sys(err, "cannot create a directory in '%s'", work);
    if (tool_run(t, pack, err) < 0)
        return err_wrap(err, "cannot download '%s'", p->spec);
    if (find_archive(packed, archive, err) < 0 || compare_hash(t, p, archive, err) < 0)
        return -1;
    if (unpack(t, archive, to, err) < 0)
        return err_wrap(err, "cannot unpack '%s'", p->spec);
    git_temp_remove(packed);
    return 0;
}

/* ---- the program ---- */

int agent_data_dir(char ret[PATH_MAX], struct err *err) {
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    bool given = data && data[0] == '/';
    if (!given && (!home || home[0] != '/'))
        return err_set(err, ERR_INVALID, "HOME is not set, so the agent has no place on this host");
    snprintf(ret, PATH_MAX, "%.*s%s/carrel-agents", PATH_MAX - 64, given ? data : home,
             given ? "" : "/.local/share");
    return 0;
}

bool agent_program_is_there(const struct agent_row *row, char ret[PATH_MAX]) {
    char dir[PATH_MAX];
    struct err none;
    ret[0] = '\0';
    if (agent_data_dir(dir, &none) < 0)
        return false;
    snprintf(ret, PATH_MAX, "%.*s/%s-%s", PATH_MAX - 128, dir, row->name, row->version);
    return access(ret, R_OK | X_OK) == 0;
}

int agent_make_dirs(char *path, struct err *err) {
    for (char *slash = strchr(path + 1, '/');; slash = strchr(slash + 1, '/')) {
        if (slash)
            *slash = '\0';
        int r = mkdir(path, 0700) < 0 && errno != EEXIST;
        if (r)
            err_sys(err, "cannot create directory '%s'", path);
        if (slash)
            *slash = '/';
        if (r || !slash)
            return r ? -1 : 0;
    }
}

static int program_fill(struct tool *t, const struct agent_row *row, const char *work,
                        struct err *err) {
    char program[PATH_MAX];
    size_t made = 0;
    snprintf(program, sizeof(program), "%.*s/program", PATH_MAX - 64, work);
    if (mkdir(program, 0755) < 0)
        return err_sys(err, "cannot create directory '%s'", program);
    for (const struct agent_package *p = row->packages; p->spec; p++) {
        if (!package_fits(p))
            continue;
        made += p->cpu != NULL;
        if (package_make(t, p, work, err) < 0)
            return -1;
    }
    return made ? 0
                : err_set(err, ERR_UNSUPPORTED, "agent '%s' has no package for this processor",
                          row->name);
}

/* Removes what a call that was killed has left. Call it with the lock. */
static void remove_leftovers(const char *dir) {
    char pattern[PATH_MAX];
    glob_t found = {0};
    snprintf(pattern, sizeof(pattern), "%.*s/.new-??????", PATH_MAX - 64, dir);
    if (glob(pattern, GLOB_NOSORT, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++)
            git_temp_remove(found.gl_pathv[i]);
    globfree(&found);
}

/* Makes the program in a temporary directory. Its last name appears only when it is on disk. */
static int program_make(struct tool *t, const struct agent_row *row, const char *dir,
                        const char *final, struct err *err) {
    char work[PATH_MAX], program[PATH_MAX];
    snprintf(work, sizeof(work), "%.*s/.new-XXXXXX", PATH_MAX - 64, dir);
    if (!mkdtemp(work))
        return err_sys(err, "cannot create a directory in '%s'", dir);
    snprintf(program, sizeof(program), "%.*s/program", PATH_MAX - 64, work);
    t->dir = work;
    int r = program_fill(t, row, work, err);
    int fd DEFER_CLOSE = r == 0 ? open(program, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (r == 0 && (fd < 0 || fchmod(fd, 0755) < 0 || syncfs(fd) < 0 || rename(program, final) < 0))
        r = err_sys(err, "cannot create directory '%s'", final);
    git_temp_remove(work);
    return r;
}

int agent_program_make(struct client *c, const struct agent_row *row, bool quiet,
                       char ret[PATH_MAX], struct err *err) {
    char dir[PATH_MAX], what[128], lock[PATH_MAX];
    struct build_wait wait;
    if (agent_data_dir(dir, err) < 0 || agent_make_dirs(dir, err) < 0)
        return -1;
    snprintf(lock, sizeof(lock), "%.*s/lock", PATH_MAX - 64, dir);
    int locked DEFER_CLOSE = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (locked < 0 || flock(locked, LOCK_EX) < 0)
        return err_sys(err, "cannot lock file '%s'", lock);
    remove_leftovers(dir);
    if (agent_program_is_there(row, ret))
        return 0; /* another command has made it meanwhile */
    int out DEFER_CLOSE = memfd_create("out", MFD_CLOEXEC),
            said DEFER_CLOSE = memfd_create("said", MFD_CLOEXEC);
    if (out < 0 || said < 0)
        return err_sys(err, "cannot create a file in memory (memfd)");
    snprintf(what, sizeof(what), "downloading agent %s %s", row->name, row->version);
    if (!quiet)
        fprintf(stderr, "carrel: %s\n", what);
    build_wait_begin(&wait, c, what, quiet);
    struct tool t = {.wait = &wait, .out = out, .said = said};
    int r = program_make(&t, row, dir, ret, err);
    build_wait_end(&wait);
    return r < 0 ? err_wrap(err, "cannot install agent '%s'", row->name) : 0;
}
