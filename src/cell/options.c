#include "cell/options.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/banned.h"
#include "base/capability.h"
#include "wasm/text/wat_num.h"

/* Each verb is a bit, so that an option can list the verbs that accept it. */
enum { RUN = 1, CHECK = 2, FUEL = 4, REPLAY = 8, WAST = 16, WARM = 32, ANY = 63 };

static const struct {
    const char *name;
    int bit;
    const char *usage, *does;
} verbs[] = {
    {"run", RUN, "carrel cell run FILE [OPTIONS] [--invoke NAME ARGS…] [-- WORDS…]",
     "run a .wat or .wasm program, or a .py, .js, .rb or .php script"},
    {"check", CHECK, "carrel cell check FILE [OPTIONS]",
     "validate a program and print its imports, exports and size"},
    {"fuel", FUEL, "carrel cell fuel FILE [OPTIONS] [--invoke NAME ARGS…] [-- WORDS…]",
     "run a program and print the fuel of each function and line"},
    {"replay", REPLAY, "carrel cell replay LOG [OPTIONS]",
     "run a recorded program again and compare its result, fuel and memory"},
    {"warm", WARM, "carrel cell warm NAME [OPTIONS]",
     "save an interpreter after its start, so that scripts start faster"},
    {"wast", WAST, "carrel wast FILE… [OPTIONS]",
     "run WebAssembly specification scripts and count passed tests"},
};
enum { VERB_COUNT = sizeof(verbs) / sizeof(*verbs) };

enum value_kind { FLAG, NUMBER, TEXT, SPEC, GRANT, INVOKE, ENV, DIR_GRANT, LISTEN, ALLOW, PROGRAM };

#define AT(field) offsetof(struct cell_options, field)
#define NOWHERE ((size_t)-1)

static const struct option {
    const char *name;
    int verbs;
    enum value_kind kind;
    /* offsets in struct cell_options: the value, and the flag that the option was given */
    size_t at, given;
    const char *help;
} options[] = {
    {"--invoke", RUN | FUEL, INVOKE, AT(invoke), NOWHERE,
     "NAME ARGS…  call this exported function (default: _start, else main)"},
    {"--fuel", RUN | FUEL, NUMBER, AT(fuel), AT(has_fuel),
     "N  limit of fuel, default 1,000,000,000 (scripts: 10 times); with --resume: fuel to add"},
    {"--memory", RUN | FUEL, NUMBER, AT(memory), NOWHERE,
     "PAGES  limit of memories, tables, objects and code, in 64 KiB pages (default 4096)"},
    {"--grant", RUN | FUEL, GRANT, NOWHERE, NOWHERE,
     "NAME  allow calls of carrel.NAME: args_size, args_read, result, log, clock, random"},
    {"--allow", RUN | FUEL, ALLOW, AT(allow), NOWHERE,
     "LIST  allow functions of carrel.1: log,args,result,time,random,call,kv (default: none)"},
    {"--program", RUN | FUEL, PROGRAM, NOWHERE, NOWHERE,
     "NAME=FILE  a program that the function call of carrel.1 finds as NAME"},
    {"--kv", RUN | FUEL, TEXT, AT(kv), NOWHERE,
     "DIR  directory of the keys and values of carrel.1.kv; it must exist"},
    {"--script", RUN | FUEL, TEXT, AT(script), NOWHERE,
     "NAME  FILE is a script with the ending of NAME, such as x.py"},
    {"--guests", RUN | FUEL, TEXT, AT(guests), NOWHERE,
     "DIR  folder of the interpreters of scripts"},
    {"--args", RUN | FUEL, TEXT, AT(input), NOWHERE,
     "TEXT  input of carrel.args_read, or of carrel.1.args (JSON; default: list of WORDS)"},
    {"--env", RUN | FUEL, ENV, NOWHERE, NOWHERE,
     "NAME=VALUE  set a variable of a WASI program, which inherits none"},
    {"--dir", RUN | FUEL, DIR_GRANT, NOWHERE, NOWHERE,
     "HOST[:NAME][:ro]  grant a directory to a WASI program, as NAME (default: as given)"},
    {"--listen", RUN | FUEL, LISTEN, NOWHERE, NOWHERE,
     "ADDRESS:PORT  grant a WASI program a socket that accepts TCP connections"},
    {"--seed", RUN | FUEL | WARM, NUMBER, AT(seed), NOWHERE,
     "N  seed of the random bytes of a WASI program without --grant random (default 0)"},
    {"--for-machine", WARM, TEXT, AT(for_machine), NOWHERE,
     "FILE  write an image for cell machines, which have it beside the program"},
    {"--", RUN | FUEL, FLAG, NOWHERE, NOWHERE,
     "WORDS…  pass all following words to a WASI program as its arguments"},
    {"--suspend-at", RUN, NUMBER, AT(suspend_at), AT(has_suspend_at),
     "FUEL  suspend the program when this much fuel is spent, and write it to --out"},
    {"--out", RUN, TEXT, AT(out), NOWHERE, "STATE  write a suspended program to this file"},
    {"--resume", RUN, TEXT, AT(resume), NOWHERE,
     "STATE  continue the suspended program in this file; FILE is its module"},
    {"--record", RUN, TEXT, AT(record), NOWHERE,
     "LOG  write a log for `carrel cell replay` to this file"},
    {"--spec", RUN | CHECK | FUEL | WAST, SPEC, AT(spec), NOWHERE,
     "1.0|2.0|3.0  use this version of WebAssembly (default 3.0)"},
    {"--suspend", WAST, NUMBER, AT(seed), AT(has_seed),
     "SEED  suspend and resume every call at random points; results must not change"},
    {"--json", ANY, FLAG, AT(json), NOWHERE, "print one JSON object"},
    {"--help", ANY, FLAG, AT(help), NOWHERE, "print this help"},
};
enum { OPTION_COUNT = sizeof(options) / sizeof(*options) };

struct args {
    int argc, i;
    char **argv;
    int verb;
};

static void *field(struct cell_options *o, size_t at) {
    return (char *)o + at;
}

static int options_read_number(const char *name, const char *text, uint64_t *ret, struct err *err) {
    if (wat_unsigned(text, strlen(text), UINT64_MAX, ret) == WAT_NUM_OK)
        return 0;
    return err_set(err, ERR_INVALID, "%s: '%s' is not a number", name, text);
}

static int read_spec(const char *text, int *ret, struct err *err) {
    static const char *const names[] = {"1.0", "2.0", "3.0"};
    for (int i = 0; i < 3; i++)
        if (strcmp(text, names[i]) == 0)
            return *ret = (i + 1) * 10, 0;
    return err_set(err, ERR_INVALID, "--spec: WebAssembly version '%s' is not 1.0, 2.0 or 3.0",
                   text);
}

static int add_grant(struct cell_options *o, const char *name, struct err *err) {
    if (o->grant_count == CELL_MAX_GRANTS)
        return err_set(err, ERR_LIMIT, "--grant is given more than %d times", CELL_MAX_GRANTS);
    if (strncmp(name, "carrel.", 7) == 0)
        name += 7;
    o->grants[o->grant_count++] = name;
    return 0;
}

static int add_program(struct cell_options *o, const char *text, struct err *err) {
    if (o->program_count == CELL_MAX_PROGRAMS)
        return err_set(err, ERR_LIMIT, "--program is given more than %d times", CELL_MAX_PROGRAMS);
    const char *equals = strchr(text, '=');
    if (!equals || equals == text || !equals[1])
        return err_set(err, ERR_INVALID, "--program %s: must be NAME=FILE", text);
    o->programs[o->program_count++] = text;
    return 0;
}

/* Adds to the capabilities of an earlier --allow. */
static int add_allowed(struct cell_options *o, const char *text, struct err *err) {
    uint32_t bits;
    if (capabilities_parse(text, &bits, err) < 0)
        return err_wrap(err, "--allow");
    o->allow |= bits;
    return 0;
}

static int add_env(struct cell_options *o, const char *text, struct err *err) {
    if (o->env_count == CELL_MAX_ENV)
        return err_set(err, ERR_LIMIT, "--env is given more than %d times", CELL_MAX_ENV);
    if (!strchr(text, '=') || text[0] == '=')
        return err_set(err, ERR_INVALID, "--env %s: must be NAME=VALUE", text);
    o->env[o->env_count++] = text;
    return 0;
}

/* Cuts HOST[:NAME][:ro]; the text is an argument of this process and can be changed. */
static int add_dir(struct cell_options *o, char *text, struct err *err) {
    struct cell_dir d = {.host = text};
    size_t len = strlen(text);
    if (o->dir_count == CELL_MAX_DIRS)
        return err_set(err, ERR_LIMIT, "--dir is given more than %d times", CELL_MAX_DIRS);
    d.is_read_only = len > 3 && strcmp(text + len - 3, ":ro") == 0;
    if (d.is_read_only)
        text[len - 3] = '\0';
    char *colon = strchr(text, ':');
    if (colon)
        *colon = '\0';
    d.name = colon ? colon + 1 : text;
    if (!d.host[0] || !d.name[0])
        return err_set(err, ERR_INVALID, "--dir must be HOST[:NAME][:ro]");
    for (int i = 0; i < o->dir_count; i++)
        if (strcmp(o->dirs[i].name, d.name) == 0)
            return err_set(err, ERR_INVALID, "--dir names '%s' twice", d.name);
    o->dirs[o->dir_count++] = d;
    return 0;
}

static int add_listen(struct cell_options *o, const char *text, struct err *err) {
    if (o->listen_count == CELL_MAX_LISTEN)
        return err_set(err, ERR_LIMIT, "--listen is given more than %d times", CELL_MAX_LISTEN);
    o->listen[o->listen_count++] = text;
    return 0;
}

/* Takes the arguments of the WebAssembly function to call, up to the next option. A number may
 * start with one '-'. */
static int take_call_args(struct args *a, struct cell_options *o, struct err *err) {
    while (a->i < a->argc && strncmp(a->argv[a->i], "--", 2) != 0) {
        if (o->arg_count == CELL_MAX_ARGS)
            return err_set(err, ERR_LIMIT, "--invoke has more than %d arguments", CELL_MAX_ARGS);
        o->args[o->arg_count++] = a->argv[a->i++];
    }
    return 0;
}

static int take_value(struct args *a, const struct option *opt, struct cell_options *o,
                      struct err *err) {
    if (opt->given != NOWHERE)
        *(bool *)field(o, opt->given) = true;
    if (opt->kind == FLAG)
        return *(bool *)field(o, opt->at) = true, 0;
    if (a->i == a->argc)
        return err_set(err, ERR_INVALID, "%s needs a value", opt->name);
    char *value = a->argv[a->i++];
    switch (opt->kind) {
    case NUMBER:
        return options_read_number(opt->name, value, field(o, opt->at), err);
    case SPEC:
        return read_spec(value, field(o, opt->at), err);
    case GRANT:
        return add_grant(o, value, err);
    case ALLOW:
        return add_allowed(o, value, err);
    case PROGRAM:
        return add_program(o, value, err);
    case DIR_GRANT:
        return add_dir(o, value, err);
    case LISTEN:
        return add_listen(o, value, err);
    case ENV:
        return add_env(o, value, err);
    case INVOKE:
        *(const char **)field(o, opt->at) = value;
        return take_call_args(a, o, err);
    case FLAG:
    case TEXT:
        break;
    }
    *(const char **)field(o, opt->at) = value;
    return 0;
}

/* All words after "--" are arguments of the program. The slot of "--" gets its name later. */
static void take_words(struct args *a, struct cell_options *o) {
    o->words = (const char *const *)(a->argv + a->i - 1);
    o->word_count = a->argc - a->i + 1;
    a->i = a->argc;
}

static int take_option(struct args *a, struct cell_options *o, struct err *err) {
    const char *name = a->argv[a->i++];
    if (strcmp(name, "--") == 0 && (verbs[a->verb].bit & (RUN | FUEL)))
        return take_words(a, o), 0;
    for (int i = 0; i < OPTION_COUNT; i++)
        if (strcmp(options[i].name, name) == 0 && (options[i].verbs & verbs[a->verb].bit))
            return take_value(a, &options[i], o, err);
    err_set(err, ERR_INVALID, "%s: unknown option %s", verbs[a->verb].name, name);
    return err_remedy(err, "see `%s --help`",
                      verbs[a->verb].bit == WAST ? "carrel wast" : "carrel cell");
}

static int find_verb(const char *name, struct err *err) {
    for (int i = 0; i < VERB_COUNT; i++)
        if (strcmp(verbs[i].name, name) == 0)
            return i;
    return err_set(err, ERR_INVALID,
                   "unknown command '%s': use run, check, fuel, replay, warm or wast", name);
}

static int check_files(const struct args *a, const struct cell_options *o, struct err *err) {
    if (o->help)
        return 0;
    bool is_wast = verbs[a->verb].bit == WAST;
    if (o->file_count == 0)
        return err_set(err, ERR_INVALID, "%s needs %s", verbs[a->verb].name,
                       verbs[a->verb].bit == WARM ? "the name of an interpreter" : "a file");
    if (o->file_count > 1 && !is_wast)
        return err_set(err, ERR_INVALID, "%s takes one file: unexpected argument '%s'",
                       verbs[a->verb].name, o->files[1]);
    if (o->has_suspend_at && !o->out)
        return err_set(err, ERR_INVALID, "--suspend-at needs --out STATE");
    if (o->record && (o->resume || o->has_suspend_at))
        return err_set(err, ERR_INVALID, "--record cannot be used with --resume or --suspend-at");
    if (o->resume && (o->invoke || o->input || o->words || o->env_count))
        return err_set(err, ERR_INVALID,
                       "--resume continues the suspended call: leave out --invoke, --args, --env "
                       "and words after --");
    if (o->allow & (CAPABILITY_HTTP | CAPABILITY_MODEL)) {
        err_set(err, ERR_INVALID, "--allow http and --allow model need a cell machine");
        return err_remedy(err, "see carrel new --kind cell");
    }
    if (o->allow & CAPABILITY_KV && !o->kv)
        return err_set(err, ERR_INVALID, "--allow kv needs --kv DIR");
    if (o->kv && o->dir_count == CELL_MAX_DIRS)
        return err_set(err, ERR_LIMIT, "--dir and --kv are given more than %d times together",
                       CELL_MAX_DIRS);
    if (o->words && o->invoke)
        return err_set(err, ERR_INVALID, "use either --invoke NAME ARGS or -- WORDS");
    return 0;
}

/* Looks for --json first, because errors of the command line are printed as JSON too. */
static bool wants_json(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--json") == 0)
            return true;
    return false;
}

int cell_options_read(int argc, char **argv, const char **file_room, struct cell_options *ret,
                      struct err *err) {
    ret->json = wants_json(argc, argv);
    struct cell_options o = {.files = file_room, .spec = 30, .fuel = 1000000000, .memory = 4096};
    if (argc < 2)
        return err_set(err, ERR_INVALID,
                       "a command is missing: use run, check, fuel, replay, warm or wast");
    if (strcmp(argv[1], "--help") == 0)
        return *ret = (struct cell_options){.help = true}, 0;
    struct args a = {.argc = argc, .argv = argv, .i = 2, .verb = find_verb(argv[1], err)};
    if (a.verb < 0)
        return -1;
    o.verb = verbs[a.verb].name;
    while (a.i < argc) {
        if (argv[a.i][0] != '-' || !argv[a.i][1])
            file_room[o.file_count++] = argv[a.i++];
        else if (take_option(&a, &o, err) < 0)
            return -1;
    }
    if (check_files(&a, &o, err) < 0)
        return -1;
    if (o.words)
        argv[argc - o.word_count] = (char *)file_room[0];
    else if (o.file_count)
        o.words = file_room, o.word_count = 1;
    *ret = o;
    return 0;
}

void cell_usage(const char *verb, int fd) {
    for (int i = 0; i < VERB_COUNT; i++) {
        if (verb && strcmp(verbs[i].name, verb) != 0)
            continue;
        dprintf(fd, "%s\n  %s\n", verbs[i].usage, verbs[i].does);
        for (int k = 0; verb && k < OPTION_COUNT; k++)
            if (options[k].verbs & verbs[i].bit)
                dprintf(fd, "    %-13s %s\n", options[k].name, options[k].help);
    }
    if (verb)
        dprintf(fd, "exit status: 0 done or suspended as asked, 1 trap, 2 invalid program,\n"
                    "  3 out of fuel, 4 import not granted, 5 limit exceeded,\n"
                    "  6 state or log refused or different, 64 wrong usage\n");
}

int cell_status_of(enum cell_exit code) {
    switch (code) {
    case CELL_OK:
        return 0;
    case CELL_TRAP:
        return CELL_STATUS_TRAP;
    case CELL_FUEL:
        return CELL_STATUS_FUEL;
    case CELL_INVALID:
    case CELL_DENIED:
        return CELL_STATUS_INVALID;
    default:
        return CELL_STATUS_FAILED;
    }
}
