/* After the agent has ended: shows what it changed, and asks what happens to the changes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "cli/agent/agent.h"
#include "cli/cli.h"
#include "cli/ship/ship.h"
#include "cli/ship/slices_find.h"
#include "cli/text/colour.h"

/* What can be shipped: frozen, so that the files that were shown are those that are shipped. */
struct after {
    struct agent *agent;
    bool is_repo;
    char set[ID_SIZE]; /* id of the change set */
    long long count;   /* commits of a repository, or files */
};

static long long changed_files(const json_t *told) {
    long long count = 0;
    size_t i;
    json_t *file;
    json_array_foreach(json_object_get(told, "files"), i, file) {
        count += json_is_true(json_object_get(file, "wanted")) || json_object_get(file, "refused");
    }
    return count;
}

/* Finds the slice of the agent's directory. It stays what it was when the machine was made. */
static int after_find(const struct agent *a, struct slice *ret, struct err *err) {
    struct slices *found DEFER_FREE = xnew(struct slices);
    if (slices_of(a->client, a->machine, found, err) < 0)
        return -1;
    for (size_t i = 0; i < found->count; i++)
        if (strcmp(found->list[i].at, a->slice.top) == 0) {
            *ret = found->list[i];
            return 0;
        }
    err_set(err, ERR_NOT_FOUND, "machine '%s' no longer has a grant of directory '%s'", a->name,
            a->slice.top);
    return err_remedy(err, "see carrel grants %s", a->name);
}

static int after_freeze(struct after *f, struct err *err) {
    struct agent *a = f->agent;
    struct slice *slice DEFER_FREE = xnew(struct slice);
    char *word DEFER_FREE = xmalloc(SLICE_WORD);
    json_t *told DEFER(json_decrefp) = NULL;
    if (after_find(a, slice, err) < 0)
        return -1;
    f->is_repo = slice->kind == SLICE_REPO;
    const struct ship_options o = {.json = true, .uncommitted = f->is_repo};
    struct ship s DEFER(ship_done) = {
        .options = &o, .client = a->client, .dir = -1, .parcel = {.dir = -1}, .told = &told};
    slice_word(slice, a->machine, word);
    if (ship_open(&s, a->slice.top, err) < 0 || ship_review(&s, word, err) < 0)
        return -1;
    snprintf(f->set, sizeof(f->set), "%s", client_text(told, "changeset"));
    f->count = f->is_repo ? client_number(told, "commits") : changed_files(told);
    return 0;
}

/* Runs `carrel ship` on the frozen changes, with up to two more options. */
static int after_ship(const struct after *f, const char *first, const char *second) {
    const char *const words[] = {
        "ship", first, second, f->is_repo ? "--uncommitted" : NULL, f->set, f->agent->slice.top};
    const char *argv[sizeof(words) / sizeof(*words) + 1];
    int n = 0;
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (words[i])
            argv[n++] = words[i];
    argv[n] = NULL;
    return cmd_ship(n, (char **)argv);
}

/* ---- questions ---- */

/* Reads a line of the answer; NULL: the end of input. The caller frees it. */
static char *after_read(void) {
    char *line = NULL;
    size_t size = 0;
    fflush(stdout);
    ssize_t n = getline(&line, &size, stdin);
    if (n < 0) {
        free(line);
        return NULL;
    }
    line[strcspn(line, "\n")] = '\0';
    return line;
}

bool agent_confirms(const char *question) {
    printf("%s", question);
    char *line DEFER_FREE = after_read();
    return line && (line[0] == 'y' || line[0] == 'Y');
}

enum after_next { AFTER_ASK, AFTER_DONE, AFTER_RETURN };

static enum after_next after_all(struct after *f, char **ret) {
    (void)ret;
    return after_ship(f, "-y", "--stat") == 0 ? AFTER_DONE : AFTER_ASK;
}

static enum after_next after_pick(struct after *f, char **ret) {
    (void)ret;
    after_ship(f, "--pick", NULL);
    return AFTER_ASK; /* about the rest */
}

static enum after_next after_diff(struct after *f, char **ret) {
    (void)ret;
    after_ship(f, NULL, NULL);
    return AFTER_ASK;
}

static enum after_next after_return(struct after *f, char **ret) {
    (void)f;
    fputs("comment for the agent: ", stdout);
    char *line = after_read();
    if (!line || !*line) {
        free(line);
        return AFTER_ASK;
    }
    *ret = line;
    return AFTER_RETURN;
}

static enum after_next after_keep(struct after *f, char **ret) {
    (void)ret;
    const char *agent = f->agent->row->name, *name = f->agent->name;
    cli_done(false,
             "the changes stay in machine %s; to review them: carrel ship %s%s; to continue: "
             "carrel agent %s --resume",
             name, f->is_repo ? "--uncommitted " : "", name, agent);
    return AFTER_DONE;
}

static enum after_next after_discard(struct after *f, char **ret) {
    const char *words[] = {"rm", f->agent->name};
    char question[512];
    (void)ret;
    if (f->agent->home[0])
        snprintf(question, sizeof(question),
                 "delete machine %s with its changes? The history of the agent stays in volume %s "
                 "[y/N] ",
                 f->agent->name, f->agent->home);
    else
        snprintf(question, sizeof(question),
                 "delete machine %s with its changes and the history of the agent? [y/N] ",
                 f->agent->name);
    if (!agent_confirms(question))
        return AFTER_ASK;
    return cmd_rm(2, (char **)words) == 0 ? AFTER_DONE : AFTER_ASK;
}

static const struct {
    char letter;
    const char *help;
    enum after_next (*run)(struct after *f, char **ret);
} answers[] = {
    {'s', "ship all changes to this host", after_all},
    {'p', "pick files and hunks to ship", after_pick},
    {'d', "show the differences", after_diff},
    {'r', "return the work to the agent, with a comment", after_return},
    {'k', "keep the machine and decide later", after_keep},
    {'x', "discard the changes: delete the machine", after_discard},
};
enum { ANSWERS = sizeof(answers) / sizeof(*answers) };

static void after_help(void) {
    for (size_t i = 0; i < ANSWERS; i++)
        printf("  %c  %s\n", answers[i].letter, answers[i].help);
}

static enum after_next after_ask(struct after *f, char **ret) {
    colour_begin(COLOUR_BOLD);
    fputs("what happens to the changes? [", stdout);
    for (size_t i = 0; i < ANSWERS; i++)
        printf("%c,", answers[i].letter);
    fputs("?] ", stdout);
    colour_end();
    char *line DEFER_FREE = after_read();
    if (!line)
        return after_keep(f, ret);
    for (size_t i = 0; i < ANSWERS; i++)
        if (line[0] == answers[i].letter && !line[1])
            return answers[i].run(f, ret);
    after_help();
    return AFTER_ASK;
}

int agent_changes(struct agent *a, long long *ret, struct err *err) {
    struct after f = {.agent = a};
    if (after_freeze(&f, err) < 0)
        return -1;
    *ret = f.count;
    return 0;
}

int agent_after(struct agent *a, char **ret_comment, struct err *err) {
    struct after f = {.agent = a};
    *ret_comment = NULL;
    if (after_freeze(&f, err) < 0)
        return -1;
    if (!f.count) {
        cli_done(a->o->quiet, "the agent changed nothing; machine %s is kept (carrel rm %s)",
                 a->name, a->name);
        return 0;
    }
    after_ship(&f, "--stat", NULL);
    if (a->o->keep) {
        after_keep(&f, ret_comment);
        return 0;
    }
    after_help();
    while (after_ask(&f, ret_comment) == AFTER_ASK)
        ;
    return 0;
}
