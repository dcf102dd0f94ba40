#include "service/health/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "service/exec/exec.h"
#include "service/state.h"

/* NAMES_MAX: of what is shown. The command outlives a check that gave up, but not for long. */
enum { NAMES_MAX = 100, NO_SYSTEMD = 69, COMMAND_MS = 60000 };

static const char command[] =
    "[ -d /run/systemd/system ] || exit 69\n"
    "failed=$(systemctl list-units --failed --plain --no-legend --no-pager) || exit\n"
    "echo \"$failed\" | sed 's/ .*//' | tr '\\n' ' '";

struct units {
    struct service *service;
    struct caller who;
    char machine[ID_SIZE];
    struct exec_request request;
    struct exec *exec; /* NULL: not started yet */
    struct exec_follower follower;
    struct loop_call later;
    units_fn *done; /* NULL: cancelled */
    void *arg;
};

static void units_free(struct units *u) {
    loop_call_cancel(u->service->loop, &u->later);
    if (u->exec) {
        exec_unfollow(&u->follower);
        exec_unref(u->exec);
    }
    free(u);
}

static void units_answer(struct units *u, const char *failed, const struct err *err) {
    if (u->done)
        u->done(u->arg, failed, err);
    units_free(u);
}

/* Names come from inside: only what can be in the name of a unit is shown. */
static void units_read(const struct exec *x, char ret[NAMES_MAX]) {
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                               ":-_.\\@ ";
    const struct outlog *log = exec_log(x);
    size_t n = log ? outlog_read(log, 0, 0, ret, NAMES_MAX - 1).n : 0;
    ret[n] = '\0';
    for (size_t i = 0; i < n; i++)
        if (!strchr(good, ret[i]) || !ret[i])
            ret[i] = '?';
    while (n && ret[n - 1] == ' ')
        ret[--n] = '\0';
}

static void units_over(void *arg) {
    struct units *u = arg;
    struct exec_view view;
    struct err err;
    char failed[NAMES_MAX];
    exec_view(u->exec, &view);
    units_read(u->exec, failed);
    if (view.status == 0) {
        units_answer(u, failed, NULL);
        return;
    }
    err_set(&err, ERR_UNSUPPORTED,
            view.status == NO_SYSTEMD ? "systemd does not run in it" : "systemd does not answer");
    units_answer(u, NULL, &err);
}

static void units_changed(void *arg) {
    struct units *u = arg;
    if (exec_is_over(u->exec) && exec_log_is_closed(u->exec))
        loop_defer(u->service->loop, &u->later);
}

static void units_started(void *arg, struct exec *x, const struct err *err) {
    struct units *u = arg;
    if (err || !u->done) {
        if (!err)
            exec_unref(x);
        units_answer(u, NULL, err);
        return;
    }
    u->exec = x;
    u->follower = (struct exec_follower){.changed = units_changed, .arg = u, .wants_output = true};
    exec_follow(x, &u->follower);
    units_changed(u);
}

static void units_begin(void *arg) {
    static const uint8_t no_hash[SHA256_BYTES];
    struct units *u = arg;
    u->later.fn = units_over;
    if (u->done)
        service_exec(u->service, &u->who, u->machine, &u->request, no_hash, NULL, 0, units_started,
                     u);
    else
        units_free(u);
}

struct units *units_list(struct live *l, units_fn *done, void *arg) {
    struct units *u = xnew(struct units);
    *u = (struct units){.service = l->service,
                        .who = {.client = "health", .scopes = SCOPE_READ | SCOPE_RUN},
                        .request = {.command = command,
                                    .user = "root",
                                    .timeout = {.value = COMMAND_MS, .is = true},
                                    .background = true,
                                    .lazy = true,
                                    .no_step = true},
                        .later = {.fn = units_begin, .arg = u},
                        .done = done,
                        .arg = arg};
    memcpy(u->machine, l->row.id, sizeof(u->machine));
    memcpy(u->who.owner, l->row.owner, sizeof(u->who.owner));
    loop_defer(l->service->loop, &u->later);
    return u;
}

void units_cancel(struct units *u) {
    u->done = NULL;
    if (u->exec)
        units_free(u);
}
