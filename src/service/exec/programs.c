#include "service/exec/programs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/capability.h"
#include "base/cell_guests.h"
#include "io/child.h"
#include "service/exec/inner.h"
#include "service/exec/program_exec.h"

enum { ARGV_MAX = 32 + PROGRAM_WORDS_MAX };

struct program {
    struct service *service;
    struct caller who;
    uint64_t intent;
    struct child *child;          /* beside all machines */
    struct program_exec *command; /* or in a machine */
    service_program_fn *done;
    void *arg;
};

static void programs_path_of(const struct service *s, char ret[PLACE_SIZE + 16]) {
    snprintf(ret, PLACE_SIZE + 16, "%s/carrel-cell", s->place->libexec);
}

bool service_has_programs(const struct service *s) {
    char path[PLACE_SIZE + 16];
    programs_path_of(s, path);
    return access(path, X_OK) == 0;
}

/* ---- end of a program ---- */

static void has_ended(void *arg, const struct child_end *end) {
    struct program *p = arg;
    struct err err;
    struct journal_record what = {.verb = "program.run",
                                  .has_exit = end->status >= 0,
                                  .exit = end->status,
                                  .bytes = end->out_bytes,
                                  .reason = end->late ? "timeout" : NULL};
    bool whole = end->status >= 0 && end->out_bytes && !end->late;
    if (end->late)
        err_set(&err, ERR_TIMEOUT, "the WebAssembly program exceeded its time limit of %d s",
                PROGRAM_MS / 1000);
    else if (!whole)
        err_set(&err, ERR_UNKNOWN,
                "carrel-cell, the engine of WebAssembly programs, ended without a result");
    note_result(p->service, &p->who, &what, p->intent, NULL);
    p->service->execs->programs--;
    const struct program_result result = {end->status, end->out, end->said};
    p->done(p->arg, whole ? &result : NULL, whole ? NULL : &err);
    free(p);
}

/* The same for a program in a machine. */
static void has_answered(void *arg, const struct program_result *result, const struct err *err) {
    struct program *p = arg;
    struct journal_record what = {.verb = "program.run",
                                  .has_exit = result != NULL,
                                  .exit = result ? result->status : 0,
                                  .bytes = result ? strlen(result->json) : 0,
                                  .reason = err && err->code == ERR_TIMEOUT ? "timeout" : NULL};
    note_result(p->service, &p->who, &what, p->intent, result ? NULL : err);
    p->done(p->arg, result, err);
    free(p);
}

void program_kill(struct program *p) {
    if (p->command)
        program_exec_kill(p->command);
    else
        child_kill(p->child);
}

/* ---- start of a program ---- */

struct words {
    const char *v[ARGV_MAX];
    size_t n;
    char fuel[24], memory[24], allow[CAPABILITIES_SIZE], guests[PLACE_SIZE];
};

static void programs_add(struct words *w, const char *word) {
    w->v[w->n++] = word;
}

/* A script has WASI and no functions of carrel.1: its input is an argument. */
static void make_script_words(const struct program_request *r, uint32_t allowed, struct words *w) {
    const char *const fixed[] = {"carrel-cell", "run",      "-",       "--json",  "--script",
                                 r->script,     "--guests", w->guests, "--memory"};
    snprintf(w->memory, sizeof(w->memory), "%" PRIu64,
             r->memory.is ? r->memory.value : PROGRAM_PAGES_MAX);
    for (size_t i = 0; i < sizeof(fixed) / sizeof(*fixed); i++)
        programs_add(w, fixed[i]);
    programs_add(w, w->memory);
    if (r->fuel.is) {
        snprintf(w->fuel, sizeof(w->fuel), "%" PRIu64, r->fuel.value);
        programs_add(w, "--fuel");
        programs_add(w, w->fuel);
    }
    if (allowed & CAPABILITY_TIME) {
        programs_add(w, "--grant");
        programs_add(w, "clock");
    }
    if (allowed & CAPABILITY_RANDOM) {
        programs_add(w, "--grant");
        programs_add(w, "random");
    }
    if (r->input) {
        programs_add(w, "--");
        programs_add(w, r->input);
    }
}

static uint64_t program_fuel(const struct program_request *r) {
    return r->fuel.is ? r->fuel.value : PROGRAM_FUEL_DEFAULT;
}

static uint64_t program_pages(const struct program_request *r) {
    return r->memory.is ? r->memory.value : PROGRAM_PAGES_DEFAULT;
}

static void make_words(const struct program_request *r, uint32_t allowed, struct words *w) {
    static const char *const grants[] = {"args_size", "args_read", "result", "log"};
    snprintf(w->fuel, sizeof(w->fuel), "%" PRIu64, program_fuel(r));
    snprintf(w->memory, sizeof(w->memory), "%" PRIu64, program_pages(r));
    const char *const fixed[] = {"carrel-cell", "run",   "-",        "--json",
                                 "--fuel",      w->fuel, "--memory", w->memory};
    for (size_t i = 0; i < sizeof(fixed) / sizeof(*fixed); i++)
        programs_add(w, fixed[i]);
    for (size_t i = 0; i < sizeof(grants) / sizeof(*grants); i++) {
        programs_add(w, "--grant");
        programs_add(w, grants[i]);
    }
    if (allowed) {
        capabilities_text(allowed, w->allow);
        programs_add(w, "--allow");
        programs_add(w, w->allow);
    }
    if (r->input) {
        programs_add(w, "--args");
        programs_add(w, r->input);
    }
    if (r->invoke) {
        programs_add(w, "--invoke");
        programs_add(w, r->invoke);
        for (size_t i = 0; i < r->args.count && i < PROGRAM_WORDS_MAX; i++)
            programs_add(w, r->args.v[i]);
    }
}

/*
 * carrel-cell takes a word that starts with "--" for an option, also behind arguments. It runs on
 * the host, so that options would reach files of the host: --dir, --record.
 */
static int programs_check_args(const struct texts *args, struct err *err) {
    for (size_t i = 0; i < args->count; i++)
        if (strncmp(args->v[i], "--", 2) == 0)
            return err_set(err, ERR_INVALID, "argument '%.40s' is not a number", args->v[i]);
    return 0;
}

static int programs_check(const struct program_request *r, struct err *err) {
    if (strlen(r->text) > PROGRAM_TEXT_MAX)
        return err_set(err, ERR_LIMIT, "the WebAssembly program is longer than 1 MiB");
    if (r->args.count > PROGRAM_WORDS_MAX)
        return err_set(err, ERR_LIMIT, "the WebAssembly program has more than %d arguments",
                       PROGRAM_WORDS_MAX);
    if (r->args.count && !r->invoke)
        return err_set(err, ERR_INVALID,
                       "field 'arguments' requires field 'invoke', the function that takes them");
    if (r->script && r->invoke)
        return err_set(err, ERR_INVALID, "field 'invoke' is for field 'wat'");
    return programs_check_args(&r->args, err);
}

/* Those that need files of the machine, or its network. */
enum {
    MACHINE_CAPABILITIES = CAPABILITY_CALL | CAPABILITY_KV | CAPABILITY_HTTP | CAPABILITY_MODEL
};

static int programs_wanted(const struct texts *allow, uint32_t *ret, struct err *err) {
    *ret = 0;
    for (size_t i = 0; i < allow->count; i++) {
        uint32_t bits;
        if (capabilities_parse(allow->v[i], &bits, err) < 0)
            return -1;
        *ret |= bits;
    }
    return 0;
}

bool program_needs_machine(const struct texts *allow) {
    struct err err;
    uint32_t wanted;
    return programs_wanted(allow, &wanted, &err) == 0 && wanted & MACHINE_CAPABILITIES;
}

static int programs_lack(const struct live *l, uint32_t had, uint32_t missing, struct err *err) {
    char names[CAPABILITIES_SIZE], all[CAPABILITIES_SIZE];
    capabilities_text(missing, names);
    capabilities_text(had | missing, all);
    err_set(err, ERR_DENIED, "machine '%s' does not have the capabilities %s", l->row.id, names);
    return err_remedy(err, "the owner can allow them: carrel set %s --allow %s", l->row.id, all);
}

/* Reads the capabilities of the request. The machine must have each of them. */
static int programs_allowed(struct service *s, const struct caller *who,
                            const struct program_request *r, uint32_t *ret, struct err *err) {
    uint32_t wanted, had;
    if (programs_wanted(&r->allow, &wanted, err) < 0)
        return -1;
    *ret = wanted;
    if (!wanted)
        return 0;
    if (!r->machine) {
        err_set(err, ERR_INVALID, "field 'allow' requires field 'machine'");
        return err_remedy(err, "name a machine of the kind cell that has these capabilities");
    }
    struct live *l = live_find(s, who, r->machine, LIVE_ANY, err);
    if (!l || capabilities_parse(l->row.allowed, &had, err) < 0)
        return -1;
    if (wanted & ~had)
        return programs_lack(l, had, wanted & ~had, err);
    if (r->script && wanted & ~(uint32_t)(CAPABILITY_TIME | CAPABILITY_RANDOM))
        return err_set(err, ERR_UNSUPPORTED, "a script can have the capabilities time and random");
    return 0;
}

static int launch_it(struct program *p, const struct program_request *r, uint32_t allowed,
                     struct err *err) {
    char path[PLACE_SIZE + 16];
    struct words words = {.n = 0};
    if (allowed & MACHINE_CAPABILITIES) {
        const struct exec_module module = {program_fuel(r), program_pages(r), allowed};
        p->command = program_exec_start(p->service, &p->who, r, &module, has_answered, p);
        return 0;
    }
    programs_path_of(p->service, path);
    if (r->script && cell_guests_folder(words.guests, sizeof(words.guests), err) < 0)
        return -1;
    if (r->script)
        make_script_words(r, allowed, &words);
    else
        make_words(r, allowed, &words);
    const struct child_order order = {.path = path,
                                      .argv = words.v,
                                      .input = r->text,
                                      .input_bytes = strlen(r->text),
                                      .out_max = PROGRAM_ANSWER_MAX,
                                      .said_max = PROGRAM_LOG_MAX,
                                      .limit_ms = PROGRAM_MS};
    p->child = child_start(p->service->loop, &order, has_ended, p, err);
    return p->child ? 0 : -1;
}

struct program *service_program(struct service *s, const struct caller *who,
                                const struct program_request *r, service_program_fn *done,
                                void *arg, struct err *err) {
    struct journal_record what = {.verb = "program.run", .bytes = strlen(r->text)};
    uint32_t allowed = 0;
    if (allow(who, SCOPE_RUN, err) < 0 || programs_check(r, err) < 0 ||
        programs_allowed(s, who, r, &allowed, err) < 0)
        return NULL;
    /* One in a machine counts as a command of the machine and its owner instead. */
    bool is_beside = !(allowed & MACHINE_CAPABILITIES);
    if (is_beside && s->execs->programs >= PROGRAM_AT_ONCE) {
        err_set(err, ERR_BUSY, "%d WebAssembly programs are running, which is the limit",
                PROGRAM_AT_ONCE);
        err_remedy(err, "try again when one has ended");
        return NULL;
    }
    struct program *p = xnew(struct program);
    *p = (struct program){.service = s, .who = *who, .done = done, .arg = arg};
    if (note_intent(s, who, &what, &p->intent, err) < 0 || launch_it(p, r, allowed, err) < 0) {
        free(p);
        return NULL;
    }
    s->execs->programs += is_beside;
    return p;
}
