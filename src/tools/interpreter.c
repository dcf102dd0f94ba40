#include "tools/interpreter.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/jot.h"

static const char python_driver[] =
#include "tools/python_driver.inc"
    ;
static const char javascript_driver[] =
#include "tools/javascript_driver.inc"
    ;
static const char javascript_child[] =
#include "tools/javascript_child.inc"
    ;

/* The first line of input is the driver, as a JSON string. */
static const char python_boot[] = "import json,sys;exec(compile(json.loads(sys.stdin.buffer.raw."
                                  "readline()),'<carrel>','exec'))";
static const char javascript_boot[] =
    "const f=require('fs'),b=Buffer.alloc(1),l=[];for(;;){let n=0;try{n=f.readSync(0,b)}catch(e){"
    "if(e.code!=='EAGAIN')throw e;continue}if(!n||b[0]===10)break;l.push(b[0])}"
    "eval(JSON.parse(Buffer.from(l).toString()))";

static const struct {
    const char *program, *argv[4], *driver;
    const char *name, *child; /* a constant that the driver expects, and its text; or NULL */
} interpreters[] = {
    [INTERPRETER_PYTHON] = {"python3", {"python3", "-c", python_boot}, python_driver, NULL, NULL},
    [INTERPRETER_JAVASCRIPT] =
        {"node", {"node", "-e", javascript_boot}, javascript_driver, "CHILD", javascript_child},
};

const char *interpreter_program(enum interpreter_language language) {
    return interpreters[language].program;
}

/* The text of a driver, with its constant. */
static char *driver_text(enum interpreter_language language) {
    const char *name = interpreters[language].name;
    struct buf text DEFER(buf_done) = BUF(1 << 20), quoted DEFER(buf_done) = BUF(1 << 20);
    struct jot j = JOT(&quoted);
    if (name)
        jot_string(&j, NULL, interpreters[language].child);
    if (j.failed || (name && !buf_addf(&text, "const %s = %s\n", name, quoted.data)) ||
        !buf_addf(&text, "%s", interpreters[language].driver))
        abort(); /* the texts are ours, and smaller */
    return buf_take(&text);
}

struct coproc *interpreter_new(const struct coproc_place *place, enum interpreter_language language,
                               const struct coproc_options *options,
                               const struct coproc_events *events) {
    struct coproc_options o = *options;
    char *driver DEFER_FREE = driver_text(language);
    struct buf first DEFER(buf_done) = BUF(2 << 20);
    struct jot j = JOT(&first);
    o.argv = interpreters[language].argv;
    o.line_max = INTERPRETER_LINE_MAX;
    struct coproc *c = coproc_new(place, &o, events);
    jot_string(&j, NULL, driver);
    if (j.failed || !coproc_send(c, first.data, first.len) || !coproc_send(c, "\n", 1))
        abort(); /* likewise */
    return c;
}

static void put_env(struct jot *j, const json_t *env) {
    const char *name;
    json_t *value;
    jot_object(j, "env");
    json_object_foreach((json_t *)env, name, value) jot_string(j, name, json_string_value(value));
    jot_end(j, '}');
}

bool interpreter_ask(struct coproc *c, const struct interpreter_request *r) {
    struct buf text DEFER(buf_done) = BUF(INTERPRETER_LINE_MAX);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_string(&j, "id", r->id);
    jot_string(&j, "code", r->code ? r->code : "");
    jot_u64(&j, "most", r->most);
    if (r->ping)
        jot_bool(&j, "ping", true);
    if (r->stream)
        jot_bool(&j, "stream", true);
    if (r->typescript)
        jot_bool(&j, "typescript", true);
    if (r->bash)
        jot_bool(&j, "bash", true);
    put_env(&j, r->env);
    jot_end(&j, '}');
    /* The newline before it ends a line that another daemon may have begun. */
    return !j.failed && coproc_send(c, "\n", 1) && coproc_send(c, text.data, text.len) &&
           coproc_send(c, "\n", 1);
}

bool interpreter_interrupt(struct coproc *c) {
    static const char text[] = "\n{\"interrupt\":true}\n";
    return coproc_send(c, text, sizeof(text) - 1);
}
