/* A helper ends with its command: the follower of the command calls helper_finish() once. */
#include "tools/helper.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/sha256.h"

struct helper {
    struct act *act;
    struct exec *exec;
    struct exec_follower follower;
    uint64_t max;
    helper_fn *ended;
    /* The request is used until sent() is called. */
    struct exec_request request;
    char *words[HELPER_WORDS];
};

/* Frees the request once service_exec() has copied it. */
static void forget_request(struct helper *h) {
    for (size_t i = 0; i < h->request.argv.count; i++)
        free(h->words[i]);
    h->request.argv.count = 0;
}

static void keep_request(struct helper *h, const struct exec_request *r) {
    size_t n = r->argv.count < HELPER_WORDS ? r->argv.count : HELPER_WORDS;
    h->request = *r;
    h->request.argv = (struct texts){(const char **)h->words, n};
    for (size_t i = 0; i < n; i++)
        h->words[i] = xstrdup(r->argv.v[i]);
}

static void helper_finish(struct helper *h) {
    struct act *a = h->act;
    struct exec *x = h->exec;
    helper_fn *ended = h->ended;
    struct exec_view view;
    exec_unfollow(&h->follower);
    free(h);
    exec_view(x, &view);
    ended(a, x, &view);
    exec_unref(x);
}

static void ignore(void *arg, const struct err *err) {
    (void)arg;
    (void)err; /* an error means that the command has already ended */
}

static void stop(struct act *a) {
    struct helper *h = a->user;
    exec_kill(h->exec, act_who(a), ignore, NULL);
}

static void helper_changed(void *arg) {
    struct helper *h = arg;
    const struct outlog *log = exec_log(h->exec);
    if (exec_is_over(h->exec))
        helper_finish(h);
    else if (log && outlog_extent(log, 0).produced > h->max)
        stop(h->act);
}

static void sent(void *arg, struct exec *x, const struct err *err) {
    struct helper *h = arg;
    struct act *a = h->act;
    forget_request(h);
    if (err) {
        free(h);
        act_fail(a, err);
        return;
    }
    h->exec = x;
    h->follower = (struct exec_follower){.changed = helper_changed, .arg = h, .wants_output = true};
    a->user = h;
    a->cancel = stop;
    exec_follow(x, &h->follower);
    if (a->cancelled) /* cancelled while the command waited to be started */
        stop(a);
    if (exec_is_over(x)) /* the follower is not called if the command ended before */
        helper_finish(h);
}

void helper_run(struct act *a, const struct exec_request *r, uint64_t max, helper_fn *ended) {
    static const uint8_t no_hash[SHA256_BYTES];
    struct helper *h = xnew(struct helper);
    *h = (struct helper){.act = a, .max = max, .ended = ended};
    keep_request(h, r);
    service_exec(act_service(a), act_who(a), a->machine, &h->request, no_hash, NULL, 0, sent, h);
}
