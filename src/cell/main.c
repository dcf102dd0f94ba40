/*
 * carrel-cell: the worker program behind `carrel cell` and `carrel wast`.
 *
 * This process reads the files that the command line names, and prints results. Only a confined
 * child process (cell/jail.h) parses the files.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/banned.h"
#include "base/cell_dump.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/parse.h"
#include "cell/dump.h"
#include "cell/guests.h"
#include "cell/jail.h"
#include "cell/json.h"
#include "cell/machine_main.h"
#include "cell/options.h"
#include "cell/session.h"
#include "wasm/text/wast.h"

enum { MAX_FILE = 256 << 20, PROGRAM_NAME_SIZE = 65 };

static const struct {
    const char *name;
    int (*body)(struct link *l, const void *job);
} bodies[] = {
    {"run", verb_run},
    {"check", verb_check},
    {"fuel", verb_fuel},
    {"replay", verb_replay},
};

static int exit_code(enum err_code code) {
    return code == ERR_LIMIT ? CELL_LIMIT : code == ERR_INTERNAL ? CELL_INTERNAL : CELL_INVALID;
}

/* Prints an error as text or JSON, in the format of all programs of Carrel. Returns `code`. */
static int main_fail(const struct cell_options *o, int code, const struct err *err) {
    struct buf b DEFER(buf_done) = BUF(1 << 16);
    if (!o->json) {
        fprintf(stderr, "carrel: %s\n", err->text);
        if (err->remedy[0])
            fprintf(stderr, "  %s\n", err->remedy);
        return code;
    }
    if (buf_addf(&b, "{\"error\":{\"code\":\"%s\",\"message\":", err_code_name(err->code)) &&
        json_string(&b, err->text, strlen(err->text)) && buf_addf(&b, ",\"remedy\":") &&
        json_string(&b, err->remedy, strlen(err->remedy)))
        printf("%s}}\n", b.data);
    return code;
}

/* --- files --- */

static int read_file(const char *path, struct buf *ret, struct err *err) {
    int fd DEFER_CLOSE =
        strcmp(path, "-") == 0 ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, "cannot open '%s'", path);
    char chunk[65536];
    for (ssize_t n; (n = read(fd, chunk, sizeof(chunk))) != 0;) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, "cannot read '%s'", path);
        if (!buf_add(ret, chunk, (size_t)n))
            return err_set(err, ERR_LIMIT, "file '%s' is larger than %d MiB", path, MAX_FILE >> 20);
    }
    return 0;
}

static int write_whole(int fd, const struct buf *b) {
    for (size_t at = 0; at < b->len;) {
        ssize_t n = write(fd, b->data + at, b->len - at);
        if (n < 0 && errno != EINTR)
            return -1;
        at += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* Writes a whole file (a state or a log), or nothing. */
static int write_file(const char *path, const struct buf *b, struct err *err) {
    char part[4096];
    if ((size_t)snprintf(part, sizeof(part), "%s.part", path) >= sizeof(part))
        return err_set(err, ERR_INVALID, "cannot write '%s': the file name is too long", path);
    int fd DEFER_CLOSE = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(err, "cannot write '%s'", path);
    if (write_whole(fd, b) < 0 || rename(part, path) < 0) {
        err_sys(err, "cannot write '%s'", path);
        unlink(part);
        return -1;
    }
    return 0;
}

static struct slice slice_of(const struct buf *b) {
    return (struct slice){.data = (const uint8_t *)(b->data ? b->data : ""), .len = b->len};
}

/* --- cell --- */

static int write_results(const struct cell_options *o, const struct jail *j, struct err *err) {
    if (o->out && j->state.len && write_file(o->out, &j->state, err) < 0)
        return -1;
    return o->record && j->log.len ? write_file(o->record, &j->log, err) : 0;
}

/*
 * Returns the memory limit of the jail: five times the budget of the program, because the process
 * that saves a state holds the memory, its initial image, the state and the state's last growth;
 * plus space for translated code and the log.
 */
static uint64_t memory_limit(const struct job *job) {
    const uint64_t fixed = UINT64_C(1) << 30, most = UINT64_C(1) << 46;
    uint64_t budget = cell_budget(job->options->memory);
    uint64_t files = (uint64_t)job->bytes.len * 64 + (uint64_t)(job->state.len + job->warm.len) * 2;
    for (int i = 0; i < job->program_count; i++)
        files += (uint64_t)job->programs[i].bytes.len * 64;
    return budget < most ? 5 * budget + files + 2 * fixed : 0;
}

/*
 * Returns the CPU limit in seconds. A unit of fuel takes far less than a microsecond. The fuel in a
 * state or log is not known here: then the time is not limited.
 */
static uint64_t cpu_limit(const struct job *job) {
    const struct cell_options *o = job->options;
    bool is_known = !o->resume && strcmp(o->verb, "replay") != 0;
    return is_known ? 60 + o->fuel / 1000000 + job->bytes.len / 100000 : 0;
}

/* --- grants --- */

/* Reads ADDRESS:PORT; an address of IPv6 stands in brackets. */
static int listen_address(const char *text, struct sockaddr_storage *ret, socklen_t *ret_size,
                          struct err *err) {
    struct sockaddr_in *v4 = (void *)ret;
    struct sockaddr_in6 *v6 = (void *)ret;
    const char *colon = strrchr(text, ':');
    char host[64] = "";
    uint64_t port;
    size_t len = colon ? (size_t)(colon - text) : 0;
    bool is_v6 = len > 2 && text[0] == '[' && text[len - 1] == ']';
    if (colon && len < sizeof(host))
        memcpy(host, text + is_v6, len - 2 * (size_t)is_v6);
    *ret = (struct sockaddr_storage){0};
    ret->ss_family = is_v6 ? AF_INET6 : AF_INET;
    if (!colon || parse_u64(colon + 1, 0, 65535, &port, err) < 0 ||
        inet_pton(ret->ss_family, host, is_v6 ? (void *)&v6->sin6_addr : &v4->sin_addr) != 1)
        return err_set(err, ERR_INVALID,
                       "--listen %s: must be ADDRESS:PORT, such as 127.0.0.1:8080 or [::1]:8080",
                       text);
    if (is_v6)
        v6->sin6_port = htons((uint16_t)port);
    else
        v4->sin_port = htons((uint16_t)port);
    *ret_size = is_v6 ? sizeof(*v6) : sizeof(*v4);
    return 0;
}

static int listen_open(const char *text, struct err *err) {
    struct sockaddr_storage address;
    socklen_t size = 0;
    if (listen_address(text, &address, &size, err) < 0)
        return -1;
    int fd DEFER_CLOSE = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) < 0 ||
        bind(fd, (struct sockaddr *)&address, size) < 0 || listen(fd, 64) < 0)
        return err_sys(err, "cannot listen on %s", text);
    return TAKE_FD(fd);
}

static int open_grants(const struct cell_options *o, struct jail *j, struct err *err) {
    for (int i = 0; i < o->dir_count; i++)
        j->dirs[j->n_dirs++] = (struct jail_dir){o->dirs[i].host, o->dirs[i].is_read_only};
    if (o->kv) /* the last directory, which WASI does not see: cell/host_kv.c */
        j->dirs[j->n_dirs++] = (struct jail_dir){o->kv, false};
    for (int i = 0; i < o->listen_count; i++) {
        int fd = listen_open(o->listen[i], err);
        if (fd < 0)
            return -1;
        j->sockets[j->n_sockets++] = fd;
    }
    return 0;
}

/* A directory that cannot be granted is an ability that the program does not get. */
static int jail_exit_code(const struct cell_options *o, const struct err *err) {
    bool is_refused = (o->dir_count || o->kv) && err->code == ERR_UNSUPPORTED;
    return err->code == ERR_LIMIT ? CELL_LIMIT : is_refused ? CELL_DENIED : CELL_INTERNAL;
}

/* Only a program that runs may read standard input: a file that is only checked has no use for it.
 */
static bool reads_input(const struct cell_options *o) {
    return strcmp(o->verb, "run") == 0 || strcmp(o->verb, "fuel") == 0;
}

/* The programs of --program, which the program may call. */
struct program_files {
    struct named_program list[CELL_MAX_PROGRAMS];
    char names[CELL_MAX_PROGRAMS][PROGRAM_NAME_SIZE];
    struct buf bytes[CELL_MAX_PROGRAMS];
    int count;
};

static void program_files_done(struct program_files *f) {
    for (int i = 0; i < f->count; i++)
        buf_done(&f->bytes[i]);
}

static int read_programs(const struct cell_options *o, struct program_files *ret, struct err *err) {
    for (int i = 0; i < o->program_count; i++) {
        const char *text = o->programs[i], *equals = strchr(text, '=');
        int len = (int)(equals - text);
        if (snprintf(ret->names[i], sizeof(ret->names[i]), "%.*s", len, text) != len ||
            len >= PROGRAM_NAME_SIZE)
            return err_set(err, ERR_INVALID, "--program %.40s...: the name is too long", text);
        ret->bytes[i] = BUF(MAX_FILE);
        ret->count++;
        if (read_file(equals + 1, &ret->bytes[i], err) < 0)
            return -1;
        ret->list[i] = (struct named_program){ret->names[i], slice_of(&ret->bytes[i])};
    }
    return 0;
}

/* A script and the warm image of its interpreter, or its dump; no image: `warm` is empty. */
struct script_start {
    struct buf warm, request;
    struct dump dump;
    bool has_dump, is_untouched;
};

/* Runs the program in file `program`. `script` is NULL if it is not an interpreter. */
static int run_cell(const struct cell_options *o, const char *program,
                    const struct script_start *script, int (*body)(struct link *, const void *)) {
    struct buf file DEFER(buf_done) = BUF(MAX_FILE), state DEFER(buf_done) = BUF(JAIL_MAX_BLOB);
    struct program_files programs DEFER(program_files_done) = {.count = 0};
    struct err err;
    bool has_dump = script && script->has_dump;
    if ((!has_dump && read_file(program, &file, &err) < 0) || read_programs(o, &programs, &err) < 0)
        return main_fail(o, exit_code(err.code), &err);
    if (o->resume && read_file(o->resume, &state, &err) < 0)
        return main_fail(o, CELL_STATE, &err);
    struct job job = {.options = o,
                      .file = program,
                      .bytes = slice_of(&file),
                      .state = slice_of(&state),
                      .is_script = script,
                      .dump = has_dump ? &script->dump : NULL,
                      .programs = programs.list,
                      .program_count = programs.count,
                      .is_terminal = {isatty(STDIN_FILENO), isatty(STDOUT_FILENO)}};
    if (script && script->warm.len > WARM_HEAD_SIZE) {
        job.warm = (struct slice){.data = (const uint8_t *)script->warm.data + WARM_HEAD_SIZE,
                                  .len = script->warm.len - WARM_HEAD_SIZE};
    }
    if (script) {
        job.request = slice_of(&script->request);
        job.is_untouched = script->is_untouched;
    }
    struct jail j = {.out_fd = STDOUT_FILENO,
                     .err_fd = STDERR_FILENO,
                     .has_input = reads_input(o),
                     .in_fd = STDIN_FILENO,
                     .memory_bytes = memory_limit(&job),
                     .cpu_seconds = cpu_limit(&job),
                     .state = BUF(JAIL_MAX_BLOB),
                     .log = BUF(JAIL_MAX_BLOB)};
    if (open_grants(o, &j, &err) < 0)
        return main_fail(o, err.code == ERR_INVALID ? CELL_USAGE : CELL_DENIED, &err);
    int code = jail_run(&j, body, &job, &err);
    if (code < 0)
        code = main_fail(o, jail_exit_code(o, &err), &err);
    else if (write_results(o, &j, &err) < 0)
        code = main_fail(o, CELL_INTERNAL, &err);
    buf_done(&j.state);
    buf_done(&j.log);
    return code;
}

enum { REQUEST_MAX = 16 << 20 };

static void script_start_done(struct script_start *s) {
    buf_done(&s->warm);
    buf_done(&s->request);
    dump_done(&s->dump);
}

static int run_script_file(const struct cell_options *o, int (*body)(struct link *, const void *)) {
    struct script_run g DEFER(script_close);
    struct err err;
    if (script_open(o, &g, &err) < 0)
        return main_fail(o, err.code == ERR_INVALID ? CELL_USAGE : exit_code(err.code), &err);
    struct script_start start DEFER(script_start_done) = {.warm = BUF(JAIL_MAX_BLOB),
                                                          .request = BUF(REQUEST_MAX),
                                                          .is_untouched =
                                                              g.image && !g.image->driver};
    bool may = g.image && warm_request(g.image, &g.options, g.script_word, &start.request);
    start.has_dump =
        may && dump_open_path(g.dump, g.program, g.warm, g.head, g.options.memory, &start.dump);
    bool is_warm = may && !start.has_dump && read_file(g.warm, &start.warm, &err) == 0 &&
                   start.warm.len > WARM_HEAD_SIZE &&
                   memcmp(start.warm.data, g.head, WARM_HEAD_SIZE) == 0;
    if (!is_warm)
        start.warm.len = 0;
    return run_cell(&g.options, g.program, &start, body);
}

static int make_warm(const struct cell_options *o) {
    struct script_run g DEFER(script_close);
    struct err err;
    if (script_open_warm(o, &g, &err) < 0)
        return main_fail(o, err.code == ERR_INVALID ? CELL_USAGE : exit_code(err.code), &err);
    int code = run_cell(&g.options, g.program, NULL, verb_warm);
    if (code != CELL_OK || o->for_machine)
        return code;
    unlink(g.dump);
    /* A failure is not reported: scripts then start from the image, which takes longer. */
    dump_make_path(g.dump, g.program, g.warm, g.head, &err);
    return CELL_OK;
}

/* --- wast --- */

struct script {
    struct wast_result result;
    struct buf report;
};

/* The counts of tests come from the worker process: they are checked like any untrusted input. */
static int take_counts(const struct jail *j, struct wast_result *ret, struct err *err) {
    if (j->state.len != sizeof(*ret))
        return err_set(err, ERR_INTERNAL, "the worker process sent no counts of tests");
    memcpy(ret, j->state.data, sizeof(*ret));
    if (ret->passed > ret->total)
        return err_set(err, ERR_INTERNAL,
                       "the worker process counted more passed tests than tests");
    return 0;
}

static void run_script(const struct cell_options *o, const char *path, struct script *ret) {
    struct buf file DEFER(buf_done) = BUF(MAX_FILE);
    struct jail j = {.out_fd = STDOUT_FILENO,
                     .err_fd = STDERR_FILENO,
                     .state = BUF(sizeof(struct wast_result)),
                     .log = BUF(JAIL_MAX_TEXT)};
    struct err err;
    int r = read_file(path, &file, &err);
    struct job job = {.options = o, .file = path, .bytes = slice_of(&file)};
    if (r == 0)
        r = jail_run(&j, verb_wast, &job, &err);
    if (r == 0)
        r = take_counts(&j, &ret->result, &err);
    if (r == 0)
        ret->report = j.log, j.log = BUF(0);
    else if (!buf_addf(&ret->report, "%s: %s\n", path, err.text))
        ret->report.len = 0;
    ret->result.broken = ret->result.broken || r != 0;
    buf_done(&j.state);
    buf_done(&j.log);
}

static bool is_failed(const struct wast_result *r) {
    return r->broken || r->passed != r->total;
}

static void print_script(const struct cell_options *o, const char *path, const struct script *s) {
    char captures[40] = "";
    if (s->report.len)
        fwrite(s->report.data, 1, s->report.len, stderr);
    if (o->has_seed)
        snprintf(captures, sizeof(captures), " (%u captures)", s->result.captures);
    printf("%s %u/%u%s%s\n", path, s->result.passed, s->result.total, captures,
           is_failed(&s->result) ? " FAILED" : "");
}

static bool add_json_script(struct buf *b, const char *path, const struct script *s, bool first) {
    return buf_addf(b, "%s{\"file\":", first ? "" : ",") && json_string(b, path, strlen(path)) &&
           buf_addf(b, ",\"passed\":%u,\"total\":%u,\"broken\":%s,\"captures\":%u,\"report\":",
                    s->result.passed, s->result.total, s->result.broken ? "true" : "false",
                    s->result.captures) &&
           json_string(b, s->report.len ? s->report.data : "", s->report.len) && buf_addf(b, "}");
}

static void add_up(struct wast_result *sum, const struct wast_result *r) {
    sum->passed += r->passed;
    sum->total += r->total;
    sum->broken = sum->broken || r->broken;
}

static int run_wast(const struct cell_options *o) {
    struct wast_result sum = {0};
    struct buf json DEFER(buf_done) = BUF(1 << 30);
    bool ok = buf_addf(&json, "{\"files\":[");
    for (int i = 0; i < o->file_count; i++) {
        struct script s = {.report = BUF(1 << 16)};
        run_script(o, o->files[i], &s);
        add_up(&sum, &s.result);
        if (o->json)
            ok = ok && add_json_script(&json, o->files[i], &s, i == 0);
        else
            print_script(o, o->files[i], &s);
        fflush(stdout);
        buf_done(&s.report);
    }
    if (o->json && ok)
        printf("%s],\"passed\":%u,\"total\":%u}\n", json.data, sum.passed, sum.total);
    else
        printf("%u/%u\n", sum.passed, sum.total);
    return is_failed(&sum) ? 1 : 0;
}

/* --- main --- */

static int dispatch(const struct cell_options *o) {
    if (strcmp(o->verb, "warm") == 0)
        return make_warm(o);
    for (size_t i = 0; i < sizeof(bodies) / sizeof(*bodies); i++)
        if (strcmp(bodies[i].name, o->verb) == 0)
            return script_has_guest(o) ? run_script_file(o, bodies[i].body)
                                       : run_cell(o, o->files[0], NULL, bodies[i].body);
    return run_wast(o);
}

int main(int argc, char **argv, char **env) {
    struct cell_options o = {0};
    struct err err;
    if (argc > 0 && is_machine_command(argv[0]))
        return machine_main(argc, argv, env);
    if (argc > 0 && strcmp(argv[0], CELL_DUMP_NAME) == 0)
        return dump_main(argc, argv);
    stdio_hold();
    const char **files DEFER_FREE = calloc((size_t)argc + 1, sizeof(*files));
    if (!files)
        return CELL_INTERNAL;
    if (cell_options_read(argc, argv, files, &o, &err) < 0)
        return main_fail(&o, CELL_USAGE, &err);
    if (o.help) {
        cell_usage(o.verb, STDOUT_FILENO);
        return 0;
    }
    return dispatch(&o);
}
