/*
 * carrel cp: copies files and directories into and out of machines.
 *
 * Files of any size stream through one buffer. A directory travels as a tar archive. carrel-guest,
 * run as a tar tool on both sides, packs and unpacks the archive. It never writes outside the
 * directory it was given.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/dots.h"
#include "base/utf8.h"
#include "base/wire/msg.h"
#include "cli/cli.h"
#include "cli/machine.h"
#include "cli/progress.h"
#include "cli/safe.h"
#include "cli/table.h"

enum { BLOCK = 256 << 10, COMPLAINTS_MAX = 64 << 10 };

struct copy_options {
    const char *user;
    bool recursive, quiet, help;
};

#define AT(member) offsetof(struct copy_options, member)

const struct option_row cp_rows[] = {
    {'u', "user", "NAME", OPTION_TEXT, AT(user),
     "access files as this user: user, root or a uid (default: the image's user)"},
    {'r', "recursive", NULL, OPTION_FLAG, AT(recursive),
     "ignored: directories are always copied with their contents"},
    {'q', "quiet", NULL, OPTION_FLAG, AT(quiet), "show no progress, and print nothing on success"},
    {'h', "help", NULL, OPTION_FLAG, AT(help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};

/* The SOURCE or the DESTINATION of a copy. */
struct end {
    char machine[128]; /* empty: this host */
    char path[PATH_MAX];
    bool is_stream; /* "-" */
    bool exists, is_dir;
    mode_t mode;
    uint64_t size;
};

struct copy {
    struct copy_options o;
    struct client client;
    struct end from, to;
};

/* ---- source and destination ---- */

/* Reads "MACHINE:PATH", or a path of this host if there is no colon or a slash comes before it. */
static int read_end(const char *text, struct end *e, struct err *err) {
    size_t n = strcspn(text, ":/");
    bool inside = text[n] == ':' && n > 0;
    const char *path = inside ? text + n + 1 : text;
    *e = (struct end){.is_stream = strcmp(text, "-") == 0};
    if (n >= sizeof(e->machine) || strlen(path) + 16 > sizeof(e->path) || !*text)
        return err_set(err, ERR_INVALID, "argument '%.60s' is not a path or MACHINE:PATH", text);
    if (!inside) {
        snprintf(e->path, sizeof(e->path), "%s", path);
        return 0;
    }
    if (!utf8_valid(path, strlen(path))) {
        err_set(err, ERR_UNSUPPORTED, "the path '%s' in the machine is not UTF-8", path);
        return err_remedy(err, "copy the directory that contains the file instead");
    }
    snprintf(e->machine, sizeof(e->machine), "%.*s", (int)n, text);
    snprintf(e->path, sizeof(e->path), "%s", path);
    return 0;
}

/* A relative path in a machine starts at the home directory of the user. */
static int settle_home(struct copy *c, struct end *e, struct err *err) {
    char target[CLIENT_TARGET_SIZE], path[PATH_MAX];
    json_t *machine DEFER(json_decrefp) = NULL;
    const struct client_request r = {.method = "GET", .target = target};
    if (!e->machine[0] || e->path[0] == '/')
        return 0;
    if (!c->o.user && (client_target(target, err, "/v1/machines/%s", e->machine) < 0 ||
                       client_call(&c->client, &r, &machine, err) < 0))
        return -1;
    const char *home = c->o.user && strcmp(c->o.user, "root") == 0 ? "/root"
                       : machine && *client_text(machine, "home")  ? client_text(machine, "home")
                                                                   : "/home/user";
    snprintf(path, sizeof(path), "%s", e->path);
    if (snprintf(e->path, sizeof(e->path), "%s%s%s", home,
                 *path && home[strlen(home) - 1] != '/' ? "/" : "", path) >= (int)sizeof(e->path))
        return err_set(err, ERR_LIMIT, "path '%.60s' is too long", path);
    return 0;
}

static int target_of(const struct copy *c, const struct end *e, const char *format,
                     char target[CLIENT_TARGET_SIZE], struct err *err) {
    return client_target(target, err, format, e->machine, e->path) < 0
               ? -1
               : client_query(target, "user", c->o.user, err);
}

static int look_inside(struct copy *c, struct end *e, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    json_t *entry DEFER(json_decrefp) = NULL;
    const struct client_request r = {.method = "GET", .target = target};
    if (target_of(c, e, "/v1/machines/%s/files/stat?path=%s&follow=1", target, err) < 0)
        return -1;
    if (client_call(&c->client, &r, &entry, err) < 0)
        return -1;
    e->exists = true;
    e->is_dir = strcmp(client_text(entry, "type"), "directory") == 0;
    e->mode = (mode_t)strtoul(client_text(entry, "mode"), NULL, 8) & 0777;
    e->size = (uint64_t)client_number(entry, "size");
    if (!e->is_dir && strcmp(client_text(entry, "type"), "file") != 0)
        return err_set(err, ERR_INVALID, "path '%s' is neither a regular file nor a directory",
                       e->path);
    return 0;
}

static int look_here(struct end *e, struct err *err) {
    struct stat st;
    if (stat(e->path, &st) < 0)
        return err_sys(err, "cannot open '%s'", e->path);
    e->exists = true;
    e->is_dir = S_ISDIR(st.st_mode);
    e->mode = st.st_mode & 0777;
    e->size = (uint64_t)st.st_size;
    if (!e->is_dir && !S_ISREG(st.st_mode)) {
        err_set(err, ERR_INVALID, "path '%s' is neither a regular file nor a directory", e->path);
        return err_remedy(err, "pipe it: carrel cp - MACHINE:PATH <%s", e->path);
    }
    return 0;
}

static int copy_look(struct copy *c, struct end *e, struct err *err) {
    if (e->is_stream)
        return 0;
    return e->machine[0] ? look_inside(c, e, err) : look_here(e, err);
}

/* Returns the last name of a path; NULL: a copy cannot have this name, such as ".." or "/". */
static const char *last_name(const char *path, char to[NAME_MAX + 1]) {
    size_t n = strlen(path);
    while (n > 0 && path[n - 1] == '/')
        n--;
    size_t start = n;
    while (start > 0 && path[start - 1] != '/')
        start--;
    if (n == start || n - start > NAME_MAX)
        return NULL;
    snprintf(to, NAME_MAX + 1, "%.*s", (int)(n - start), path + start);
    return is_dots(to) ? NULL : to;
}

/* Finds the path of the copy as cp(1) does: inside an existing directory, else as typed. */
static int settle_target(struct copy *c, struct err *err) {
    struct end *to = &c->to;
    char name[NAME_MAX + 1];
    size_t n = strlen(to->path);
    if (to->is_stream)
        return 0;
    bool absent = copy_look(c, to, err) < 0;
    if (absent && !(to->machine[0] ? err->code == ERR_NOT_FOUND : errno == ENOENT))
        return -1;
    if (!to->is_dir && n > 0 && to->path[n - 1] == '/')
        return err_set(err, ERR_NOT_FOUND, "directory '%s' does not exist", to->path);
    if (!to->is_dir)
        return c->from.is_dir && to->exists
                   ? err_set(err, ERR_INVALID, "path '%s' is a file: a directory cannot replace it",
                             to->path)
                   : 0;
    if (c->from.is_stream || !last_name(c->from.path, name))
        return c->from.is_dir
                   ? 0
                   : err_set(err, ERR_INVALID, "destination '%s' is a directory: add a file name",
                             to->path);
    if (snprintf(to->path + n, sizeof(to->path) - n, "%s%s", to->path[n - 1] == '/' ? "" : "/",
                 name) >= (int)(sizeof(to->path) - n))
        return err_set(err, ERR_LIMIT, "path '%s' is too long", to->path);
    to->exists = to->is_dir = false;
    absent = copy_look(c, to, err) < 0;
    if (!absent && to->is_dir != c->from.is_dir)
        return err_set(err, ERR_INVALID, "path '%s' already exists and is %s", to->path,
                       to->is_dir ? "a directory" : "a file");
    return 0;
}

/* ---- streams ---- */

static int send_from(struct copy *c, int fd, const char *target, const char *what, uint64_t size,
                     struct err *err) {
    char *block DEFER_FREE = malloc(BLOCK);
    struct progress p = progress_begin(what, size, c->o.quiet);
    const struct http_head *head;
    struct buf answer DEFER(buf_done) = BUF(65536);
    const struct client_request r = {.method = "PUT", .target = target, .streamed = true};
    ssize_t n = 0;
    if (!block)
        return err_set(err, ERR_LIMIT, "out of memory");
    if (client_send(&c->client, c->client.http, &r, err) < 0)
        return -1;
    while ((n = read(fd, block, BLOCK)) > 0 || (n < 0 && errno == EINTR)) {
        if (n > 0 && http_client_write(c->client.http, block, (size_t)n, err) < 0)
            return -1;
        progress_add(&p, n > 0 ? (uint64_t)n : 0);
    }
    if (n < 0) /* close the connection, so that the daemon discards the incomplete file */
        return err_sys(err, "cannot read '%s'", what);
    progress_end(&p);
    if (http_client_finish(c->client.http, err) < 0 ||
        client_answer(c->client.http, &head, err) < 0)
        return -1;
    return http_client_collect(c->client.http, &answer, err);
}

static int receive_to(struct copy *c, int fd, const char *target, const char *what, uint64_t size,
                      struct err *err) {
    struct progress p = progress_begin(what, size, c->o.quiet);
    const struct client_request r = {.method = "GET", .target = target, .accept = "*/*"};
    const struct http_head *head;
    const char *bytes;
    size_t n;
    int more;
    if (client_send(&c->client, c->client.http, &r, err) < 0 ||
        client_answer(c->client.http, &head, err) < 0)
        return -1;
    while ((more = http_client_read(c->client.http, &bytes, &n, err)) > 0) {
        int w = write_all(fd, bytes, n);
        if (w < 0)
            return err_num(err, w, "cannot write the copy of '%s'", what);
        progress_add(&p, n);
    }
    progress_end(&p);
    return more;
}

/* ---- files ---- */

/* Sets the mode of the copy in the machine: a file that is replaced keeps its old mode. */
static int give_mode(struct copy *c, mode_t mode, struct err *err) {
    struct buf body DEFER(buf_done) = BUF(3 * PATH_MAX);
    struct jot j = JOT(&body);
    char target[CLIENT_TARGET_SIZE], octal[8];
    const struct client_request r = {.method = "POST", .target = target, .body = &body};
    snprintf(octal, sizeof(octal), "%o", mode);
    jot_object(&j, NULL);
    jot_string(&j, "path", c->to.path);
    jot_string(&j, "mode", octal);
    if (c->o.user)
        jot_string(&j, "user", c->o.user);
    jot_end(&j, '}');
    if (client_target(target, err, "/v1/machines/%s/files/chmod", c->to.machine) < 0)
        return -1;
    return client_call(&c->client, &r, NULL, err);
}

static int copy_put_file(struct copy *c, struct err *err) {
    char target[CLIENT_TARGET_SIZE], octal[8];
    mode_t mode = c->from.is_stream ? 0644 : c->from.mode;
    int fd DEFER_CLOSE = c->from.is_stream ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
                                           : open(c->from.path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, "cannot open file '%s'", c->from.path);
    snprintf(octal, sizeof(octal), "%o", mode);
    if (target_of(c, &c->to, "/v1/machines/%s/files?path=%s", target, err) < 0 ||
        client_query(target, "mode", octal, err) < 0 ||
        send_from(c, fd, target, c->from.path, c->from.size, err) < 0)
        return -1;
    return c->to.exists && !c->from.is_stream ? give_mode(c, mode, err) : 0;
}

/* Applies the umask, so that a mode from the machine gives nobody more access on this host. */
static mode_t own_mode(mode_t mode) {
    mode_t masked = umask(0);
    umask(masked);
    return mode & ~masked;
}

/* Writes the file under a temporary name, and renames it once it is complete. */
static int get_into_place(struct copy *c, const char *target, struct err *err) {
    char aside[PATH_MAX + 32];
    snprintf(aside, sizeof(aside), "%s.carrel-%d", c->to.path, (int)getpid());
    int fd DEFER_CLOSE = open(aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(err, "cannot create temporary file '%s'", aside);
    int r = receive_to(c, fd, target, c->from.path, c->from.size, err);
    if (r == 0 && (fchmod(fd, own_mode(c->from.mode)) < 0 || rename(aside, c->to.path) < 0))
        r = err_sys(err, "cannot write file '%s'", c->to.path);
    if (r < 0)
        unlink(aside);
    return r;
}

static int get_file(struct copy *c, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    if (target_of(c, &c->from, "/v1/machines/%s/files?path=%s", target, err) < 0)
        return -1;
    return c->to.is_stream ? receive_to(c, STDOUT_FILENO, target, c->from.path, c->from.size, err)
                           : get_into_place(c, target, err);
}

/* ---- directories ---- */

/* The guest's tar tool, run on this host. `stream` is the other end of its stdin or stdout. */
struct tool {
    pid_t pid;
    int stream;
    int complaints;
};

static void become_tool(const struct place *place, const char *verb, const char *path, int in,
                        int out, int complaints) {
    char program[PLACE_SIZE + 16];
    snprintf(program, sizeof(program), "%s/carrel-guest", place->libexec);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(in < 0 ? null : in, STDIN_FILENO);
    dup2(out < 0 ? null : out, STDOUT_FILENO);
    dup2(complaints, STDERR_FILENO);
    signal(SIGPIPE, SIG_DFL);
    execl(program, "carrel-guest", "tool", verb, path, (char *)NULL);
    _exit(127);
}

static int tool_start(struct tool *t, const struct place *place, const char *path, bool packs,
                      struct err *err) {
    char full[PATH_MAX];
    int ends[2];
    *t = (struct tool){.pid = -1, .stream = -1, .complaints = -1};
    if (!realpath(path, full))
        return err_sys(err, "cannot open directory '%s'", path);
    t->complaints = memfd_create("complaints", MFD_CLOEXEC);
    if (t->complaints < 0 || pipe2(ends, O_CLOEXEC) < 0)
        return err_sys(err, "cannot create a pipe to the tar tool");
    t->pid = fork();
    if (t->pid == 0)
        become_tool(place, packs ? "tar" : "untar-masked", full, packs ? -1 : ends[0],
                    packs ? ends[1] : -1, t->complaints);
    close(ends[packs ? 1 : 0]);
    t->stream = ends[packs ? 0 : 1];
    return t->pid < 0 ? err_sys(err, "cannot start the tar tool") : 0;
}

/* Prints the tool's errors, lines of "ERRNO WHAT PATH". If the tool failed, its first error
 * becomes *err. */
static void show_complaints(int fd, bool failed, struct err *err) {
    char *text DEFER_FREE = calloc(1, COMPLAINTS_MAX + 1);
    ssize_t n = text ? pread(fd, text, COMPLAINTS_MAX, 0) : 0;
    bool told = false;
    for (char *line = n > 0 ? text : NULL, *end; line && *line; line = end ? end + 1 : NULL) {
        struct err one;
        char *what;
        if ((end = strchr(line, '\n')))
            *end = '\0';
        int number = (int)strtol(line, &what, 10);
        err_set(&one, ERR_INVALID, "%s%s%s", what + (*what == ' '), number ? ": " : "",
                number ? strerror(number) : "");
        if (failed && !told)
            *err = one;
        else
            cli_fail(&one);
        told = true;
    }
    if (failed && !told)
        err_set(err, ERR_INTERNAL, "the tar archive of the copied directory is incomplete");
}

/* Waits for the tar tool. 0: all files were copied; -1: *err is set, other errors were printed. */
static int tool_end(struct tool *t, struct err *err) {
    int status = 0;
    close_fd(&t->stream);
    while (t->pid > 0 && waitpid(t->pid, &status, 0) < 0 && errno == EINTR)
        ;
    bool done = WIFEXITED(status) && WEXITSTATUS(status) == MSG_TOOL_DONE;
    bool partly = WIFEXITED(status) && WEXITSTATUS(status) == MSG_TOOL_PARTLY;
    if (!done && t->pid > 0)
        show_complaints(t->complaints, !partly, err);
    if (partly)
        err_set(err, ERR_INVALID, "some files were not copied");
    close_fd(&t->complaints);
    return done ? 0 : -1;
}

static int make_dir_inside(struct copy *c, struct err *err) {
    struct buf body DEFER(buf_done) = BUF(3 * PATH_MAX);
    struct jot j = JOT(&body);
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "POST", .target = target, .body = &body};
    jot_object(&j, NULL);
    jot_string(&j, "path", c->to.path);
    jot_u64(&j, "mode", c->from.mode);
    if (c->o.user)
        jot_string(&j, "user", c->o.user);
    jot_end(&j, '}');
    if (client_target(target, err, "/v1/machines/%s/files/mkdir", c->to.machine) < 0)
        return -1;
    return client_call(&c->client, &r, NULL, err);
}

static int put_dir(struct copy *c, struct err *err) {
    struct tool t;
    struct err why;
    char target[CLIENT_TARGET_SIZE];
    if ((!c->to.is_dir && make_dir_inside(c, err) < 0) ||
        target_of(c, &c->to, "/v1/machines/%s/files/tar?path=%s", target, err) < 0 ||
        tool_start(&t, &c->client.place, c->from.path, true, err) < 0)
        return -1;
    int r = send_from(c, t.stream, target, c->from.path, 0, err);
    int packed = tool_end(&t, &why);
    if (r == 0 && packed < 0)
        *err = why;
    return r < 0 ? r : packed;
}

static int get_dir(struct copy *c, struct err *err) {
    struct tool t;
    struct err why;
    char target[CLIENT_TARGET_SIZE];
    if (c->to.is_stream)
        return err_set(err, ERR_INVALID,
                       "path '%s' is a directory: it cannot be written to standard output",
                       c->from.path);
    if (!c->to.is_dir && mkdir(c->to.path, c->from.mode | 0700) < 0)
        return err_sys(err, "cannot create directory '%s'", c->to.path);
    if (target_of(c, &c->from, "/v1/machines/%s/files/tar?path=%s", target, err) < 0 ||
        tool_start(&t, &c->client.place, c->to.path, false, err) < 0)
        return -1;
    int r = receive_to(c, t.stream, target, c->from.path, 0, err);
    int unpacked = tool_end(&t, &why);
    if (unpacked < 0 && (r == 0 || t.pid > 0))
        *err = why; /* the tool failed first: a broken pipe is only the consequence */
    return r < 0 ? r : unpacked;
}

/* ---- the command ---- */

static int check_ends(const struct copy *c, struct err *err) {
    bool in = c->to.machine[0], out = c->from.machine[0];
    if (in && out) {
        err_set(err, ERR_UNSUPPORTED, "files cannot be copied directly between two machines");
        return err_remedy(err, "use a pipe: carrel cp A:PATH - | carrel cp - B:PATH");
    }
    if (in || out)
        return 0;
    err_set(err, ERR_INVALID, "neither SOURCE nor DESTINATION is in a machine");
    return err_remedy(err, "write MACHINE:PATH for a file in a machine");
}

static int copy_between(struct copy *c, struct err *err) {
    const char *machine = c->to.machine[0] ? c->to.machine : c->from.machine;
    signal(SIGPIPE, SIG_IGN);
    if (cli_machine_open(&c->client, machine, err) < 0 || settle_home(c, &c->from, err) < 0 ||
        settle_home(c, &c->to, err) < 0 || copy_look(c, &c->from, err) < 0 ||
        settle_target(c, err) < 0)
        return -1;
    if (c->to.machine[0])
        return c->from.is_dir ? put_dir(c, err) : copy_put_file(c, err);
    return c->from.is_dir ? get_dir(c, err) : get_file(c, err);
}

static void copy_free(struct copy **slot) {
    if (*slot)
        client_close(&(*slot)->client);
    free(*slot);
}

int cmd_cp(int argc, char **argv) {
    struct err err = {0};
    struct copy *c DEFER(copy_free) = xnew(struct copy);
    if (options_take(cp_rows, argc, argv, &c->o, &err) < 0)
        return cli_fail(&err);
    if (c->o.help) {
        cli_usage("cp");
        options_print(cp_rows);
        return 0;
    }
    char **words = argv + 1;
    if (!words[0] || !words[1] || words[2]) {
        err_set(&err, ERR_INVALID, "carrel cp takes two arguments: SOURCE and DESTINATION");
        err_remedy(&err, "carrel cp FILE MACHINE:PATH, or carrel cp MACHINE:PATH FILE");
        return cli_fail(&err);
    }
    if (read_end(words[0], &c->from, &err) < 0 || read_end(words[1], &c->to, &err) < 0 ||
        check_ends(c, &err) < 0 || copy_between(c, &err) < 0)
        return cli_fail(&err);
    cli_done(c->o.quiet, "copied '%s' to '%s'", words[0], words[1]);
    return 0;
}
