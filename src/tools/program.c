/* The tool program: runs a WebAssembly module in a cell (a sandbox), or a script. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/defer.h"
#include "service/exec/programs.h"
#include "service/taint.h"
#include "tools/requests.h"
#include "tools/toolbox.h"

/* Writes the errors of an invalid program, one per line. */
static void put_diagnostics(const json_t *answer, struct buf *out) {
    size_t i;
    json_t *d;
    json_array_foreach(json_object_get(answer, "diagnostics"), i, d) {
        const char *hint = json_string_value(json_object_get(d, "hint"));
        (void)!buf_addf(
            out, "%sline %" JSON_INTEGER_FORMAT " column %" JSON_INTEGER_FORMAT ": %s%s%s",
            i ? "\n" : "", json_integer_value(json_object_get(d, "line")),
            json_integer_value(json_object_get(d, "column")),
            json_string_value(json_object_get(d, "message")), hint ? ": " : "", hint ? hint : "");
    }
}

static void refused(struct act *a, const json_t *answer) {
    const json_t *e = json_object_get(answer, "error");
    const char *message = json_string_value(json_object_get(e, "message"));
    struct buf detail DEFER(buf_done) = BUF(16 << 10);
    struct err err;
    err_set(&err, ERR_INVALID, "%s", message ? message : "the program is not valid");
    const char *remedy = json_string_value(json_object_get(e, "remedy"));
    if (remedy && *remedy)
        err_remedy(&err, "%s", remedy);
    put_diagnostics(answer, &detail);
    act_fail_with(a, &err, detail.data);
}

/* Copies a text of the answer. Bytes that are not text are U+FFFD in it, and so is NUL here. */
static char *program_plain(const json_t *answer, const char *name) {
    static const char other[] = "\xef\xbf\xbd";
    const json_t *value = json_object_get(answer, name);
    const char *s = json_string_value(value);
    struct buf out DEFER(buf_done) = BUF(3 * PROGRAM_ANSWER_MAX);
    for (size_t i = 0, n = s ? json_string_length(value) : 0; i < n; i++)
        if (!(s[i] ? buf_add(&out, s + i, 1) : buf_add(&out, other, sizeof(other) - 1)))
            return NULL;
    return s ? (out.data ? buf_take(&out) : strdup("")) : NULL;
}

static char *dumped(const json_t *answer, const char *name) {
    const json_t *value = json_object_get(answer, name);
    return value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
}

/*
 * Reads the JSON text that the program passed to carrel.1.result. It is read by itself, so that a
 * value which this parser refuses is not an error of the whole answer.
 */
static int program_value(const json_t *answer, char **ret, struct err *err) {
    const char *text = json_string_value(json_object_get(answer, "result"));
    json_t *value = text ? json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;
    if (text && !value)
        return err_set(err, ERR_INVALID,
                       "the result of the program is JSON with a number or character that is not "
                       "supported");
    *ret = value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    json_decref(value);
    return 0;
}

/* The answer of the cell is untrusted JSON: absent members become absent fields of the result. */
static void ran(void *arg, const struct program_result *result, const struct err *err) {
    struct act *a = arg;
    struct err why;
    json_t *answer = result ? json_loads(result->json, JSON_ALLOW_NUL, NULL) : NULL;
    const char *outcome = json_string_value(json_object_get(answer, "outcome"));
    if (result && !answer)
        err = (err_set(&why, ERR_INTERNAL,
                       "the cell (sandbox of the program) sent a malformed answer"),
               &why);
    if (err) {
        act_fail(a, err);
    } else if (!outcome) {
        refused(a, answer);
    } else {
        char *results DEFER_FREE = dumped(answer, "results");
        char *frames DEFER_FREE = dumped(answer, "frames");
        char *exit_code DEFER_FREE = dumped(answer, "exit_code");
        char *output DEFER_FREE = program_plain(answer, "output");
        char *value DEFER_FREE = NULL;
        if (program_value(answer, &value, &why) < 0) {
            act_fail(a, &why);
            json_decref(answer);
            return;
        }
        act_done(a, &(struct program_output){
                        .outcome = outcome,
                        .results = results,
                        .result = value,
                        .exit_code = exit_code,
                        .fuel = (uint64_t)json_integer_value(json_object_get(answer, "fuel")),
                        .output = output,
                        .trap = json_string_value(json_object_get(answer, "trap")),
                        .frames = frames,
                        .log = result->log,
                    });
    }
    json_decref(answer);
}

static void stop(struct act *a) {
    program_kill(a->user);
}

bool has_program(const struct toolbox *box) {
    return service_has_programs(box->service);
}

static const char *program_text(const struct program_input *in) {
    const char *const texts[] = {in->wat, in->text, in->python, in->javascript};
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        if (texts[i])
            return texts[i];
    return "";
}

/* machine: the id of the one whose capabilities count; NULL: none. */
static void program_start(struct act *a, const char *machine) {
    const struct program_input *in = a->request;
    const struct program_request r = {.text = program_text(in),
                                      .script = in->python       ? "x.py"
                                                : in->javascript ? "x.js"
                                                                 : NULL,
                                      .allow = in->allow,
                                      .machine = machine,
                                      .invoke = in->invoke,
                                      .args = in->args,
                                      .input = in->input,
                                      .fuel = in->fuel,
                                      .memory = in->memory_pages,
                                      .key =
                                          a->events.key && a->events.key[0] ? a->events.key : NULL};
    struct err err;
    a->user = service_program(act_service(a), act_who(a), &r, ran, a, &err);
    if (a->user)
        a->cancel = stop;
    else
        act_fail(a, &err);
}

static void program_woken(void *arg, const struct machine_view *view, const struct err *err) {
    struct act *a = arg;
    struct err gone;
    (void)view;
    if (!err && a->cancelled)
        err = (err_set(&gone, ERR_GONE, "the tool call was cancelled"), &gone);
    if (err)
        act_fail(a, err);
    else
        program_start(a, a->machine);
}

/*
 * A program that runs in the machine can write data there that the client has seen, and its result
 * is text of the machine: both are tainted as by the tool exec.
 */
static void program_begin(struct act *a, const char *machine) {
    const struct program_input *in = a->request;
    struct err err;
    if (!machine || !program_needs_machine(&in->allow)) {
        program_start(a, machine);
        return;
    }
    snprintf(a->machine, sizeof(a->machine), "%s", machine);
    if (service_taint_seen(act_service(a), act_who(a), a->box->saw, a->machine, &err) < 0)
        act_fail(a, &err);
    else
        service_wake(act_service(a), act_who(a), a->machine, program_woken, a);
}

static void program_machine_shown(void *arg, const struct machine_view *view,
                                  const struct err *err) {
    struct act *a = arg;
    if (toolbox_check_own(a, view, err))
        program_begin(a, view->id);
}

void tool_program(struct act *a) {
    const struct program_input *in = a->request;
    struct err err;
    if (!!in->wat + !!in->text + !!in->python + !!in->javascript != 1) {
        err_set(&err, ERR_INVALID,
                "a program requires field 'wat', or else 'python' or 'javascript'");
        act_fail(a, &err);
    } else if (in->machine) {
        service_show(act_service(a), act_who(a), in->machine, program_machine_shown, a);
    } else {
        program_begin(a, a->box->machine[0] ? a->box->machine : NULL);
    }
}
