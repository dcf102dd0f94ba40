/*
 * What is done in a context: jobs, one after the other.
 *
 * A job follows the interpreter of its context only while it runs. If its client leaves, the code
 * is interrupted, and if that does not help, the interpreter is killed: then the next job starts a
 * new one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/e2b/code_inner.h"
#include "base/alloc.h"
#include "base/defer.h"

enum {
    GRACE_MS = 5000,
    VALUES_MAX = 250000, /* in one line; the drivers leave out larger results */
    NOISE_MAX = 16 << 20,
};

static void job_begin(struct code_context *k);

/* ---- lines to the client ---- */

static void job_stream(struct code_job *job) {
    if (job->call && !job->call->begun)
        envd_begin(job->call);
}

/* Takes over the reference. */
static void job_tell(struct code_job *job, json_t *message) {
    char *text DEFER_FREE = json_dumps(message, JSON_COMPACT);
    json_decref(message);
    job_stream(job);
    if (job->call && text && !envd_line(job->call, text, strlen(text)))
        coproc_pause(job->context->coproc, true);
}

static const char *text_in(const json_t *answer, const char *name) {
    const char *text = json_string_value(json_object_get(answer, name));
    return text ? text : "";
}

static void tell_count(struct code_job *job, const json_t *answer) {
    job_tell(job, json_pack("{s:s, s:I}", "type", "number_of_executions", "execution_count",
                            json_integer_value(json_object_get(answer, "count"))));
}

static void tell_output(struct code_job *job, const json_t *answer) {
    job_tell(job, json_pack("{s:s, s:s}", "type", text_in(answer, "event"), "text",
                            text_in(answer, "text")));
}

static void tell_failure(struct code_job *job, const char *name, const char *value,
                         const char *trace) {
    job_tell(job, json_pack("{s:s, s:s, s:s, s:s}", "type", "error", "name", name, "value", value,
                            "traceback", trace));
}

static void tell_error(struct code_job *job, const json_t *answer) {
    tell_failure(job, text_in(answer, "name"), text_in(answer, "value"),
                 text_in(answer, "traceback"));
}

/* Clients take these formats for texts. */
static bool is_text_format(const char *name) {
    static const char *const names[] = {"text", "html", "markdown", "svg",       "png",
                                        "jpeg", "pdf",  "latex",    "javascript"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

static bool fits_format(const char *name, const json_t *value) {
    if (strcmp(name, "type") == 0 || strcmp(name, "is_main_result") == 0)
        return false;
    if (is_text_format(name))
        return json_is_string(value);
    return json_is_object(value) || (strcmp(name, "data") != 0 && strcmp(name, "chart") != 0);
}

static void tell_result(struct code_job *job, const json_t *answer) {
    json_t *out = json_pack("{s:s, s:b}", "type", "result", "is_main_result",
                            json_is_true(json_object_get(answer, "main")));
    const char *name;
    json_t *value;
    json_object_foreach(json_object_get(answer, "data"), name, value) if (fits_format(name, value))
        json_object_set(out, name, value);
    job_tell(job, out);
}

static const struct {
    const char *event;
    void (*tell)(struct code_job *job, const json_t *answer);
} code_events[] = {
    {"count", tell_count},   {"stdout", tell_output}, {"stderr", tell_output},
    {"result", tell_result}, {"error", tell_error},
};

/* ---- the end of a job ---- */

/* Removes the job that is running. The interpreter goes on; the next job adopts it. */
static void job_end(struct code_job *job) {
    struct code_context *k = job->context;
    loop_timer_stop(k->limit);
    if (k->coproc)
        coproc_free(TAKE(k->coproc));
    k->jobs = job->next;
    free(job);
    if (k->jobs)
        job_begin(k);
}

static struct envd_call *job_let_go(struct code_job *job) {
    struct envd_call *c = TAKE(job->call);
    if (c)
        c->on_gone = NULL;
    return c;
}

static void job_done(struct code_job *job) {
    struct code_context *k = job->context;
    struct envd_call *c;
    if (job->work == CODE_EXECUTE)
        job_stream(job);
    c = job_let_go(job);
    if (!c)
        ; /* nobody waits */
    else if (job->work == CODE_EXECUTE)
        envd_close(c);
    else if (job->work == CODE_START)
        code_tell_context(c, k);
    else
        envd_reply(c, 200, NULL, "null", 4);
    bool removed = job->work == CODE_REMOVE && !job->next;
    job_end(job);
    if (removed)
        code_context_free(k);
}

/* The interpreter ended, or never began. A stream tells that as an error of the code. */
static void job_failed(struct code_job *job, const char *name, const char *why) {
    struct code_context *k = job->context;
    bool forget = job->work == CODE_START && !job->next;
    if (job->work == CODE_EXECUTE) {
        tell_failure(job, name, why, "");
        job_done(job);
        return;
    }
    struct envd_call *c = job_let_go(job);
    if (c)
        envd_refuse(c, 500, "%s", why);
    job_end(job);
    if (forget)
        code_context_free(k);
}

/* ---- lines and end of the interpreter ---- */

static void job_line(void *arg, const char *line, size_t n) {
    struct code_context *k = arg;
    struct code_job *job = k->jobs;
    json_t *answer DEFER(json_decrefp) = coproc_json(k->coproc, line, n, VALUES_MAX);
    if (strcmp(text_in(answer, "id"), job->number.text) != 0) {
        job->noise += n + 64; /* of an earlier job, or forged: reading it takes time */
        if (job->noise > NOISE_MAX)
            coproc_break(k->coproc, "it sent too many lines that are not an answer");
        return;
    }
    const char *status = text_in(answer, "status");
    if (strcmp(status, "died") == 0) {
        snprintf(job->died, sizeof(job->died), "%s", text_in(answer, "error"));
        coproc_kill(k->coproc); /* job_ended() follows */
    } else if (*status) {
        coproc_answered(k->coproc);
        job_done(job);
    } else {
        for (size_t i = 0; i < sizeof(code_events) / sizeof(*code_events); i++)
            if (strcmp(text_in(answer, "event"), code_events[i].event) == 0)
                code_events[i].tell(job, answer);
    }
}

static void machine_came(void *arg, const struct machine_view *v, const struct err *err) {
    bool *runs = arg;
    *runs = !err && strcmp(v->state, "running") == 0;
}

static void job_ended(void *arg, const struct exec_view *view, const struct err *err) {
    struct code_context *k = arg;
    struct code_job *job = k->jobs;
    const char *program = interpreter_program(k->language->interpreter);
    const char *fault = coproc_fault(k->coproc);
    bool runs = false;
    char why[400];
    service_show(k->code->service, &k->who, k->machine, machine_came, &runs); /* answers at once */
    if (job->work == CODE_RESTART || job->work == CODE_REMOVE) {
        job_done(job);
    } else if (!runs && job->call && job->call->begun) {
        envd_drop(job_let_go(job)); /* by that a client knows that its sandbox has ended */
        job_end(job);
    } else if (view && view->status == 127) {
        snprintf(why, sizeof(why), "the sandbox has no program '%s', which runs %s", program,
                 k->language->name);
        job_failed(job, "KernelNotFound", why);
    } else {
        snprintf(why, sizeof(why), "the interpreter ended: %s",
                 err            ? err->text
                 : fault        ? fault
                 : job->died[0] ? job->died
                 : view->error  ? view->error
                 : view->reason ? view->reason
                                : "unknown reason");
        job_failed(job, "UnexpectedEndOfExecution", why);
    }
}

/* ---- the client leaves ---- */

static void job_late(void *arg) {
    struct code_context *k = arg;
    if (k->coproc)
        coproc_kill(k->coproc);
}

/* A paused machine keeps the code as it is: it goes on when the machine does. */
static void running_left(struct code_job *job) {
    struct code_context *k = job->context;
    bool runs = false;
    service_show(k->code->service, &k->who, k->machine, machine_came, &runs); /* answers at once */
    envd_drop(job_let_go(job));
    if (!runs) {
        job_end(job);
        return;
    }
    if (job->work != CODE_EXECUTE)
        return;
    coproc_pause(k->coproc, false); /* what comes is read and dropped */
    if (interpreter_interrupt(k->coproc))
        loop_timer_start(k->limit, GRACE_MS, 0);
    else
        coproc_kill(k->coproc);
}

static void job_left(struct envd_call *c) {
    struct code_job *job = c->state, **at = &job->context->jobs;
    if (*at == job) {
        running_left(job);
        return;
    }
    while (*at != job)
        at = &(*at)->next;
    *at = job->next;
    free(job);
    envd_drop(c);
}

static void job_drained(struct envd_call *c) {
    struct code_job *job = c->state;
    if (job->context->jobs == job && job->context->coproc)
        coproc_pause(job->context->coproc, false);
}

/* ---- the beginning ---- */

static bool job_ask(struct code_job *job) {
    const struct code_context *k = job->context;
    const json_t *json = job->call->json;
    const struct interpreter_request r = {.id = job->number.text,
                                          .code = text_in(json, "code"),
                                          .ping = job->work == CODE_START,
                                          .stream = job->work == CODE_EXECUTE,
                                          .typescript = k->language->typescript,
                                          .bash = k->language->bash,
                                          .most = 64 << 10,
                                          .env = json_object_get(json, "env_vars")};
    return interpreter_ask(k->coproc, &r);
}

/* Ends the interpreter, if there is one: job_ended() follows. */
static void job_stop(struct code_job *job, struct exec *x, const struct coproc_place *place,
                     const struct coproc_options *options, const struct coproc_events *events) {
    struct code_context *k = job->context;
    if (!x) {
        job_done(job);
        return;
    }
    k->coproc = coproc_adopt(place, x, options, events);
    coproc_kill(k->coproc);
}

static void job_begin(struct code_context *k) {
    struct code_job *job = k->jobs;
    const struct coproc_place place = {k->code->loop, k->code->service, &k->who};
    const struct coproc_events events = {k, job_line, job_ended};
    const char *pairs[] = {"HOME", k->home};
    char name[STORE_NAME_SIZE];
    struct coproc_found found;
    struct err err;
    snprintf(name, sizeof(name), CODE_PREFIX "%s.%s", k->language->name, k->id);
    const struct coproc_options options = {.machine = k->machine,
                                           .name = name,
                                           .cwd = k->cwd,
                                           .user = k->user[0] ? k->user : NULL,
                                           .pairs = pairs,
                                           .pair_count = sizeof(pairs) / sizeof(*pairs),
                                           .line_max = INTERPRETER_LINE_MAX};
    if (coproc_find(&place, k->machine, CODE_PREFIX, name, &found, &err) < 0) {
        job_failed(job, "UnexpectedEndOfExecution", err.text);
        return;
    }
    if (job->work == CODE_RESTART || job->work == CODE_REMOVE) {
        job_stop(job, found.exec, &place, &options, &events);
        return;
    }
    k->coproc = found.exec ? coproc_adopt(&place, found.exec, &options, &events)
                           : interpreter_new(&place, k->language->interpreter, &options, &events);
    if (!job_ask(job))
        coproc_break(k->coproc, "it does not read its input");
}

void code_submit(struct code_context *k, struct envd_call *c, enum code_work work) {
    struct code_job **at = &k->jobs;
    size_t waiting = 0;
    for (; *at; at = &(*at)->next)
        waiting++;
    if (waiting >= CODE_WAITING) {
        envd_refuse(c, 429, "%zu requests wait for context '%s', which is the limit", waiting,
                    k->id);
        return;
    }
    struct code_job *job = xnew(struct code_job);
    *job = (struct code_job){.context = k, .call = c, .work = work, .number = id_new('k')};
    *at = job;
    if (!k->limit)
        k->limit = loop_timer_new(k->code->loop, job_late, k);
    c->state = job;
    c->on_gone = job_left;
    c->on_drain = job_drained;
    c->keepalive = "{\"type\":\"keepalive\"}";
    if (!waiting)
        job_begin(k);
}
