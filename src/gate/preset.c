#include "gate/preset.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/dir.h"

/* The files that name the hosts of a tool. Rows with is_default count only if no other row of the
 * preset names a host. */
static const struct source {
    const char *preset, *dir, *file; /* file: a pattern; dir may hold one "*" as its last part */
    const char *marker;              /* text that a line must contain; NULL: any line */
    bool bare;                       /* also host names without a scheme, in quotes or after "=" */
    bool is_default;
} sources[] = {
    {"apt", "etc/apt", "sources.list", NULL, false, false},
    {"apt", "etc/apt/sources.list.d", "*.list", NULL, false, false},
    {"apt", "etc/apt/sources.list.d", "*.sources", NULL, false, false},
    {"apt", "etc/apt/apt.conf.d", "*", "Proxy", false, false},
    {"npm", "etc", "npmrc", "registry", false, false},
    {"npm", "usr/etc", "npmrc", "registry", false, false},
    {"npm", "usr/local/etc", "npmrc", "registry", false, false},
    {"npm", "usr/share/nodejs/npm", "npmrc", "registry", false, false},
    {"npm", "usr/share/nodejs/@npmcli/config/lib/definitions", "definitions.js",
     "default: 'https://", false, true},
    {"npm", "usr/share/nodejs/npm/lib/utils/config", "definitions.js", "default: 'https://", false,
     true},
    {"npm", "usr/lib/node_modules/npm/node_modules/@npmcli/config/lib/definitions",
     "definitions.js", "default: 'https://", false, true},
    {"npm", "usr/local/lib/node_modules/npm/node_modules/@npmcli/config/lib/definitions",
     "definitions.js", "default: 'https://", false, true},
    {"pip", "etc", "pip.conf", "index-url", false, false},
    {"pip", "etc/xdg/pip", "pip.conf", "index-url", false, false},
    {"pip", "usr/lib/python3/dist-packages/pip/_internal/models", "index.py", "PackageIndex(", true,
     true},
    {"pip", "usr/lib/python3/dist-packages/pip/_internal/models", "index.py",
     "file_storage_domain=\"", true, true},
    {"cargo", "usr/local/cargo", "config.toml", "://", false, false},
    {"cargo", "etc/cargo", "config.toml", "://", false, false},
    {"go", "usr/lib/go*", "go.env", "GOPROXY=", true, true},
    {"go", "usr/lib/go*", "go.env", "GOSUMDB=", true, true},
    {"go", "usr/share/go*", "go.env", "GOPROXY=", true, true},
    {"go", "usr/share/go*", "go.env", "GOSUMDB=", true, true},
    {"go", "usr/local/go", "go.env", "GOPROXY=", true, true},
    {"go", "usr/local/go", "go.env", "GOSUMDB=", true, true},
};
enum { SOURCES = sizeof(sources) / sizeof(*sources) };

bool preset_exists(const char *name) {
    for (size_t i = 0; i < SOURCES; i++)
        if (strcmp(sources[i].preset, name) == 0)
            return true;
    return false;
}

int preset_check_word(const char *target, struct err *err) {
    static const char of_words[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    if (!*target || target[strspn(target, of_words)] || preset_exists(target))
        return 0;
    err_set(err, ERR_INVALID, "preset '%.40s' does not exist", target);
    return err_remedy(
        err,
        "presets are apt, npm, pip, cargo and go; '*' is every host; a host of this name is "
        "http://%.40s",
        target);
}

/* ---- scanning a text ---- */

static void preset_add(struct preset_targets *t, const char *scheme, const char *host, size_t n) {
    char target[POLICY_TARGET_SIZE];
    struct policy_rule rule = {.action = POLICY_ALLOW};
    if (n == 0 || n >= NAME_SIZE + 8 || t->count == PRESET_TARGETS_MAX)
        return;
    snprintf(target, sizeof(target), "%s%.*s", scheme, (int)n, host);
    if (policy_target_read(target, &rule, NULL) < 0 || rule.host_kind != HOST_EXACT)
        return;
    for (size_t i = 0; i < t->count; i++)
        if (strcmp(t->list[i], target) == 0)
            return;
    memcpy(t->list[t->count++], target, strlen(target) + 1);
}

/* Finds host and port in a URL and skips a user name before them. */
static size_t authority_of(const char **at, const char *end) {
    const char *p = *at;
    while (p < end && !strchr("/\"' \t,|;>)]", *p) && *p != '\0')
        p++;
    const char *user = memchr(*at, '@', (size_t)(p - *at));
    if (user)
        *at = user + 1;
    return (size_t)(p - *at);
}

static void scan_addresses(const char *line, const char *end, struct preset_targets *t) {
    for (const char *at = line; (at = memmem(at, (size_t)(end - at), "://", 3)); at += 3) {
        const char *host = at + 3;
        bool tls = at - line >= 5 && memcmp(at - 5, "https", 5) == 0;
        bool http = at - line >= 4 && memcmp(at - 4, "http", 4) == 0;
        size_t n = authority_of(&host, end);
        if (tls || http)
            preset_add(t, tls ? "https://" : "http://", host, n);
    }
}

/* Adds words that look like host names: they have a dot, and only characters of host names. */
static void scan_names(const char *line, const char *end, struct preset_targets *t) {
    static const char of_names[] = "abcdefghijklmnopqrstuvwxyz0123456789-.";
    for (const char *at = line; at < end;) {
        size_t n = 0;
        while (at + n < end && at[n] && strchr(of_names, at[n]))
            n++;
        bool alone = (at == line || strchr("\"'=,|", at[-1])) &&
                     (at + n == end || strchr("\"',|+ \t\r", at[n]));
        if (n > 3 && alone && memchr(at, '.', n))
            preset_add(t, "https://", at, n);
        at += n ? n : 1;
    }
}

static bool is_comment(const char *line, const char *end) {
    while (line < end && (*line == ' ' || *line == '\t'))
        line++;
    return line < end && (*line == '#' || *line == ';' || (end - line > 1 && line[0] == '/'));
}

void preset_scan(const char *text, size_t n, const char *marker, bool bare,
                 struct preset_targets *ret) {
    const char *end = text + n;
    for (const char *line = text, *next; line < end; line = next + 1) {
        next = memchr(line, '\n', (size_t)(end - line));
        next = next ? next : end;
        if (is_comment(line, next) ||
            (marker && !memmem(line, (size_t)(next - line), marker, strlen(marker))))
            continue;
        scan_addresses(line, next, ret);
        if (bare)
            scan_names(line, next, ret);
    }
}

/* ---- files ---- */

enum { PATH_ROOM = 512 };

/* Opens a path below root; symbolic links cannot lead out of it. */
static int open_in(int root, const char *path, int flags) {
    struct open_how how = {.flags = (uint64_t)(O_RDONLY | O_CLOEXEC | flags),
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    return (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
}

/* Reads a regular file that is world-readable; the caller frees *ret. */
static ssize_t read_public(int root, const char *path, char **ret) {
    struct stat st;
    int fd DEFER_CLOSE = open_in(root, path, O_NONBLOCK);
    char *text DEFER_FREE = fd < 0 ? NULL : malloc(PRESET_FILE_MAX);
    if (!text || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || !(st.st_mode & S_IROTH))
        return -1;
    ssize_t n = read(fd, text, PRESET_FILE_MAX);
    if (n >= 0)
        *ret = TAKE(text);
    return n;
}

/* The arguments of visit_source(), which calls fn for each file of a source. */
struct visit {
    int root;
    const struct source *source;
    void (*fn)(const struct visit *v, const char *path);
    void *arg;
};

static void scan_file(const struct visit *v, const char *path) {
    char *text DEFER_FREE = NULL;
    ssize_t n = read_public(v->root, path, &text);
    if (n > 0)
        preset_scan(text, (size_t)n, v->source->marker, v->source->bare, v->arg);
}

static DIR *list_in(int root, const char *path) {
    return dir_take(open_in(root, path, O_DIRECTORY));
}

static void visit_dir(const struct visit *v, const char *path) {
    char file[PATH_ROOM];
    DIR *d DEFER(dir_close) = list_in(v->root, path);
    for (struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] != '.' && fnmatch(v->source->file, e->d_name, 0) == 0 &&
            (size_t)snprintf(file, sizeof(file), "%s/%s", path, e->d_name) < sizeof(file))
            v->fn(v, file);
}

/* Visits the directory of the source, or each directory that matches if its last part has a "*". */
static void visit_source(const struct visit *v) {
    char path[PATH_ROOM], below[2 * PATH_ROOM];
    snprintf(path, sizeof(path), "%s", v->source->dir);
    if (!strchr(v->source->dir, '*')) {
        visit_dir(v, path);
        return;
    }
    char *last = strrchr(path, '/');
    *last++ = '\0';
    DIR *d DEFER(dir_close) = list_in(v->root, path);
    for (struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] != '.' && fnmatch(last, e->d_name, 0) == 0) {
            snprintf(below, sizeof(below), "%s/%s", path, e->d_name);
            visit_dir(v, below);
        }
}

/* ---- copies ---- */

enum { KEPT_MAX = 2048 };

struct keeping {
    int to;
    unsigned left;
    int result;
};

static int make_above(int to, const char *path) {
    char above[PATH_ROOM];
    for (const char *slash = path; (slash = strchr(slash, '/')); slash++) {
        snprintf(above, sizeof(above), "%.*s", (int)(slash - path), path);
        if (mkdirat(to, above, 0700) < 0 && errno != EEXIST)
            return -errno;
    }
    return 0;
}

static int sync_dir(int to, const char *path) {
    int dir DEFER_CLOSE = openat(to, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return dir < 0 || fsync(dir) < 0 ? -errno : 0;
}

/* Syncs the directories above a copy. syncfs() would also wait for data of everybody else. */
static int sync_above(int to, const char *path) {
    char above[PATH_ROOM];
    int r = sync_dir(to, ".");
    for (const char *slash = path; r == 0 && (slash = strchr(slash, '/')); slash++) {
        snprintf(above, sizeof(above), "%.*s", (int)(slash - path), path);
        r = sync_dir(to, above);
    }
    return r;
}

/* Writes a durable copy of a file. Replaces an earlier copy, because several sources may name the
 * same file. */
static int put_copy(int to, const char *path, const char *text, size_t n) {
    int r = make_above(to, path);
    int fd DEFER_CLOSE =
        r < 0 ? -1 : openat(to, path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (r == 0 && fd < 0)
        r = -errno;
    if (r == 0 && fchmod(fd, 0644) < 0)
        r = -errno;
    if (r == 0)
        r = write_all(fd, text, n);
    if (r == 0 && fsync(fd) < 0)
        r = -errno;
    return r < 0 ? r : sync_above(to, path);
}

static void keep_file(const struct visit *v, const char *path) {
    struct keeping *k = v->arg;
    char *text DEFER_FREE = NULL;
    ssize_t n = k->left && k->result == 0 ? read_public(v->root, path, &text) : -1;
    if (n < 0)
        return;
    k->left--;
    k->result = put_copy(k->to, path, text, (size_t)n);
}

int preset_keep(int root, int to) {
    struct keeping k = {.to = to, .left = KEPT_MAX};
    for (size_t i = 0; i < SOURCES; i++)
        visit_source(&(struct visit){root, &sources[i], keep_file, &k});
    return k.result;
}

/* ---- layers ---- */

/* True if the layer has this path itself, or hides it. */
static bool layer_covers(int layer, const char *path) {
    char above[PATH_ROOM];
    struct stat st;
    for (const char *slash = path; (slash = strchr(slash, '/')); slash++) {
        snprintf(above, sizeof(above), "%.*s", (int)(slash - path), path);
        if (fstatat(layer, above, &st, AT_SYMLINK_NOFOLLOW) < 0)
            return false;
        if (!S_ISDIR(st.st_mode))
            return true;
    }
    return fstatat(layer, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

struct layering {
    int layer;
    bool covers;
    struct keeping keeping;
};

static void note_covered(const struct visit *v, const char *path) {
    struct layering *l = v->arg;
    l->covers |= layer_covers(l->layer, path);
}

bool preset_layer_differs(int below, int layer) {
    static const uint8_t none[SHA256_BYTES];
    uint8_t own[SHA256_BYTES];
    struct layering l = {.layer = layer};
    for (size_t i = 0; i < SOURCES; i++)
        visit_source(&(struct visit){below, &sources[i], note_covered, &l});
    preset_digest(layer, own);
    return l.covers || memcmp(own, none, sizeof(own)) != 0;
}

static void keep_uncovered(const struct visit *v, const char *path) {
    struct layering *l = v->arg;
    const struct visit one = {v->root, v->source, v->fn, &l->keeping};
    if (!layer_covers(l->layer, path))
        keep_file(&one, path);
}

int preset_keep_layer(int below, int layer, int to) {
    struct layering l = {.layer = layer, .keeping = {.to = to, .left = KEPT_MAX}};
    for (size_t i = 0; i < SOURCES; i++)
        visit_source(&(struct visit){below, &sources[i], keep_uncovered, &l});
    return l.keeping.result < 0 ? l.keeping.result : preset_keep(layer, to);
}

static void digest_file(const struct visit *v, const char *path) {
    char *text DEFER_FREE = NULL;
    ssize_t n = read_public(v->root, path, &text);
    if (n < 0)
        return;
    struct sha256 sum;
    uint8_t hash[SHA256_BYTES], *all = v->arg;
    const char source = (char)(v->source - sources);
    sha256_init(&sum);
    sha256_add(&sum, &source, 1);
    sha256_add(&sum, path, strlen(path) + 1);
    sha256_add(&sum, text, (size_t)n);
    sha256_end(&sum, hash);
    for (size_t i = 0; i < SHA256_BYTES; i++)
        all[i] ^= hash[i];
}

/*
 * Directories list their files in any order, so hashes of files are combined by exclusive or. Each
 * has the number of its source: a file that two sources name must not cancel itself out.
 */
void preset_digest(int root, uint8_t ret[SHA256_BYTES]) {
    memset(ret, 0, SHA256_BYTES);
    for (size_t i = 0; i < SOURCES; i++)
        visit_source(&(struct visit){root, &sources[i], digest_file, ret});
}

/* ---- presets ---- */

int preset_read(const char *name, int root, struct preset_targets *ret, struct err *err) {
    *ret = (struct preset_targets){.count = 0};
    for (int defaults = 0; defaults < 2 && !ret->count; defaults++)
        for (size_t i = 0; i < SOURCES; i++)
            if (sources[i].is_default == (defaults == 1) && strcmp(sources[i].preset, name) == 0)
                visit_source(&(struct visit){root, &sources[i], scan_file, ret});
    if (ret->count)
        return 0;
    err_set(err, ERR_NOT_FOUND,
            "no configuration in the image says where tool '%s' gets its packages from", name);
    return err_remedy(err, "allow the hosts with rules, or configure the tool in the image");
}
