#include "cli/image/build_source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/beneath.h"
#include "cli/image/dockerfile.h"
#include "cli/safe.h"

enum { BASE_ENV_MAX = 256 };

void build_source_done(struct build_source *s) {
    recipe_done(&s->recipe);
    dockerignore_done(&s->ignore);
    json_decref(s->base);
    s->base = NULL;
    close_fd(&s->dir);
}

const char *build_source_user(const struct build_source *s) {
    const char *user = client_text(s->base, "user");
    return *user ? user : "root";
}

const char *build_source_workdir(const struct build_source *s) {
    const char *dir = client_text(s->base, "workdir");
    return *dir == '/' ? dir : "/";
}

/* ---- files ---- */

static int read_path(int at, const char *path, char *to, struct err *err) {
    ssize_t n = read_file_at(at, path, to, RECIPE_BYTES_MAX + 2);
    return n < 0 ? err_num(err, (int)n, "cannot read '%s'", path) : (int)n;
}

/* Reads the file in the build's directory: a recipe, or else a Dockerfile. */
static int read_found(struct build_source *s, const char *dir, char *to, struct err *err) {
    static const char *const names[] = {"recipe", "Dockerfile"};
    for (size_t i = 0; i < 2; i++) {
        ssize_t n = read_file_at(s->dir, names[i], to, RECIPE_BYTES_MAX + 2);
        s->is_dockerfile = i == 1;
        if (n >= 0)
            return (int)n;
        if (n != -ENOENT)
            return err_num(err, (int)n, "cannot read '%s' in directory '%s'", names[i], dir);
    }
    err_set(err, ERR_NOT_FOUND, "directory '%s' has no file named recipe or Dockerfile", dir);
    return err_remedy(err, "name the file: carrel image build -f FILE %.80s", dir);
}

static int open_dir(struct build_source *s, const char *path, struct err *err) {
    s->dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return s->dir < 0 ? err_sys(err, "cannot open directory '%s'", path) : 0;
}

/* Opens the directory of a file that was named, and reads the file in it. */
static int read_named(struct build_source *s, const char *path, char *to, struct err *err) {
    char dir[4096];
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    if (n >= sizeof(dir) - 1)
        return err_set(err, ERR_LIMIT, "the path of the recipe is too long");
    snprintf(dir, sizeof(dir), "%.*s/", (int)n, path);
    if (open_dir(s, slash ? dir : ".", err) < 0)
        return -1;
    ssize_t got = read_file_at(s->dir, slash ? slash + 1 : path, to, RECIPE_BYTES_MAX + 2);
    return got < 0 ? err_num(err, (int)got, "cannot read recipe '%s'", path) : (int)got;
}

/* True for names such as Dockerfile, Dockerfile.test and app.Dockerfile. */
static bool is_dockerfile_name(const char *path) {
    static const char *const names[] = {"Dockerfile", "Containerfile"};
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    for (size_t i = 0; i < 2; i++) {
        size_t n = strlen(names[i]), len = strlen(name);
        if (strncmp(name, names[i], n) == 0 && (name[n] == '\0' || name[n] == '.'))
            return true;
        if (len > n && name[len - n - 1] == '.' && strcmp(name + len - n, names[i]) == 0)
            return true;
    }
    return false;
}

/* Returns the size of the text. */
static int read_text(struct build_source *s, const char *path, const char *file, char *to,
                     struct err *err) {
    struct stat st;
    bool is_dir = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    if (!is_dir && file)
        return err_set(err, ERR_INVALID, "with -f FILE, '%s' must be a directory", path);
    s->is_dockerfile = is_dockerfile_name(is_dir && file ? file : path);
    if (!is_dir)
        return read_named(s, path, to, err);
    if (open_dir(s, path, err) < 0)
        return -1;
    return file ? read_path(AT_FDCWD, file, to, err) : read_found(s, path, to, err);
}

static int read_ignore(struct build_source *s, struct err *err) {
    char *text DEFER_FREE = xmalloc(DOCKERIGNORE_BYTES_MAX + 2);
    size_t len = 0;
    ssize_t n = 0;
    int fd DEFER_CLOSE = beneath_open(s->dir, ".dockerignore", O_RDONLY | O_NONBLOCK);
    if (fd == -ENOENT)
        return dockerignore_read("", 0, &s->ignore, err);
    if (fd < 0)
        return err_num(err, fd, "cannot read .dockerignore");
    while (len <= DOCKERIGNORE_BYTES_MAX &&
           (n = read(fd, text + len, DOCKERIGNORE_BYTES_MAX + 1 - len)) > 0)
        len += (size_t)n;
    return n < 0 ? err_sys(err, "cannot read .dockerignore")
                 : dockerignore_read(text, len, &s->ignore, err);
}

/* ---- Dockerfiles ---- */

/* Reads the base image's configuration, if it is there: the Dockerfile's variables start with it.
 */
static void read_base(struct build_source *s, struct client *c, const char *name) {
    json_t *image DEFER(json_decrefp) = NULL;
    struct err ignored;
    if (image_show(c, name, &image, &ignored) == 0)
        s->base = json_incref(json_object_get(image, "config"));
}

static int translate(struct build_source *s, struct client *c, const char *text, size_t n,
                     const struct build_options *o, struct err *err) {
    struct buf notes DEFER(buf_done) = BUF(64 << 10);
    const char *env[BASE_ENV_MAX];
    struct dockerfile_input in = {.args = o->args, .arg_count = o->arg_count, .env = env};
    json_t *value;
    size_t i;
    if (dockerfile_read(text, n, &in, &s->recipe, NULL, err) < 0)
        return -1;
    read_base(s, c, s->recipe.lines[0].words[0]);
    json_array_foreach(json_object_get(s->base, "env"), i, value) {
        if (in.env_count < BASE_ENV_MAX && json_is_string(value))
            env[in.env_count++] = json_string_value(value);
    }
    in.workdir = build_source_workdir(s);
    recipe_done(&s->recipe);
    if (dockerfile_read(text, n, &in, &s->recipe, &notes, err) < 0)
        return -1;
    if (!o->quiet && notes.len)
        safe_text(stderr, notes.data, notes.len);
    return read_ignore(s, err);
}

int build_source_read(struct build_source *s, struct client *c, const char *path,
                      const struct build_options *o, struct err *err) {
    char *text DEFER_FREE = xmalloc(RECIPE_BYTES_MAX + 2);
    int n = read_text(s, path, o->file, text, err);
    if (n < 0)
        return -1;
    s->is_dockerfile |= dockerfile_is(text, (size_t)n);
    if (s->is_dockerfile)
        return translate(s, c, text, (size_t)n, o, err);
    return o->arg_count ? err_set(err, ERR_INVALID, "--build-arg: a recipe has no arguments")
                        : recipe_read(text, (size_t)n, &s->recipe, err);
}
