/*
 * Several tries at a task: forks of a machine, or machines made alike, each with a run; what must
 * hold is checked in each, and the best one stays. Of equals the one with fewer changes wins.
 *
 * What was lent to a machine is not in its forks. So where directories are lent each try is frozen
 * as a change set before its check runs, which therefore changes nothing of what may ship; without
 * them the check runs in a fork that is thrown away.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/plan.h"
#include "cli/cli.h"
#include "cli/do.h"
#include "cli/grants.h"
#include "cli/safe.h"
#include "cli/table.h"

enum { TRIES_MAX = 8, LOOK_US = 200000, CHECK_S = 600 };

struct try {
    char machine[64], run[64], changeset[64];
    json_t *view; /* of the run */
    long long changes;
    bool ended, good;
};

struct trying {
    struct client *client;
    const struct do_options *options;
    struct try tries[TRIES_MAX];
    size_t count;
};

static void trying_done(struct trying *t) {
    for (size_t i = 0; i < TRIES_MAX; i++)
        json_decref(t->tries[i].view);
}

static void copy(char *to, size_t size, const char *from) {
    snprintf(to, size, "%s", from);
}

static int ask(struct trying *t, const char *method, const char *target, const struct buf *body,
               json_t **ret, struct err *err) {
    const struct client_request r = {.method = method, .target = target, .body = body};
    return client_call(t->client, &r, ret, err);
}

/* ---- the machines ---- */

static int fork_of(struct trying *t, const char *machine, uint64_t count, json_t **ret,
                   struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    struct buf body DEFER(buf_done) = BUF(256);
    struct jot j = JOT(&body);
    jot_object(&j, NULL);
    jot_u64(&j, "count", count);
    jot_end(&j, '}');
    return client_target(target, err, "/v1/machines/%s/fork", machine) < 0
               ? -1
               : ask(t, "POST", target, &body, ret, err);
}

static void drop(struct trying *t, const char *machine) {
    char target[CLIENT_TARGET_SIZE];
    struct err err;
    if (client_target(target, &err, "/v1/machines/%s", machine) < 0 ||
        ask(t, "DELETE", target, NULL, NULL, &err) < 0)
        fprintf(stderr, "carrel: machine %s stays: %s\n", machine, err.text);
}

static int make_forks(struct trying *t, const char *machine, struct err *err) {
    json_t *answer DEFER(json_free) = NULL, *m;
    size_t i;
    if (fork_of(t, machine, t->options->tries, &answer, err) < 0)
        return -1;
    json_array_foreach(json_object_get(answer, "machines"), i, m) {
        if (t->count < TRIES_MAX)
            copy(t->tries[t->count++].machine, sizeof(t->tries[0].machine), client_text(m, "id"));
    }
    return 0;
}

static int make_alike(struct trying *t, struct err *err) {
    struct new_options o = t->options->made;
    char name[128];
    while (t->count < t->options->tries) {
        json_t *m DEFER(json_free) = NULL;
        if (t->options->made.name) {
            snprintf(name, sizeof(name), "%s-%zu", t->options->made.name, t->count + 1);
            o.name = name;
        }
        if (new_make(&o, t->client, &m, err) < 0)
            return -1;
        copy(t->tries[t->count++].machine, sizeof(t->tries[0].machine), client_text(m, "id"));
    }
    return 0;
}

/* ---- the runs ---- */

static int start(struct trying *t, struct try *x, const char *task, struct err *err) {
    struct buf body DEFER(buf_done) = BUF(DO_BODY_MAX);
    struct jot j = JOT(&body);
    json_t *run DEFER(json_free) = NULL;
    if (do_put_start(&j, t->options, t->client, x->machine, task, t->options->tries, err) < 0 ||
        ask(t, "POST", "/v1/runs", &body, &run, err) < 0)
        return -1;
    copy(x->run, sizeof(x->run), client_text(run, "id"));
    return 0;
}

/* Nobody sits before so many: what is asked is declined. */
static int decline(struct trying *t, const struct try *x, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    struct buf body DEFER(buf_done) = BUF(256);
    struct jot j = JOT(&body);
    jot_object(&j, NULL);
    jot_string(&j, "action", "decline");
    jot_end(&j, '}');
    return client_target(target, err, "/v1/runs/%s/answer", x->run) < 0
               ? -1
               : ask(t, "POST", target, &body, NULL, err);
}

static int look(struct trying *t, struct try *x, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    json_decref(x->view);
    x->view = NULL;
    if (client_target(target, err, "/v1/runs/%s", x->run) < 0 ||
        ask(t, "GET", target, NULL, &x->view, err) < 0)
        return -1;
    const char *state = client_text(x->view, "state"), *status = client_text(x->view, "status");
    x->ended = strcmp(state, "ended") == 0 || strcmp(state, "interrupted") == 0;
    if (strcmp(state, "waiting") == 0 && decline(t, x, err) < 0)
        return -1;
    if (x->ended && !t->options->json)
        printf("try %td  run %s  machine %s  %s  %lld turns  %lld tokens\n", x - t->tries + 1,
               x->run, x->machine, *status ? status : state, client_number(x->view, "turns"),
               client_number(x->view, "tokens"));
    fflush(stdout);
    return 0;
}

static int wait_for_all(struct trying *t, struct err *err) {
    for (size_t left = t->count; left;) {
        left = 0;
        for (size_t i = 0; i < t->count; i++) {
            if (!t->tries[i].ended && look(t, &t->tries[i], err) < 0)
                return -1;
            left += !t->tries[i].ended;
        }
        if (left)
            usleep(LOOK_US);
    }
    return 0;
}

/* ---- which one ---- */

/* The whole of the first directory that is lent as a copy. */
static int freeze(struct trying *t, struct try *x, struct err *err) {
    struct plan *plan DEFER_FREE = calloc(1, sizeof(*plan));
    struct grants *g DEFER_FREE = calloc(1, sizeof(*g));
    char target[CLIENT_TARGET_SIZE];
    struct buf body DEFER(buf_done) = BUF(16384);
    struct jot j = JOT(&body);
    json_t *set DEFER(json_free) = NULL;
    if (!plan || !g)
        abort();
    int status = grants_open(&t->options->made.spec.dirs, plan, g, err);
    grants_close(g);
    jot_object(&j, NULL);
    jot_string(&j, "path", plan->grants[0].path);
    jot_end(&j, '}');
    if (status < 0 || client_target(target, err, "/v1/machines/%s/changesets", x->machine) < 0 ||
        ask(t, "POST", target, &body, &set, err) < 0)
        return -1;
    copy(x->changeset, sizeof(x->changeset), client_text(set, "id"));
    x->changes = client_number(set, "bytes");
    return 0;
}

static int count_changes(struct trying *t, struct try *x, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    json_t *diff DEFER(json_free) = NULL;
    if (client_target(target, err, "/v1/machines/%s/diff?brief=1", x->machine) < 0 ||
        ask(t, "GET", target, NULL, &diff, err) < 0)
        return -1;
    x->changes = client_number(diff, "added") + client_number(diff, "modified") +
                 client_number(diff, "deleted");
    return 0;
}

static int run_check(struct trying *t, const char *machine, bool *ret, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    struct buf body DEFER(buf_done) = BUF(1 << 20);
    struct jot j = JOT(&body);
    json_t *done DEFER(json_free) = NULL;
    jot_object(&j, NULL);
    jot_string(&j, "command", t->options->check);
    jot_u64(&j, "timeout", CHECK_S);
    jot_end(&j, '}');
    if (client_target(target, err, "/v1/machines/%s/execs", machine) < 0 ||
        ask(t, "POST", target, &body, &done, err) < 0)
        return -1;
    const json_t *x = json_object_get(done, "exec");
    *ret = strcmp(client_text(x, "state"), "exited") == 0 && client_number(x, "status") == 0;
    return 0;
}

static int check_in_fork(struct trying *t, struct try *x, struct err *err) {
    json_t *answer DEFER(json_free) = NULL;
    if (fork_of(t, x->machine, 1, &answer, err) < 0)
        return -1;
    const char *fork = client_text(json_array_get(json_object_get(answer, "machines"), 0), "id");
    int status = run_check(t, fork, &x->good, err);
    drop(t, fork);
    return status;
}

static int judge(struct trying *t, struct try *x, struct err *err) {
    bool lent = t->options->made.spec.dirs.count;
    x->good = strcmp(client_text(x->view, "status"), "done") == 0;
    if ((lent ? freeze(t, x, err) : count_changes(t, x, err)) < 0)
        return -1;
    if (!t->options->check)
        return 0;
    return lent ? run_check(t, x->machine, &x->good, err) : check_in_fork(t, x, err);
}

static size_t best_of(const struct trying *t) {
    size_t best = 0;
    for (size_t i = 1; i < t->count; i++) {
        const struct try *a = &t->tries[i], *b = &t->tries[best];
        if (a->good != b->good ? a->good : a->changes < b->changes)
            best = i;
    }
    return best;
}

/* ---- what came of it ---- */

static void print_tries(const struct trying *t, size_t best) {
    json_t *all DEFER(json_free) = json_array();
    for (size_t i = 0; i < t->count; i++) {
        const struct try *x = &t->tries[i];
        json_array_append_new(all,
                              json_pack("{s:s, s:s, s:s, s:b, s:I, s:O}", "machine", x->machine,
                                        "run", x->run, "changeset", x->changeset, "good", x->good,
                                        "changes", (json_int_t)x->changes, "view", x->view));
    }
    json_t *answer DEFER(json_free) = json_pack("{s:i, s:O}", "best", (int)best, "tries", all);
    print_json(answer);
}

static void say(const struct trying *t, size_t best) {
    const struct try *x = &t->tries[best];
    const char *summary = client_text(json_object_get(x->view, "report"), "summary");
    printf("\n%s try %zu, machine %s", x->good ? "The best is" : "None is good; the nearest is",
           best + 1, x->machine);
    if (x->changeset[0])
        printf(", change set %s", x->changeset);
    puts("");
    safe_text(stdout, summary, strlen(summary));
    putchar('\n');
}

static int choose(struct trying *t, struct err *err) {
    for (size_t i = 0; i < t->count; i++)
        if (judge(t, &t->tries[i], err) < 0)
            return -1;
    size_t best = best_of(t);
    for (size_t i = 0; i < t->count; i++)
        if (i != best)
            drop(t, t->tries[i].machine);
    if (t->options->json)
        print_tries(t, best);
    else
        say(t, best);
    return t->tries[best].good ? 0 : DO_NOT_DONE;
}

static int start_all(struct trying *t, const char *machine, const char *task, struct err *err) {
    if ((machine ? make_forks(t, machine, err) : make_alike(t, err)) < 0)
        return -1;
    for (size_t i = 0; i < t->count; i++)
        if (start(t, &t->tries[i], task, err) < 0)
            return -1;
    return 0;
}

int do_tries(struct client *c, const struct do_options *o, const char *machine, const char *task,
             struct err *err) {
    struct trying t DEFER(trying_done) = {.client = c, .options = o};
    if (o->tries > TRIES_MAX)
        return err_set(err, ERR_INVALID, "--tries is at most %d", TRIES_MAX);
    if (start_all(&t, machine, task, err) < 0) {
        for (size_t i = 0; i < t.count; i++)
            drop(&t, t.tries[i].machine);
        return -1;
    }
    return wait_for_all(&t, err) < 0 ? -1 : choose(&t, err);
}
