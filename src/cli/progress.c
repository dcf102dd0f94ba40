#include "cli/progress.h"

#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/safe.h"
#include "cli/table.h"

enum { PATIENCE_MS = 1000, STEP_MS = 200, LINE_MS = 5000, BAR = 24 };

struct progress progress_begin(const char *what, uint64_t total, bool silent) {
    return (struct progress){.what = what,
                             .total = total,
                             .started_ms = monotonic_ms(),
                             .silent = silent,
                             .terminal = isatty(STDERR_FILENO)};
}

static void show_share(const struct progress *p) {
    double share = p->done < p->total ? (double)p->done / (double)p->total : 1;
    int full = (int)(BAR * share);
    if (p->terminal)
        fprintf(stderr, "  [%.*s%*s]", full, "########################", BAR - full, "");
    fprintf(stderr, "  %d%%", (int)(100 * share));
}

static void progress_show(struct progress *p, uint64_t now) {
    char done[16], speed[16];
    uint64_t ms = now - p->started_ms;
    table_bytes((long long)p->done, done);
    table_bytes((long long)(p->done * 1000 / (ms ? ms : 1)), speed);
    if (p->terminal)
        fputs("\r\033[K", stderr);
    safe_name(stderr, p->what);
    fprintf(stderr, "  %s  %s/s", done, speed);
    if (p->total)
        show_share(p);
    if (!p->terminal)
        fputc('\n', stderr);
    p->shown = true;
    p->shown_ms = now;
}

void progress_add(struct progress *p, uint64_t bytes) {
    p->done += bytes;
    if (p->silent)
        return;
    uint64_t now = monotonic_ms();
    uint64_t last = p->shown ? p->shown_ms : p->started_ms;
    if (p->terminal ? now - p->started_ms >= PATIENCE_MS && now - last >= STEP_MS
                    : now - last >= LINE_MS)
        progress_show(p, now);
}

void progress_end(struct progress *p) {
    if (!p->shown)
        return;
    progress_show(p, monotonic_ms());
    if (p->terminal)
        fputc('\n', stderr);
}
