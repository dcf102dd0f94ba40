#include "service/exec/program_exec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cell_command.h"
#include "base/defer.h"
#include "service/exec/inner.h"

enum { GIVEN_MAX = 4 << 20, PIECE = 32 << 10 };

struct program_exec {
    struct service *service;
    struct caller who;
    struct exec_request request;
    struct exec_module module;
    struct texts argv;
    struct buf given;  /* standard input: arguments and program */
    struct exec *exec; /* NULL: not started yet, or refused */
    struct exec_follower follower;
    struct loop_call later; /* ends it */
    struct err refusal;     /* why it was not started */
    char key[STORE_KEY_SIZE];
    bool killed;
    program_exec_fn *done;
    void *arg;
};

/* ---- end ---- */

static void program_exec_free(struct program_exec *p) {
    loop_call_cancel(p->service->loop, &p->later);
    if (p->exec) {
        exec_unfollow(&p->follower);
        exec_unref(p->exec);
    }
    free(p->argv.v);
    buf_done(&p->given);
    free(p);
}

/* Reads a stream from its start. False: it has more bytes than `to` can hold. */
static bool program_exec_read(const struct exec *x, int stream, struct buf *to) {
    const struct outlog *log = exec_log(x);
    char piece[PIECE];
    uint64_t end = log ? outlog_extent(log, stream).produced : 0;
    for (uint64_t at = 0; at < end;) {
        struct outlog_piece part = outlog_read(log, stream, at, piece, sizeof(piece));
        if (!part.n || part.left_out || !buf_add(to, piece, part.n))
            return false;
        at = part.offset + part.n;
    }
    return true;
}

/* Replaces NUL: the text ends there for whoever reads it. */
static const char *program_exec_text(struct buf *b) {
    for (size_t i = 0; i < b->len; i++)
        if (!b->data[i])
            b->data[i] = ' ';
    return b->data ? b->data : "";
}

static void program_exec_answer(struct program_exec *p) {
    struct buf out DEFER(buf_done) = BUF(PROGRAM_ANSWER_MAX);
    struct buf said DEFER(buf_done) = BUF(PROGRAM_LOG_MAX);
    struct exec_view view;
    struct err err;
    exec_view(p->exec, &view);
    bool fits = program_exec_read(p->exec, 0, &out);
    (void)program_exec_read(p->exec, 1, &said); /* the rest is left out, as on the host */
    const struct program_result result = {(int)view.status, program_exec_text(&out),
                                          program_exec_text(&said)};
    bool whole = fits && out.len && view.end == EXEC_END_EXIT;
    if (view.end == EXEC_END_TIMEOUT)
        err_set(&err, ERR_TIMEOUT, "the WebAssembly program exceeded its time limit of %d s",
                PROGRAM_MS / 1000);
    else if (!fits)
        err_set(&err, ERR_LIMIT, "the result of the WebAssembly program is larger than 1 MiB");
    else
        err_set(&err, ERR_UNKNOWN, "the WebAssembly program ended without a result (%s)%s%.200s",
                view.reason ? view.reason : view.state, said.len ? ": " : "",
                said.len ? said.data : "");
    p->done(p->arg, whole ? &result : NULL, whole ? NULL : &err);
}

static void program_exec_end(void *arg) {
    struct program_exec *p = arg;
    if (p->exec)
        program_exec_answer(p);
    else
        p->done(p->arg, NULL, &p->refusal);
    program_exec_free(p);
}

static void program_exec_changed(void *arg) {
    struct program_exec *p = arg;
    if (exec_log_is_closed(p->exec))
        loop_defer(p->service->loop, &p->later);
}

static void program_exec_killed(void *arg, const struct err *err) {
    (void)arg;
    (void)err; /* an error means that the command has already ended */
}

void program_exec_kill(struct program_exec *p) {
    p->killed = true;
    if (p->exec)
        exec_kill(p->exec, &p->who, program_exec_killed, NULL);
}

/* ---- start ---- */

static void program_exec_sent(void *arg, struct exec *x, const struct err *err) {
    struct program_exec *p = arg;
    if (err) {
        p->refusal = *err;
        loop_defer(p->service->loop, &p->later);
        return;
    }
    p->exec = x;
    p->follower =
        (struct exec_follower){.changed = program_exec_changed, .arg = p, .wants_output = true};
    exec_follow(x, &p->follower);
    if (p->killed)
        program_exec_kill(p);
    program_exec_changed(p);
}

static bool program_exec_give(struct program_exec *p, const struct program_request *r) {
    bool ok = r->input ? buf_addf(&p->given, "%zu\n%s", strlen(r->input), r->input)
                       : buf_addf(&p->given, CELL_NO_INPUT "\n");
    return ok && buf_addf(&p->given, "%s", r->text);
}

static void program_exec_words(struct program_exec *p, const struct program_request *r) {
    p->argv.v = xcalloc(3 + r->args.count, sizeof(*p->argv.v));
    p->argv.v[p->argv.count++] = "program";
    if (!r->invoke)
        return;
    p->argv.v[p->argv.count++] = "--invoke";
    p->argv.v[p->argv.count++] = r->invoke;
    for (size_t i = 0; i < r->args.count; i++)
        p->argv.v[p->argv.count++] = r->args.v[i];
}

struct program_exec *program_exec_start(struct service *s, const struct caller *who,
                                        const struct program_request *r,
                                        const struct exec_module *module, program_exec_fn *done,
                                        void *arg) {
    static const uint8_t no_hash[SHA256_BYTES];
    struct program_exec *p = xnew(struct program_exec);
    *p = (struct program_exec){.service = s,
                               .who = *who,
                               .module = *module,
                               .given = BUF(GIVEN_MAX),
                               .done = done,
                               .arg = arg};
    p->later = (struct loop_call){.fn = program_exec_end, .arg = p};
    snprintf(p->key, sizeof(p->key), "%s", r->key ? r->key : "");
    program_exec_words(p, r);
    if (!program_exec_give(p, r)) {
        err_set(&p->refusal, ERR_LIMIT, "the program and its input are larger than %d MiB",
                GIVEN_MAX >> 20);
        loop_defer(s->loop, &p->later);
        return p;
    }
    p->request = (struct exec_request){.argv = p->argv,
                                       .stdin_text = p->given.data,
                                       .key = p->key[0] ? p->key : NULL,
                                       .timeout = {PROGRAM_MS, true},
                                       .module = &p->module};
    service_exec(s, who, r->machine, &p->request, no_hash, NULL, 0, program_exec_sent, p);
    return p;
}
