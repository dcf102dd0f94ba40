#include "cell/machine_main.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/banned.h"
#include "base/capability.h"
#include "base/cell_command.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/parse.h"
#include "cell/dump.h"
#include "cell/pause.h"
#include "cell/session.h"
#include "cell/warm.h"

enum { MODULE_MAX = 256 << 20, REQUEST_MAX = 16 << 20, GIVEN_MAX = 4 << 20 };

static bool takes_module(const char *name) {
    return strcmp(name, CELL_MODULE_NAME) == 0;
}

bool is_machine_command(const char *name) {
    return strcmp(name, CELL_MACHINE_NAME) == 0 || strcmp(name, CELL_ALLOWED_NAME) == 0 ||
           takes_module(name) || strcmp(name, CELL_RESUME_NAME) == 0;
}

static int machine_fail(int status, const struct err *err) {
    fprintf(stderr, "carrel: %s\n", err->text);
    if (err->remedy[0])
        fprintf(stderr, "  %s\n", err->remedy);
    return status;
}

/* --- the command --- */

/* Reads the words before the name of the program. Returns how many they are, or -1. */
static int read_limits(int argc, char **argv, struct cell_options *ret, struct err *err) {
    bool has_allow = strcmp(argv[0], CELL_MACHINE_NAME) != 0;
    int before = has_allow ? CELL_ALLOWED_BEFORE : CELL_WORDS_BEFORE;
    if (argc <= before)
        return err_set(err, ERR_INVALID, "the command has no program");
    struct {
        const char *text;
        uint64_t *to;
    } limits[] = {{argv[1], &ret->fuel}, {argv[2], &ret->fuel_rate}, {argv[3], &ret->memory}};
    for (size_t i = 0; i < sizeof(limits) / sizeof(*limits); i++)
        if (parse_u64(limits[i].text, 0, UINT64_MAX, limits[i].to, err) < 0)
            return -1;
    if (has_allow && capabilities_parse(argv[4], &ret->allow, err) < 0)
        return -1;
    ret->machine = has_allow ? argv[5] : NULL;
    return before;
}

/* A failure to map the memory is not an error: then the guest reads 0. */
static _Atomic uint64_t *open_meter(void) {
    void *map = mmap(NULL, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, CELL_METER_FD, 0);
    close(CELL_METER_FD);
    return map == MAP_FAILED ? NULL : map;
}

static int take_variables(char **env, struct cell_options *o, struct err *err) {
    for (; *env; env++) {
        if (o->env_count == CELL_MAX_ENV)
            return err_set(err, ERR_LIMIT, "the program has more than %d environment variables",
                           CELL_MAX_ENV);
        o->env[o->env_count++] = *env;
    }
    return 0;
}

/* --- the program --- */

/* A name without a slash is a program of the image; any other name is a path. */
static int program_path(const char *name, char path[PATH_MAX]) {
    bool is_path = strchr(name, '/');
    int n = snprintf(path, PATH_MAX, is_path ? "%s" : "/bin/%s.wasm", name);
    return n < PATH_MAX ? 0 : -1;
}

static int not_found(const char *name, struct err *err) {
    err_set(err, ERR_NOT_FOUND, "program '%.200s' does not exist in this machine", name);
    if (strchr(name, '/'))
        return -1;
    return err_remedy(err, "a program is the file /bin/%.60s.wasm; a name with a slash is a path",
                      name);
}

static int read_to_end(int fd, const char *path, struct buf *ret, struct err *err) {
    char chunk[65536];
    for (ssize_t n; (n = read(fd, chunk, sizeof(chunk))) != 0;) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, "cannot read '%s'", path);
        if (!buf_add(ret, chunk, (size_t)n))
            return err_set(err, ERR_LIMIT, "program '%s' is larger than %zu MiB", path,
                           ret->max >> 20);
    }
    return 0;
}

/* O_NONBLOCK: a pipe must not block; it is refused once it is open. */
static int read_program(const char *name, const char *path, struct buf *ret, struct err *err) {
    int fd DEFER_CLOSE = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct stat st;
    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR ? not_found(name, err)
                                                   : err_sys(err, "cannot open '%s'", path);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return err_set(err, ERR_INVALID, "'%s' is not a file", path);
    return read_to_end(fd, path, ret, err);
}

/* Says more about frequent mistakes than that the text of the program is wrong. */
static int refuse_native(const char *path, const struct buf *file, struct err *err) {
    bool is_elf = file->len >= 4 && memcmp(file->data, "\177ELF", 4) == 0;
    bool is_script = file->len >= 2 && memcmp(file->data, "#!", 2) == 0;
    if (!is_elf && !is_script)
        return 0;
    err_set(err, ERR_UNSUPPORTED, "'%s' is a %s: a cell runs only WebAssembly", path,
            is_elf ? "native program" : "script");
    return err_remedy(err, "compile it for wasm32-wasi, or use a machine of the kind box");
}

/* --- a warm start --- */

struct machine_warm {
    const struct warm_program *program;
    struct buf image, request;
};

static void machine_warm_done(struct machine_warm *w) {
    buf_done(&w->image);
    buf_done(&w->request);
}

/* Splits "/bin/python.wasm": the name of the program, and the path of its image. */
static bool warm_names(const char *path, char name[NAME_MAX], char image[PATH_MAX]) {
    static const char ending[] = ".wasm";
    const char *slash = strrchr(path, '/');
    size_t n = strlen(path), end = sizeof(ending) - 1;
    if (!slash || n < end || strcmp(path + n - end, ending) != 0)
        return false;
    int len = (int)(path + n - end - slash - 1);
    return len > 0 && snprintf(name, NAME_MAX, "%.*s", len, slash + 1) == len &&
           snprintf(image, PATH_MAX, "%.*s.warm", (int)(n - end), path) < PATH_MAX;
}

/*
 * Tells if the command can start from an image, and fills in the name of its file and its head.
 * Returns NULL if not.
 */
static const struct warm_program *find_warm(const struct cell_options *o, const char *path,
                                            char image[PATH_MAX], char head[WARM_HEAD_SIZE]) {
    char name[NAME_MAX];
    const struct warm_program *p = warm_names(path, name, image) ? warm_program(name) : NULL;
    if (!p || !warm_takes(p, o) || !warm_fits(p, o))
        return NULL;
    warm_head(p, o->seed, head);
    return p;
}

/*
 * Reads the image beside the program. It is a file of the machine, so it is not trusted: the worker
 * checks it as every saved state, and starts cold if it does not fit.
 */
static bool read_warm(const struct cell_options *o, const char *path, struct machine_warm *ret) {
    char image[PATH_MAX], head[WARM_HEAD_SIZE];
    struct err err;
    const struct warm_program *p = ret->program = find_warm(o, path, image, head);
    return p && read_program(image, image, &ret->image, &err) == 0 &&
           ret->image.len > sizeof(head) && memcmp(ret->image.data, head, sizeof(head)) == 0 &&
           warm_request(p, o, 1, &ret->request);
}

static struct slice warm_slice(const struct buf *b, size_t skip) {
    return (struct slice){.data = (const uint8_t *)b->data + skip, .len = b->len - skip};
}

/* --- a dump --- */

/*
 * Maps the dump of an interpreter that the daemon gave to this command, if it was made of the
 * program and the image that the machine has now. Neither of them is read. Returns NULL if not.
 */
static const struct warm_program *map_dump(const struct cell_options *o, const char *path,
                                           struct dump *ret) {
    char image[PATH_MAX], head[WARM_HEAD_SIZE];
    struct stat st[2];
    if (fcntl(CELL_DUMP_FD, F_GETFD) < 0)
        return NULL;
    const struct dump_for f = {
        .warm_head = head, .program = &st[0], .image = &st[1], .pages = o->memory};
    const struct warm_program *p = find_warm(o, path, image, head);
    bool fits = p && stat(path, &st[0]) == 0 && stat(image, &st[1]) == 0 &&
                dump_open(CELL_DUMP_FD, &f, ret);
    close(CELL_DUMP_FD);
    return fits ? p : NULL;
}

static int run_job(struct job *job) {
    struct err err;
    struct pauser pauser DEFER(pauser_close) = {.control = -1};
    pauser_open(&pauser);
    if (job->stored)
        pauser_hold(&pauser);
    const struct slice input = job->stored ? job->stored->input : (struct slice){0};
    if (input.len && !buf_add(&pauser.unread, input.data, input.len)) {
        err_set(&err, ERR_LIMIT, "out of memory");
        return machine_fail(CELL_STATUS_FAILED, &err);
    }
    struct jail j = {.out_fd = STDOUT_FILENO,
                     .err_fd = STDERR_FILENO,
                     .has_input = true,
                     .in_fd = STDIN_FILENO,
                     .dirs = {{"/", false}},
                     .n_dirs = 1,
                     .is_in_machine = true,
                     .asks_fd = fcntl(CELL_ASKS_FD, F_GETFD) < 0 ? 0 : CELL_ASKS_FD,
                     .pauser = &pauser,
                     .take_state = pauser_take,
                     .take_ctx = &pauser,
                     .state = BUF(0),
                     .log = BUF(0)};
    int status = jail_run(&j, verb_run, job, &err);
    return status < 0 ? machine_fail(CELL_STATUS_FAILED, &err) : status;
}

static int run_program(struct cell_options *o, const char *path, const struct buf *file) {
    struct machine_warm warm DEFER(machine_warm_done) = {.image = BUF(MODULE_MAX),
                                                         .request = BUF(REQUEST_MAX)};
    struct job job = {.options = o,
                      .file = path,
                      .bytes = {(const uint8_t *)(file->data ? file->data : ""), file->len}};
    if (read_warm(o, path, &warm)) {
        job.warm = warm_slice(&warm.image, WARM_HEAD_SIZE);
        job.request = warm_slice(&warm.request, 0);
        job.is_untouched = !warm.program->driver;
    }
    return run_job(&job);
}

static int run_mapped(const struct warm_program *p, struct cell_options *o, const char *path,
                      const struct dump *dump) {
    struct buf request DEFER(buf_done) = BUF(REQUEST_MAX);
    struct job job = {.options = o, .file = path, .dump = dump, .is_untouched = !p->driver};
    struct err err;
    if (!warm_request(p, o, 1, &request)) {
        err_set(&err, ERR_LIMIT, "the arguments and variables of the program are too long");
        return machine_fail(CELL_STATUS_FAILED, &err);
    }
    job.request = warm_slice(&request, 0);
    return run_job(&job);
}

/* --- a program on standard input --- */

/* Splits standard input (base/cell_command.h). Arguments get a NUL in the place of their newline.
 */
static int split_given(struct buf *given, struct cell_options *o, struct slice *ret,
                       struct err *err) {
    char *end = given->len ? memchr(given->data, '\n', given->len) : NULL;
    uint64_t n = 0;
    if (!end)
        return err_set(err, ERR_INVALID, "standard input has no program");
    *end = '\0';
    size_t at = (size_t)(end - given->data) + 1;
    if (strcmp(given->data, CELL_NO_INPUT) != 0) {
        if (parse_u64(given->data, 0, given->len - at, &n, err) < 0)
            return -1;
        memmove(given->data + at - 1, given->data + at, n); /* room for a NUL behind it */
        given->data[at - 1 + n] = '\0';
        o->input = given->data + at - 1;
    }
    *ret = (struct slice){(const uint8_t *)given->data + at + n, given->len - at - n};
    return 0;
}

/* Reads "program", or "program --invoke FUNCTION ARG...". */
static int take_call(struct cell_options *o, struct err *err) {
    static const char *const granted[] = {"args_size", "args_read", "result", "log"};
    o->json = o->is_given = true;
    for (size_t i = 0; i < sizeof(granted) / sizeof(*granted); i++)
        o->grants[o->grant_count++] = granted[i];
    if (o->word_count < 3)
        return 0;
    o->invoke = o->words[2];
    for (int i = 3; i < o->word_count; i++) {
        if (o->arg_count == CELL_MAX_ARGS)
            return err_set(err, ERR_LIMIT, "the function has more than %d arguments",
                           CELL_MAX_ARGS);
        o->args[o->arg_count++] = o->words[i];
    }
    o->word_count = 1;
    return 0;
}

/*
 * Runs a program that is not a file of the machine. Its directories are not granted to it: the
 * worker reaches them only for calls of other programs, and for keys and values.
 */
static int run_given(struct cell_options *o) {
    struct buf given DEFER(buf_done) = BUF(GIVEN_MAX);
    struct job job = {.options = o, .file = "program"};
    struct pauser pauser DEFER(pauser_close) = {.cannot = true};
    pauser_open(&pauser);
    struct jail j = {.out_fd = STDOUT_FILENO,
                     .err_fd = STDERR_FILENO,
                     .pauser = &pauser,
                     .take_state = pauser_take,
                     .take_ctx = &pauser,
                     .dirs = {{"/", false}},
                     .n_dirs = o->allow & (CAPABILITY_CALL | CAPABILITY_KV) ? 1 : 0,
                     .is_in_machine = true,
                     .asks_fd = fcntl(CELL_ASKS_FD, F_GETFD) < 0 ? 0 : CELL_ASKS_FD,
                     .state = BUF(0),
                     .log = BUF(0)};
    struct err err;
    o->dir_count = 0;
    if (take_call(o, &err) < 0 || read_to_end(STDIN_FILENO, "program", &given, &err) < 0 ||
        split_given(&given, o, &job.bytes, &err) < 0)
        return machine_fail(CELL_STATUS_FAILED, &err);
    int status = jail_run(&j, verb_run, &job, &err);
    return status < 0 ? machine_fail(CELL_STATUS_FAILED, &err) : status;
}

static int status_of(const struct err *err) {
    return err->code == ERR_NOT_FOUND ? CELL_STATUS_NOT_FOUND
           : err->code == ERR_LIMIT   ? CELL_STATUS_FAILED
                                      : CELL_STATUS_INVALID;
}

/* --- the start --- */

static int run_named(struct cell_options *o, const char *name) {
    struct buf file DEFER(buf_done) = BUF(MODULE_MAX);
    struct dump dump DEFER(dump_done) = {0};
    char path[PATH_MAX];
    struct err err;
    bool has_path = program_path(name, path) == 0;
    const struct warm_program *mapped = has_path ? map_dump(o, path, &dump) : NULL;
    if (mapped)
        return run_mapped(mapped, o, path, &dump);
    if (!has_path)
        err_set(&err, ERR_LIMIT, "the name of the program is too long");
    else if (read_program(name, path, &file, &err) == 0 && refuse_native(path, &file, &err) == 0)
        return run_program(o, path, &file);
    return machine_fail(status_of(&err), &err);
}

/* Continues a stored program, whose bytes are in the file too. */
static int run_stored(struct cell_options *o, const char *name, const struct pause_parts *stored) {
    char path[PATH_MAX];
    struct job job = {.options = o,
                      .file = program_path(name, path) == 0 ? path : name,
                      .bytes = stored->module,
                      .state = stored->state,
                      .stored = stored};
    o->has_fuel = false; /* it has its own */
    o->resume = name;
    return run_job(&job);
}

static int machine_start(int argc, char **argv, char **env, const struct pause_parts *stored,
                         _Atomic uint64_t *meter) {
    struct cell_options o = {.verb = "run",
                             .spec = 30,
                             .in_machine = true,
                             .has_fuel = true,
                             .meter = meter,
                             .given = (const char *const *)argv,
                             .given_count = argc};
    struct err err;
    int before = read_limits(argc, argv, &o, &err);
    if (before < 0)
        return machine_fail(CELL_STATUS_FAILED, &err);
    o.words = (const char *const *)(argv + before);
    o.word_count = argc - before;
    o.dirs[o.dir_count++] = (struct cell_dir){.host = "/", .name = "/"};
    if (take_variables(env, &o, &err) < 0)
        return machine_fail(CELL_STATUS_FAILED, &err);
    if (stored)
        return run_stored(&o, argv[before], stored);
    return takes_module(argv[0]) ? run_given(&o) : run_named(&o, argv[before]);
}

/* Splits the words and variables of a stored program, with NULL behind each list. */
static char **stored_words(const struct pause_parts *p) {
    char **list = calloc((size_t)p->argc + p->envc + 2, sizeof(*list)), **at = list;
    const char *word = (const char *)p->text.data;
    for (uint32_t i = 0; list && i < p->argc + p->envc; i++, word += strlen(word) + 1) {
        at += i == p->argc;
        *at++ = (char *)word;
    }
    return list;
}

static int map_stored(struct slice *ret, struct err *err) {
    struct stat st;
    void *map = MAP_FAILED;
    if (fstat(CELL_STATE_FD, &st) == 0 && st.st_size > 0)
        map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, CELL_STATE_FD, 0);
    if (map == MAP_FAILED)
        return err_sys(err, "cannot map the stored program");
    close(CELL_STATE_FD);
    *ret = (struct slice){.data = map, .len = (size_t)st.st_size};
    return 0;
}

/* What is stored was written by a worker, which may have been taken over: it is not trusted. */
static int machine_resume(_Atomic uint64_t *meter) {
    struct slice file;
    struct pause_parts parts;
    struct err err;
    if (map_stored(&file, &err) < 0 || pause_split(file, &parts, &err) < 0)
        return machine_fail(CELL_STATUS_FAILED, &err);
    char **words DEFER_FREE = stored_words(&parts);
    if (!words || parts.argc == 0 ||
        (strcmp(words[0], CELL_MACHINE_NAME) != 0 && strcmp(words[0], CELL_ALLOWED_NAME) != 0)) {
        err_set(&err, ERR_INVALID, "the stored program is not one of a cell machine");
        return machine_fail(CELL_STATUS_FAILED, &err);
    }
    return machine_start((int)parts.argc, words, words + parts.argc + 1, &parts, meter);
}

int machine_main(int argc, char **argv, char **env) {
    struct err err;
    _Atomic uint64_t *meter = open_meter();
    if (jail_give_up_rights() < 0) {
        err_sys(&err, "cannot give up the rights of the worker process");
        return machine_fail(CELL_STATUS_FAILED, &err);
    }
    if (strcmp(argv[0], CELL_RESUME_NAME) == 0)
        return machine_resume(meter);
    return machine_start(argc, argv, env, NULL, meter);
}
