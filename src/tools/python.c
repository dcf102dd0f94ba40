/*
 * The tool python: an interpreter in the machine that keeps its variables between calls.
 *
 * It is a command of the machine (interpreter.h), which ends with the machine's processes. A
 * daemon that was restarted finds it again by its name. All its answers are untrusted.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "service/steps/steps.h"
#include "tools/interpreter.h"
#include "tools/picture.h"
#include "tools/requests.h"
#include "tools/toolbox.h"

enum {
    PYTHONS_MAX = 8, /* interpreters per machine */
    PYTHON_GRACE_MS = 5000,
    PYTHON_TICK_MS = 1000,
    PYTHON_NOISE_MAX = 16 << 20, /* lines of one call that are not its answer */
    PYTHON_VALUES_MAX = 50000,   /* an answer with all its tables has fewer */
    PYTHON_IMAGE_MAX = 1 << 20,
    PYTHON_TABLES = 4,
    PYTHON_ROWS = 100,
    PYTHON_COLUMNS = 30,
};

#define PYTHON_PREFIX "python."

enum python_phase { PYTHON_RUNS, PYTHON_INTERRUPTED, PYTHON_KILLED };

struct python {
    struct python *next, **at;
    struct toolbox *box;
    char machine[ID_SIZE], session[24];
    struct coproc *coproc; /* NULL: no interpreter */
    struct act *act;       /* the call in progress, or NULL */
    struct id number;      /* of the present request; an answer must name it */
    enum python_phase phase;
    bool fresh;     /* the interpreter has not answered yet */
    bool restart;   /* the interpreter ends, and another one is started for the call */
    size_t noise;   /* bytes of this call that were not its answer */
    json_t *answer; /* an answer that waits for the end of the interpreter */
    uint64_t began_ms;
    struct loop_timer *limit, *tick;
};

static void python_begin(struct python *p);

/* ---- interpreters of a client ---- */

static void python_free(struct python *p) {
    *p->at = p->next;
    if (p->next)
        p->next->at = p->at;
    if (p->coproc)
        coproc_free(p->coproc);
    json_decref(p->answer);
    loop_timer_free(p->limit);
    loop_timer_free(p->tick);
    free(p);
}

void pythons_kill(struct toolbox *b) {
    for (struct python *p = b->pythons; p; p = p->next)
        if (p->coproc)
            coproc_kill(p->coproc);
}

void pythons_free(struct toolbox *b) {
    while (b->pythons)
        python_free(b->pythons);
}

static void pythons_sweep(struct toolbox *b) {
    for (struct python *p = b->pythons, *next; p; p = next) {
        next = p->next;
        if (!p->act && (!p->coproc || coproc_is_over(p->coproc)))
            python_free(p);
    }
}

static void python_late(void *arg);
static void python_tick(void *arg);

static struct python *python_get(struct toolbox *b, const char *machine, const char *session) {
    pythons_sweep(b);
    for (struct python *p = b->pythons; p; p = p->next)
        if (strcmp(p->machine, machine) == 0 && strcmp(p->session, session) == 0)
            return p;
    struct python *p = xnew(struct python);
    *p = (struct python){.box = b, .next = b->pythons, .at = &b->pythons};
    snprintf(p->machine, sizeof(p->machine), "%s", machine);
    snprintf(p->session, sizeof(p->session), "%s", session);
    p->limit = loop_timer_new(b->loop, python_late, p);
    p->tick = loop_timer_new(b->loop, python_tick, p);
    if (p->next)
        p->next->at = &p->next;
    b->pythons = p;
    return p;
}

/* ---- the end of a call ---- */

/* Ends the call in progress: then the interpreter may be used by the next one. */
static struct act *python_let_go(struct python *p) {
    struct act *a = TAKE(p->act);
    loop_timer_stop(p->limit);
    loop_timer_stop(p->tick);
    a->user = NULL;
    a->cancel = NULL;
    if (p->coproc)
        coproc_listen(p->coproc, false);
    return a;
}

static void python_fail(struct python *p, const struct err *err) {
    act_fail(python_let_go(p), err);
}

static bool is_list_of(const json_t *list, size_t max, bool (*is)(const json_t *)) {
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!is(json_array_get(list, i)))
            return false;
    return json_is_array(list) && json_array_size(list) <= max;
}

static bool is_label(const json_t *value) {
    return json_is_string(value);
}

static bool is_cell(const json_t *value) {
    return !json_is_array(value) && !json_is_object(value);
}

static bool is_row(const json_t *value) {
    return is_list_of(value, PYTHON_COLUMNS, is_cell);
}

static bool is_table(const json_t *table) {
    return is_list_of(json_object_get(table, "columns"), PYTHON_COLUMNS, is_label) &&
           is_list_of(json_object_get(table, "index"), PYTHON_ROWS, is_label) &&
           is_list_of(json_object_get(table, "rows"), PYTHON_ROWS, is_row) &&
           json_integer_value(json_object_get(table, "row_count")) >= 0 &&
           json_integer_value(json_object_get(table, "column_count")) >= 0 &&
           json_object_size(table) == 5;
}

static size_t python_images(const json_t *answer, struct act_image ret[PYTHON_IMAGES]) {
    const json_t *list = json_object_get(answer, "images");
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(list) && n < PYTHON_IMAGES; i++) {
        const char *text = json_string_value(json_array_get(list, i));
        if (text && picture_is_png(text, PYTHON_IMAGE_MAX))
            ret[n++] = (struct act_image){text, "image/png"};
    }
    return n;
}

static char *python_tables(const json_t *answer) {
    const json_t *list = json_object_get(answer, "tables");
    json_t *kept DEFER(json_decrefp) = json_array();
    for (size_t i = 0; i < json_array_size(list) && json_array_size(kept) < PYTHON_TABLES; i++)
        if (is_table(json_array_get(list, i)))
            json_array_append(kept, json_array_get(list, i));
    return json_dumps(kept, JSON_COMPACT);
}

static const char *python_text(const json_t *answer, const char *name) {
    return json_string_value(json_object_get(answer, name));
}

static uint64_t python_count(const json_t *answer, const char *name) {
    json_int_t n = json_integer_value(json_object_get(answer, name));
    return n > 0 ? (uint64_t)n : 0;
}

/* The driver's word, unless it is none that the output schema has. */
static const char *python_status(const json_t *answer) {
    static const char *const words[] = {"ok", "error", "interrupted", "exit", "killed", "died"};
    const char *status = python_text(answer, "status");
    for (size_t i = 0; status && i < sizeof(words) / sizeof(*words); i++)
        if (strcmp(words[i], status) == 0)
            return words[i];
    return "error";
}

static void python_report(struct python *p, const json_t *answer) {
    struct act_image images[PYTHON_IMAGES];
    char *tables DEFER_FREE = python_tables(answer);
    const char *out = python_text(answer, "stdout"), *errors = python_text(answer, "stderr");
    char machine[ID_SIZE], session[sizeof(p->session)];
    snprintf(machine, sizeof(machine), "%s", p->machine);
    snprintf(session, sizeof(session), "%s", p->session);
    struct python_output view = {
        .machine = machine,
        .session = session,
        .status = python_status(answer),
        .value = python_text(answer, "value"),
        .error = python_text(answer, "error"),
        .stdout_text = out ? out : "",
        .stderr_text = errors ? errors : "",
        .stdout_bytes = python_count(answer, "stdout_bytes"),
        .stderr_bytes = python_count(answer, "stderr_bytes"),
        .left_out =
            python_count(answer, "stdout_left_out") + python_count(answer, "stderr_left_out"),
        .images = python_images(answer, images),
        .tables = tables ? tables : "[]",
        .fresh = p->fresh,
        .wall_ms = loop_now_ms(p->box->loop) - p->began_ms,
    };
    p->fresh = false;
    act_done_images(python_let_go(p), &view, images, view.images);
}

/* ---- answers, and the end of an interpreter ---- */

static bool python_is_leaving(const json_t *answer) {
    const char *status = python_status(answer);
    return strcmp(status, "exit") == 0 || strcmp(status, "died") == 0;
}

static void python_line(void *arg, const char *line, size_t n) {
    struct python *p = arg;
    if (!p->act || p->answer || p->restart)
        return;
    json_t *answer DEFER(json_decrefp) = coproc_json(p->coproc, line, n, PYTHON_VALUES_MAX);
    const char *number = python_text(answer, "id");
    if (!number || strcmp(number, p->number.text) != 0) {
        p->noise += n + 64; /* the answer of an earlier request, or noise: reading it takes time */
        if (p->noise > PYTHON_NOISE_MAX)
            coproc_break(p->coproc, "it sent too many lines that are not an answer");
        return;
    }
    if (!python_is_leaving(answer)) {
        coproc_answered(p->coproc);
        python_report(p, answer);
        return;
    }
    p->answer = json_incref(answer); /* python_ended() follows: then another one can be started */
    coproc_kill(p->coproc);
}

static void python_missing(struct python *p) {
    struct err err;
    err_set(&err, ERR_UNSUPPORTED, "machine '%s' has no program 'python3'", p->machine);
    err_remedy(&err, "install it with the tool install (apt, package python3), or use an image "
                     "that has it");
    python_fail(p, &err);
}

static bool python_was_missing(const struct python *p, const struct exec_view *view) {
    return p->fresh && p->phase == PYTHON_RUNS &&
           (view->status == 127 || strcmp(view->state, "failed") == 0);
}

/* The interpreter ended without an answer: the report says why. */
static void python_lost(struct python *p, const struct exec_view *view, const char *fault) {
    char why[200];
    bool killed = p->phase == PYTHON_KILLED;
    if (killed)
        snprintf(why, sizeof(why), "the code did not stop %d s after its interruption",
                 PYTHON_GRACE_MS / 1000);
    else
        snprintf(why, sizeof(why), "the interpreter ended: %s",
                 fault          ? fault
                 : view->error  ? view->error
                 : view->reason ? view->reason
                                : "unknown reason");
    json_t *answer DEFER(json_decrefp) =
        json_pack("{s:s, s:s}", "status", killed ? "killed" : "died", "error", why);
    python_report(p, answer);
}

static void python_ended(void *arg, const struct exec_view *view, const struct err *err) {
    struct python *p = arg;
    struct coproc *ended = TAKE(p->coproc);
    json_t *answer DEFER(json_decrefp) = TAKE(p->answer);
    if (!p->act)
        ; /* nobody waits */
    else if (p->restart && !err)
        python_begin(p);
    else if (answer)
        python_report(p, answer);
    else if (err)
        python_fail(p, err);
    else if (python_was_missing(p, view))
        python_missing(p);
    else
        python_lost(p, view, coproc_fault(ended));
    coproc_free(ended);
}

/* ---- time ---- */

/* First the code is interrupted, so that its variables stay; then the interpreter is killed. */
static void python_late(void *arg) {
    struct python *p = arg;
    if (!p->coproc)
        return;
    if (p->phase == PYTHON_RUNS && interpreter_interrupt(p->coproc)) {
        p->phase = PYTHON_INTERRUPTED;
        loop_timer_start(p->limit, PYTHON_GRACE_MS, 0);
    } else {
        p->phase = PYTHON_KILLED;
        coproc_kill(p->coproc);
    }
}

static void python_tick(void *arg) {
    struct python *p = arg;
    const struct act_events *events = &p->act->events;
    if (events->progress)
        events->progress(events->arg, (double)(loop_now_ms(p->box->loop) - p->began_ms) / 1000, "");
}

static void python_cancel(struct act *a) {
    struct python *p = a->user;
    if (p->phase == PYTHON_RUNS)
        python_late(p);
}

/* ---- a call ---- */

/* The command's name: that of the connection and of the session. */
static void python_name(const struct python *p, char *ret, size_t size) {
    const char *key = p->box->key[0] ? p->box->key : "run";
    snprintf(ret, size, PYTHON_PREFIX "%.30s.%s", key, p->session);
}

/* Finds the interpreter, or starts one. */
static int python_bring(struct python *p, struct err *err) {
    static const char *const pairs[] = {"CI", "1", "NO_COLOR", "1", "GIT_PAGER", "cat"};
    const struct coproc_place place = toolbox_place(p->box);
    char name[STORE_NAME_SIZE];
    python_name(p, name, sizeof(name));
    struct coproc_found found;
    const struct coproc_events events = {p, python_line, python_ended};
    const struct coproc_options options = {.machine = p->machine,
                                           .name = name,
                                           .pairs = pairs,
                                           .pair_count = sizeof(pairs) / sizeof(*pairs),
                                           .line_max = INTERPRETER_LINE_MAX};
    if (coproc_find(&place, p->machine, PYTHON_PREFIX, name, &found, err) < 0)
        return -1;
    if (found.exec) {
        p->coproc = coproc_adopt(&place, found.exec, &options, &events);
        return 0;
    }
    if (found.count >= PYTHONS_MAX) {
        err_set(err, ERR_LIMIT, "machine '%s' runs %zu Python interpreters, which is the limit",
                p->machine, found.count);
        return err_remedy(err, "use one of them, or end one with the code exit()");
    }
    p->fresh = true;
    p->coproc = interpreter_new(&place, INTERPRETER_PYTHON, &options, &events);
    return 0;
}

static void python_ask(struct python *p) {
    const struct python_input *in = p->act->request;
    p->number = id_new('k');
    const struct interpreter_request request = {.id = p->number.text,
                                                .code = in->code,
                                                .most = in->max_output.is ? in->max_output.value
                                                                          : OUTPUT_DEFAULT};
    struct err err;
    p->noise = 0;
    if (!interpreter_ask(p->coproc, &request)) {
        err_set(&err, ERR_BUSY, "the interpreter does not read its input");
        err_remedy(&err, "start a new one with \"restart\":true");
        python_fail(p, &err);
        return;
    }
    p->phase = PYTHON_RUNS;
    loop_timer_start(p->limit, in->timeout_ms.is ? in->timeout_ms.value : PYTHON_TIMEOUT_MS, 0);
}

static void python_begin(struct python *p) {
    const struct python_input *in = p->act->request;
    bool again = p->restart; /* the old interpreter has ended */
    struct err err;
    p->restart = false;
    if (!p->coproc && python_bring(p, &err) < 0) {
        python_fail(p, &err);
        return;
    }
    coproc_listen(p->coproc, true);
    if (in->restart && !again && !p->fresh) {
        p->restart = true;
        coproc_kill(p->coproc);
    } else {
        python_ask(p);
    }
}

static bool is_session_name(const char *name) {
    return *name && !name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                       "0123456789_-")];
}

static int python_check(const struct python_input *in, struct err *err) {
    if (!in->code && !in->restart)
        return err_set(err, ERR_INVALID, "argument 'code' is required");
    if (in->session && !is_session_name(in->session))
        return err_set(err, ERR_INVALID,
                       "argument 'session' must consist of letters, digits, '_' and '-'");
    return 0;
}

/* Earlier steps are taken: they do not contain what this code changes. */
static void python_now(void *arg) {
    struct act *a = arg;
    const struct python_input *in = a->request;
    struct err err;
    if (a->cancelled || python_check(in, &err) < 0) {
        if (a->cancelled)
            err_set(&err, ERR_GONE, "the tool call was cancelled");
        act_fail(a, &err);
        return;
    }
    struct python *p = python_get(a->box, a->machine, in->session ? in->session : "main");
    if (p->act) {
        err_set(&err, ERR_BUSY, "interpreter '%s' runs the code of another call", p->session);
        err_remedy(&err, "wait for it, or name another one with 'session'");
        act_fail(a, &err);
        return;
    }
    p->act = a;
    a->user = p;
    a->cancel = python_cancel;
    p->began_ms = loop_now_ms(act_loop(a));
    if (a->events.progress)
        loop_timer_start(p->tick, PYTHON_TICK_MS, PYTHON_TICK_MS);
    python_begin(p);
}

void tool_python(struct act *a) {
    service_settled(act_service(a), act_who(a), a->machine, python_now, a);
}
