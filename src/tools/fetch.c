/* The tool fetch: runs curl in the machine, so the machine's network policy applies. */
#include <stdio.h>
#include <string.h>

#include "base/defer.h"
#include "tools/clip.h"
#include "tools/helper.h"
#include "tools/requests.h"
#include "tools/toolbox.h"

enum { FETCH_S = 60, FETCH_BYTES = 8 << 20 };

/* curl -w writes "carrel:STATUS|TYPE|URL" as the last line of stderr, after any error of curl. */
struct outcome {
    char status[8], type[128], url[2048];
};

static void read_outcome(const struct outlog *log, struct outcome *ret, struct buf *said) {
    uint64_t at = 0;
    *ret = (struct outcome){{0}};
    if (log)
        clip_stream(log, 1, &at, 8192, said);
    char *mark = said->data ? strstr(said->data, "\ncarrel:") : NULL;
    if (!mark)
        return;
    *mark = '\0';
    (void)sscanf(mark + 8, "%7[^|]|%127[^|\n]|%2047[^\n]", ret->status, ret->type, ret->url);
}

static void fetch_failed(struct act *a, const char *said, const struct exec_view *view) {
    const struct fetch_input *in = a->request;
    struct err err;
    if (view->status == 127)
        err_set(&err, ERR_UNSUPPORTED, "this machine has no curl: use another program with exec");
    else
        err_set(&err, ERR_DENIED, "cannot fetch URL '%.120s': %.120s", in->url,
                said && *said  ? said
                : view->reason ? view->reason
                               : "no answer");
    err_remedy(&err, "if the host is refused, only the owner can allow it");
    act_fail(a, &err);
}

static void ended(struct act *a, struct exec *x, const struct exec_view *view) {
    const struct fetch_input *in = a->request;
    uint64_t max = in->max_output.is ? in->max_output.value : OUTPUT_DEFAULT, at = 0;
    struct buf said DEFER(buf_done) = BUF(16 << 10), body DEFER(buf_done) = BUF(max + 256);
    struct outcome o;
    read_outcome(exec_log(x), &o, &said);
    if (view->status != 0 || !o.status[0]) {
        fetch_failed(a, said.data, view);
        return;
    }
    uint64_t left_out = clip_stream(exec_log(x), 0, &at, max, &body);
    act_done(a, &(struct fetch_output){.status = o.status,
                                       .type = strcmp(o.type, "-") == 0 ? NULL : o.type,
                                       .url = o.url,
                                       .body = body.data ? body.data : "",
                                       .bytes = view->stdout_bytes,
                                       .left_out = left_out,
                                       .session = view->id,
                                       .machine = a->machine});
}

void tool_fetch(struct act *a) {
    static const char format[] =
        "%{stderr}\ncarrel:%{http_code}|%{content_type}|%{url_effective}\n";
    const struct fetch_input *in = a->request;
    char seconds[8], bytes[16];
    struct err err;
    if (strncmp(in->url, "http://", 7) != 0 && strncmp(in->url, "https://", 8) != 0) {
        err_set(&err, ERR_INVALID, "address '%.100s' is not an http or https URL", in->url);
        act_fail(a, &err);
        return;
    }
    snprintf(seconds, sizeof(seconds), "%d", FETCH_S);
    snprintf(bytes, sizeof(bytes), "%d", FETCH_BYTES);
    const char *argv[] = {"curl",           "-sSL",         "-q",
                          "--globoff",      "--max-redirs", "5",
                          "--proto",        "=http,https",  "--proto-redir",
                          "=http,https",    "--max-time",   seconds,
                          "--max-filesize", bytes,          "-w",
                          format,           "--",           in->url};
    const struct exec_request r = {.argv = {argv, sizeof(argv) / sizeof(*argv)},
                                   .timeout = {(FETCH_S + 5) * 1000, true},
                                   .kill_left = true};
    helper_run(a, &r, FETCH_BYTES, ended);
}
