/*
 * `carrel wast` in the worker process: runs one script. The parent process adds up the counts of
 * passed tests.
 */
#include "cell/session.h"
#include "wasm/text/wast.h"

#include "base/banned.h"
#include "base/defer.h"

enum { MAX_REPORT = 8 << 20 };

int verb_wast(struct link *l, const void *arg) {
    const struct job *job = arg;
    const struct cell_options *o = job->options;
    struct buf report DEFER(buf_done) = BUF(MAX_REPORT);
    struct wast_options options = {.spec = o->spec, .suspend = o->has_seed, .seed = o->seed};
    struct wast_result result;
    wast_run(job->file, (const char *)job->bytes.data, job->bytes.len, &options, &result, &report);
    link_state(l, &result, sizeof(result));
    link_log(l, report.data, report.len);
    return CELL_OK;
}
