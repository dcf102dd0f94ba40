/*
 * Runs commands for a grant in its machine, as the user of the machine. The first line of stderr
 * becomes the error.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "service/exec/exec.h"
#include "service/grants/inner.h"

enum { TIMEOUT_MS = 300000, SAID_MAX = 200 };

struct running {
    struct live *live;
    struct caller who;
    struct exec_request request;
    char *words[INSIDE_WORDS];
    const char *argv[INSIDE_WORDS + 3];
    struct exec *exec;
    struct exec_follower follower;
    struct loop_call ended;
    inside_done_fn *done;
    void *arg;
};

static void inside_finish(struct running *r, const struct err *err) {
    struct live *l = r->live;
    struct exec_view view = {.id = NULL};
    if (r->exec)
        exec_view(r->exec, &view);
    r->done(r->arg, view.id, err);
    if (r->exec) {
        exec_unfollow(&r->follower);
        exec_unref(r->exec);
    }
    for (size_t i = 0; i < INSIDE_WORDS; i++)
        free(r->words[i]);
    free(r);
    live_unref(l);
}

/* Reads the first line of stderr. */
static void said(const struct exec *x, char ret[SAID_MAX]) {
    const struct outlog *log = exec_log(x);
    ret[0] = '\0';
    if (!log)
        return;
    struct outlog_piece piece = outlog_read(log, 1, 0, (uint8_t *)ret, SAID_MAX - 1);
    ret[piece.n] = '\0';
    ret[strcspn(ret, "\r\n")] = '\0';
    for (char *c = ret; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
}

static void over(void *arg) {
    struct running *r = arg;
    struct exec_view view;
    char line[SAID_MAX];
    struct err err;
    exec_view(r->exec, &view);
    if (view.status == 0) {
        inside_finish(r, NULL);
        return;
    }
    said(r->exec, line);
    err_set(&err, ERR_INVALID, "a command in the machine failed: %s",
            line[0]       ? line
            : view.error  ? view.error
            : view.reason ? view.reason
                          : "it printed no error");
    inside_finish(r, &err);
}

/* Defers over(), because it must not free the exec while the exec calls its followers. */
static void inside_changed(void *arg) {
    struct running *r = arg;
    if (exec_is_over(r->exec))
        loop_defer(r->live->service->loop, &r->ended);
}

static void started(void *arg, struct exec *x, const struct err *err) {
    struct running *r = arg;
    if (err) {
        inside_finish(r, err);
        return;
    }
    r->exec = x;
    r->ended = (struct loop_call){.fn = over, .arg = r};
    r->follower = (struct exec_follower){.changed = inside_changed, .arg = r};
    exec_follow(x, &r->follower);
    inside_changed(r);
}

void inside_run(struct live *l, const char *script, const char *const *words, inside_done_fn *done,
                void *arg) {
    static const uint8_t no_hash[SHA256_BYTES];
    struct running *r = xnew(struct running);
    *r = (struct running){.live = l, .done = done, .arg = arg};
    r->who.scopes = SCOPE_READ | SCOPE_RUN;
    snprintf(r->who.owner, sizeof(r->who.owner), "%s", l->row.owner);
    snprintf(r->who.client, sizeof(r->who.client), "grant");
    r->argv[0] = "/bin/sh";
    r->argv[1] = "-c";
    r->argv[2] = script;
    size_t count = 3;
    for (size_t i = 0; i < INSIDE_WORDS && words[i]; i++) {
        r->words[i] = xstrdup(words[i]);
        r->argv[count++] = r->words[i];
    }
    r->request = (struct exec_request){
        .argv = {r->argv, count}, .cwd = "/", .kill_left = true, .timeout = {TIMEOUT_MS, true}};
    live_ref(l);
    service_exec(l->service, &r->who, l->row.id, &r->request, no_hash, NULL, 0, started, r);
}
