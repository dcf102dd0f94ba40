#include "tools/devtools.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "service/exec/exec.h"

enum {
    BROWSERS_MAX = 4,      /* per machine */
    MESSAGE_MAX = 8 << 20, /* a screenshot in base64 is the largest */
    VALUES_MAX = 20000,
    NOISE_MAX = 16 << 20, /* bytes of a connection that are not an answer */
    REQUEST_MAX = 1 << 20,
    ID_LENGTH = 64,
    NOT_INSTALLED = 127,
};

#define BROWSER_PREFIX "browser."
#define BROWSER_DIR "/tmp/.carrel-browser/"

static const char start_script[] =
#include "tools/browser.inc"
    ;

struct devtools {
    struct coproc *coproc;
    struct devtools_events events;
    char machine[ID_SIZE], session[ID_LENGTH + 1];
    json_int_t last, open; /* numbers of requests; open: the one whose answer is awaited, or 0 */
    devtools_fn *fn;
    size_t noise;
    bool fresh;
};

bool devtools_is_id(const char *text) {
    size_t n = text ? strlen(text) : 0;
    return n > 0 && n <= ID_LENGTH && !text[strspn(text, "0123456789abcdefABCDEF-")];
}

/* ---- messages ---- */

static bool devtools_is_ours(const struct devtools *d, const json_t *message) {
    const char *session = json_string_value(json_object_get(message, "sessionId"));
    return !session || strcmp(session, d->session) == 0;
}

static void devtools_answer(struct devtools *d, const json_t *message) {
    const json_t *result = json_object_get(message, "result");
    const char *error =
        json_string_value(json_object_get(json_object_get(message, "error"), "message"));
    devtools_fn *fn = TAKE(d->fn);
    d->open = 0;
    if (json_is_object(result))
        fn(d->events.arg, result, NULL);
    else
        fn(d->events.arg, NULL, error ? error : "no reason");
}

static void devtools_line(void *arg, const char *line, size_t n) {
    struct devtools *d = arg;
    json_t *message DEFER(json_decrefp) = coproc_json(d->coproc, line, n, VALUES_MAX);
    const char *method = json_string_value(json_object_get(message, "method"));
    if (d->open && json_integer_value(json_object_get(message, "id")) == d->open &&
        devtools_is_ours(d, message)) {
        devtools_answer(d, message);
        return;
    }
    d->noise += n + 64;
    if (d->noise > NOISE_MAX)
        coproc_break(d->coproc, "it sent too many messages");
    else if (method && devtools_is_ours(d, message))
        d->events.event(d->events.arg, method, json_object_get(message, "params"));
}

static void devtools_send(struct devtools *d, const char *method, json_t *params) {
    json_t *message DEFER(json_decrefp) =
        json_pack("{s:I, s:s, s:o}", "id", ++d->last, "method", method, "params",
                  params ? params : json_object());
    if (d->session[0])
        json_object_set_new(message, "sessionId", json_string(d->session));
    char *text DEFER_FREE = json_dumps(message, JSON_COMPACT);
    if (!text || strlen(text) > REQUEST_MAX || !coproc_send(d->coproc, text, strlen(text) + 1))
        coproc_break(d->coproc, "it does not read its requests");
}

void devtools_ask(struct devtools *d, const char *method, json_t *params, devtools_fn *fn) {
    d->fn = fn;
    devtools_send(d, method, params);
    d->open = d->last;
}

void devtools_tell(struct devtools *d, const char *method, json_t *params) {
    devtools_send(d, method, params);
}

void devtools_attach(struct devtools *d, const char *session) {
    snprintf(d->session, sizeof(d->session), "%s", session);
}

/* ---- start and end ---- */

static void devtools_ended(void *arg, const struct exec_view *view, const struct err *failed) {
    struct devtools *d = arg;
    const char *fault = coproc_fault(d->coproc);
    struct err err;
    char said[200];
    if (failed) {
        d->events.ended(d->events.arg, failed);
        return;
    }
    coproc_last_error(d->coproc, said, sizeof(said));
    bool exited = view->reason && strcmp(view->reason, "exit") == 0;
    if (d->fresh && view->status == NOT_INSTALLED) {
        err_set(&err, ERR_UNSUPPORTED, "machine '%s' does not have Chromium", d->machine);
        err_remedy(&err, "install the Debian package chromium in it, or use an image that has it, "
                         "such as examples/images/browser");
    } else {
        err_set(&err, ERR_INTERNAL, "the browser of machine '%s' ended: %s", d->machine,
                fault               ? fault
                : exited && said[0] ? said
                : view->reason      ? view->reason
                                    : "unknown reason");
        err_remedy(&err, "open the page again; a browser needs about 500 MB of memory");
    }
    d->events.ended(d->events.arg, &err);
}

/* Numbers of requests start anywhere, so that an answer to an earlier connection is none of ours.
 */
static json_int_t devtools_first(void) {
    uint32_t first = 0;
    if (getrandom(&first, sizeof(first), 0) != sizeof(first))
        abort();
    return 1 + (first >> 4);
}

static struct devtools *devtools_new(const char *machine, const struct devtools_events *events) {
    struct devtools *d = xnew(struct devtools);
    *d = (struct devtools){.events = *events, .last = devtools_first()};
    snprintf(d->machine, sizeof(d->machine), "%s", machine);
    return d;
}

static struct coproc *devtools_start(const struct coproc_place *place,
                                     const struct coproc_options *options,
                                     const struct coproc_events *events) {
    char dir[sizeof(BROWSER_DIR) + STORE_NAME_SIZE];
    struct coproc_options o = *options;
    snprintf(dir, sizeof(dir), BROWSER_DIR "%s", o.name);
    const char *const argv[] = {"/bin/sh", "-c", start_script, "carrel-browser", dir, NULL};
    o.argv = argv;
    return coproc_new(place, &o, events);
}

/* The name of the command. */
static void devtools_name(const char *name, char ret[STORE_NAME_SIZE]) {
    snprintf(ret, STORE_NAME_SIZE, BROWSER_PREFIX "%.40s", name);
}

static int devtools_may_start(const char *machine, size_t running, bool wanted, struct err *err) {
    if (!wanted)
        return err_set(err, ERR_NOT_FOUND, "machine '%s' does not run this browser", machine);
    if (running < BROWSERS_MAX)
        return 0;
    err_set(err, ERR_LIMIT, "machine '%s' runs %zu browsers, which is the limit", machine, running);
    return err_remedy(err, "end one with the action close, or kill its command");
}

struct devtools *devtools_open(const struct coproc_place *place, const char *machine,
                               const char *name, const struct devtools_events *events, bool *fresh,
                               struct err *err) {
    char command[STORE_NAME_SIZE];
    struct coproc_found found;
    devtools_name(name, command);
    if (coproc_find(place, machine, BROWSER_PREFIX, command, &found, err) < 0)
        return NULL;
    if (!found.exec && devtools_may_start(machine, found.count, fresh != NULL, err) < 0)
        return NULL;
    struct devtools *d = devtools_new(machine, events);
    const struct coproc_events heard = {d, devtools_line, devtools_ended};
    /* Titles and texts of pages may contain NUL. A string ends there. */
    const struct coproc_options options = {.machine = machine,
                                           .name = command,
                                           .line_max = MESSAGE_MAX,
                                           .json_flags = JSON_ALLOW_NUL,
                                           .zero_ends = true};
    d->fresh = !found.exec;
    if (fresh)
        *fresh = d->fresh;
    d->coproc = found.exec ? coproc_adopt(place, found.exec, &options, &heard)
                           : devtools_start(place, &options, &heard);
    /* Ends a request that another daemon may have begun. */
    (void)!coproc_send(d->coproc, "", 1);
    return d;
}

void devtools_close(struct devtools *d) {
    if (d->session[0] && !coproc_is_over(d->coproc)) {
        char session[sizeof(d->session)];
        memcpy(session, d->session, sizeof(session));
        d->session[0] = '\0';
        devtools_tell(d, "Target.detachFromTarget", json_pack("{s:s}", "sessionId", session));
    }
    if (!coproc_is_over(d->coproc))
        coproc_answered(d->coproc);
    coproc_free(d->coproc);
    free(d);
}

void devtools_break(struct devtools *d, const char *reason) {
    coproc_break(d->coproc, reason);
}

void devtools_kill(const struct coproc_place *place, const char *machine, const char *name) {
    char command[STORE_NAME_SIZE];
    struct coproc_found found;
    struct err err;
    devtools_name(name, command);
    if (coproc_find(place, machine, BROWSER_PREFIX, command, &found, &err) < 0 || !found.exec)
        return;
    struct coproc *c = coproc_adopt(place, found.exec, &(struct coproc_options){.line_max = 1},
                                    &(struct coproc_events){0});
    coproc_kill(c);
    coproc_free(c);
}
