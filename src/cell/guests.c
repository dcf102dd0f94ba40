#include "cell/guests.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cell_guests.h"
#include "base/defer.h"

#define SCRIPT_DIR "/script"

enum { SCRIPT_MAX = 16 << 20 };

/* Fuel of a script without --fuel: Python and Ruby need a good part of a billion to start. */
static const uint64_t guest_fuel = 10000000000;

static const struct guest {
    const char *ending, *program;
    const char *option; /* goes before the script; NULL: none */
} guests[] = {
    {".py", "python", NULL},
    {".js", "qjs", NULL},
    {".rb", "ruby", NULL},
    {".php", "php", "-q"},
};

static const struct guest *guest_of(const char *file) {
    size_t len = strlen(file);
    for (size_t i = 0; i < sizeof(guests) / sizeof(*guests); i++) {
        size_t n = strlen(guests[i].ending);
        if (len > n && strcmp(file + len - n, guests[i].ending) == 0)
            return &guests[i];
    }
    return NULL;
}

bool script_has_guest(const struct cell_options *o) {
    bool runs = strcmp(o->verb, "run") == 0 || strcmp(o->verb, "fuel") == 0;
    return runs && o->file_count == 1 && (o->script || guest_of(o->files[0]));
}

/* --- the interpreter --- */

static int guest_program(const struct guest *g, const char *script, struct script_run *ret,
                         struct err *err) {
    char folder[GUEST_PATH_MAX - 64];
    const char *given = ret->options.guests;
    if (given && strlen(given) < sizeof(folder))
        memcpy(folder, given, strlen(given) + 1);
    else if (cell_guests_folder(folder, sizeof(folder), err) < 0)
        return -1;
    snprintf(ret->program, sizeof(ret->program), "%s/programs/%s.wasm", folder, g->program);
    snprintf(ret->warm, sizeof(ret->warm), "%s/programs/%s.warm", folder, g->program);
    snprintf(ret->dump, sizeof(ret->dump), "%s/programs/%s.dump", folder, g->program);
    if (access(ret->program, R_OK) == 0)
        return 0;
    err_sys(err, "cannot run '%.100s': program '%.200s'", script, ret->program);
    return err_remedy(err,
                      "fetch it with `scripts/cell-guests %.200s %s`, or set CARREL_CELL_GUESTS",
                      folder, g->program);
}

/* --- the copy of the script --- */

/* The copy that a signal has to delete. */
static struct script_run *volatile guest_running;

static void guest_delete(const struct script_run *g) {
    if (g->copy[0])
        unlink(g->copy);
    if (!g->directory[0])
        return;
    rmdir(g->script);
    rmdir(g->root);
    rmdir(g->directory);
}

/* Deletes the copy, then ends the process as without a handler (SA_RESETHAND). */
static void guest_interrupted(int number) {
    if (guest_running)
        guest_delete(guest_running);
    raise(number);
}

static void guest_watch(struct script_run *g) {
    static const int signals[] = {SIGHUP, SIGINT, SIGTERM, SIGPIPE};
    guest_running = g;
    for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++) {
        struct sigaction old;
        struct sigaction action = {.sa_handler = guest_interrupted, .sa_flags = SA_RESETHAND};
        if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL)
            sigaction(signals[i], &action, NULL);
    }
}

static int copy_bytes(int from, int to, const char *script, struct err *err) {
    static char chunk[65536];
    size_t sum = 0;
    for (ssize_t n; (n = read(from, chunk, sizeof(chunk))) != 0;) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, "cannot read '%s'", script);
        sum += (size_t)n;
        if (sum > SCRIPT_MAX)
            return err_set(err, ERR_LIMIT, "script '%s' is larger than %d MiB", script,
                           SCRIPT_MAX >> 20);
        for (ssize_t at = 0, m; at < n; at += m)
            if ((m = write(to, chunk + at, (size_t)(n - at))) < 0)
                return err_sys(err, "cannot copy '%s'", script);
    }
    return 0;
}

static int make_directories(struct script_run *g, struct err *err) {
    const char *tmp = getenv("TMPDIR");
    char path[GUEST_PATH_MAX - NAME_MAX - 16];
    if ((size_t)snprintf(path, sizeof(path), "%s/carrel-script-XXXXXX",
                         tmp && tmp[0] == '/' ? tmp : "/tmp") >= sizeof(path))
        return err_set(err, ERR_INVALID, "TMPDIR is too long");
    guest_watch(g);
    if (!mkdtemp(path))
        return err_sys(err, "cannot make a directory '%s'", path);
    snprintf(g->script, sizeof(g->script), "%s/script", path);
    snprintf(g->root, sizeof(g->root), "%s/root", path);
    snprintf(g->directory, sizeof(g->directory), "%s", path);
    if (mkdir(g->script, 0700) < 0 || mkdir(g->root, 0700) < 0)
        return err_sys(err, "cannot make a directory in '%s'", path);
    return 0;
}

static int copy_script(const struct guest *guest, const char *script, struct script_run *g,
                       struct err *err) {
    const char *slash = strrchr(script, '/'), *base = slash ? slash + 1 : script;
    bool is_input = strcmp(script, "-") == 0;
    char named[32];
    if (is_input) {
        snprintf(named, sizeof(named), "program%s", guest->ending);
        base = named;
    }
    if (strlen(base) > NAME_MAX)
        return err_set(err, ERR_INVALID, "cannot copy '%s': the path is too long", script);
    int from DEFER_CLOSE = is_input ? dup(STDIN_FILENO) : open(script, O_RDONLY | O_CLOEXEC);
    if (from < 0)
        return err_sys(err, "cannot open '%s'", script);
    if (make_directories(g, err) < 0)
        return -1;
    snprintf(g->copy, sizeof(g->copy), "%s/%s", g->script, base);
    snprintf(g->name, sizeof(g->name), "%s/%s", SCRIPT_DIR, base);
    int to DEFER_CLOSE = open(g->copy, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return to < 0 ? err_sys(err, "cannot copy '%s'", script) : copy_bytes(from, to, script, err);
}

/* --- options --- */

static bool grants_directory(const struct cell_options *o, const char *name) {
    for (int i = 0; i < o->dir_count; i++)
        if (strcmp(o->dirs[i].name, name) == 0)
            return true;
    return false;
}

static int grant_script(struct script_run *g, struct err *err) {
    struct cell_options *o = &g->options;
    if (o->dir_count > CELL_MAX_DIRS - 2)
        return err_set(err, ERR_LIMIT, "--dir is given more than %d times: a script needs two",
                       CELL_MAX_DIRS - 2);
    if (grants_directory(o, SCRIPT_DIR))
        return err_set(err, ERR_INVALID,
                       "--dir names '" SCRIPT_DIR "', which is the directory of the script");
    o->dirs[o->dir_count++] =
        (struct cell_dir){.host = g->script, .name = SCRIPT_DIR, .is_read_only = true};
    if (!grants_directory(o, "/"))
        o->dirs[o->dir_count++] =
            (struct cell_dir){.host = g->root, .name = "/", .is_read_only = true};
    return 0;
}

/* The interpreter's name, its option, the script and the words after "--". */
static int guest_words(const struct guest *guest, struct script_run *g, struct err *err) {
    struct cell_options *o = &g->options;
    int n = 0;
    if (o->word_count > GUEST_WORDS_MAX - 3)
        return err_set(err, ERR_LIMIT, "the script has more than %d arguments",
                       GUEST_WORDS_MAX - 4);
    g->words[n++] = guest->program;
    if (guest->option)
        g->words[n++] = guest->option;
    g->script_word = n;
    g->words[n++] = g->name;
    for (int i = 1; i < o->word_count; i++)
        g->words[n++] = o->words[i];
    o->words = g->words;
    o->word_count = n;
    return 0;
}

int script_open(const struct cell_options *o, struct script_run *ret, struct err *err) {
    const struct guest *guest = guest_of(o->script ? o->script : o->files[0]);
    *ret = (struct script_run){.options = *o};
    if (!guest)
        return err_set(err, ERR_INVALID, "--script %s: must be x.py, x.js, x.rb or x.php",
                       o->script);
    if (o->invoke)
        return err_set(err, ERR_INVALID, "--invoke needs a module: '%s' is a script", o->files[0]);
    if (guest_program(guest, o->files[0], ret, err) < 0 ||
        copy_script(guest, o->files[0], ret, err) < 0 || grant_script(ret, err) < 0 ||
        guest_words(guest, ret, err) < 0)
        return -1;
    if (!o->has_fuel && !o->resume)
        ret->options.fuel = guest_fuel;
    ret->image = warm_program(guest->program);
    if (ret->image && !warm_fits(ret->image, o))
        ret->image = NULL;
    if (ret->image)
        warm_head(ret->image, o->seed, ret->head);
    return 0;
}

int script_open_warm(const struct cell_options *o, struct script_run *ret, struct err *err) {
    const char *name = o->files[0];
    const struct guest guest = {.program = name};
    *ret = (struct script_run){.options = *o, .image = warm_program(name)};
    if (!ret->image)
        return err_set(err, ERR_INVALID,
                       "'%s' cannot be saved after its start: use python, ruby, php or qjs", name);
    if (guest_program(&guest, name, ret, err) < 0 || make_directories(ret, err) < 0 ||
        (!o->for_machine && grant_script(ret, err) < 0))
        return -1;
    if (o->for_machine) /* a machine has this directory only */
        ret->options.dirs[ret->options.dir_count++] =
            (struct cell_dir){.host = ret->root, .name = "/"};
    ret->words[0] = name;
    ret->words[1] = ret->image->option;
    ret->words[2] = ret->image->driver;
    ret->options.words = ret->words;
    ret->options.word_count = ret->image->driver ? 3 : 1;
    warm_head(ret->image, o->seed, ret->head);
    ret->options.fuel = guest_fuel;
    ret->options.out = o->for_machine ? o->for_machine : ret->warm;
    return 0;
}

void script_close(struct script_run *g) {
    guest_running = NULL;
    guest_delete(g);
}
