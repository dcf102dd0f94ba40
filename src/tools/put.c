#include "tools/put.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/wire/msg.h"
#include "service/exec/tool_run.h"

struct put {
    struct put_file file;
    struct tool_run *tool;
    size_t at; /* bytes that the guest has taken */
    put_ended_fn *ended;
    void *arg;
};

/* Frees first: `ended` may write the next file. */
static void put_end(struct put *p, const struct err *err) {
    struct put over = *p;
    free(p);
    over.ended(over.arg, err);
}

/* MSG_TOOL_UNMET: the file does not have the expected hash, and nothing was written. */
static void put_over(void *arg, int status, const char *answer, const char *said,
                     const struct err *failed) {
    struct put *p = arg;
    struct err err;
    if (!failed && status == MSG_TOOL_UNMET) {
        err_set(&err, ERR_EXISTS, "file '%.150s' has changed: its sha256 is now %.64s",
                p->file.path, strncmp(answer, "absent", 6) == 0 ? "absent" : answer);
        err_remedy(&err, "read the file again, then use its new sha256");
    } else if (!failed && status == MSG_TOOL_FAILED) {
        tool_said(said, &err);
    } else {
        put_end(p, failed);
        return;
    }
    put_end(p, &err);
}

static void put_room(void *arg) {
    struct put *p = arg;
    p->at += tool_feed(p->tool, p->file.n ? p->file.bytes + p->at : "", p->file.n - p->at, true);
}

void put_file(struct act *a, const struct put_file *f, put_ended_fn *ended, void *arg) {
    const char *const argv[] = {"put", f->path, f->condition, f->mode, NULL};
    struct put *p = xnew(struct put);
    struct err err;
    *p = (struct put){.file = *f, .ended = ended, .arg = arg};
    const struct tool_events events = {.arg = p, .room = put_room, .ended = put_over};
    p->tool = service_tool(act_service(a), act_who(a), a->machine, "file.write", argv, f->user,
                           &events, &err);
    if (p->tool)
        put_room(p);
    else
        put_end(p, &err);
}
