#include "image/report.h"

#include "base/clock.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/jot.h"

enum { EVERY_MS = 500, LINE_MAX = 64 << 10 };

/* A write fails only when the daemon is gone; SIGPIPE then ends this process. */
static void report_say(struct report *r, struct jot *j) {
    jot_end(j, '}');
    if (!j->failed && buf_add(j->out, "\n", 1))
        (void)!write_all(r->fd, j->out->data, j->out->len);
}

static void put_counts(struct jot *j, uint64_t entries, uint64_t bytes) {
    jot_u64(j, "entries", entries);
    jot_u64(j, "bytes", bytes);
}

void report_progress(struct report *r, uint64_t entries, uint64_t bytes) {
    uint64_t now = monotonic_ms();
    if (r->fd < 0 || now - r->told_ms < EVERY_MS)
        return;
    struct buf text DEFER(buf_done) = BUF(LINE_MAX);
    struct jot j = JOT(&text);
    r->told_ms = now;
    jot_object(&j, NULL);
    put_counts(&j, entries, bytes);
    report_say(r, &j);
}

void report_error(struct report *r, const struct err *err) {
    struct buf text DEFER(buf_done) = BUF(LINE_MAX);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_object(&j, "error");
    jot_string(&j, "code", err_code_name(err->code));
    jot_string(&j, "message", err->text);
    jot_string(&j, "remedy", err->remedy);
    jot_end(&j, '}');
    report_say(r, &j);
}

void report_image(struct report *r, const struct report_of_image *of) {
    struct buf text DEFER(buf_done) = BUF(LINE_MAX);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_string(&j, "id", of->id);
    put_counts(&j, of->entries, of->bytes);
    jot_u64(&j, "disk", of->disk);
    if (of->same)
        jot_bool(&j, "same", true);
    jot_raw(&j, "config", of->config);
    report_say(r, &j);
}

void report_done(struct report *r) {
    struct buf text DEFER(buf_done) = BUF(LINE_MAX);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_bool(&j, "done", true);
    report_say(r, &j);
}

void report_backup(struct report *r, const char *manifest, uint64_t entries, uint64_t bytes,
                   uint64_t read) {
    struct buf text DEFER(buf_done) = BUF(LINE_MAX);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_bool(&j, "done", true);
    jot_string(&j, "manifest", manifest);
    put_counts(&j, entries, bytes);
    jot_u64(&j, "read", read);
    report_say(r, &j);
}

void report_config(struct report *r, const char *config) {
    struct buf text DEFER(buf_done) = BUF(LINE_MAX);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_raw(&j, "config", config);
    report_say(r, &j);
}
