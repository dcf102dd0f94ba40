/* Counters of requests: one histogram per route and machine kind, in the Prometheus text format. */
#include "api/metrics.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "api/route.h"
#include "base/alloc.h"

/* Upper bounds in microseconds. They are dense below 1 ms, where the promised latencies are. */
static const uint64_t bounds[] = {100,   200,   500,    1000,   2000,    5000,    10000,
                                  20000, 50000, 100000, 500000, 1000000, 10000000};
enum { BUCKETS = sizeof(bounds) / sizeof(*bounds) };
#define CODES ((size_t)ERR_TIMEOUT + 1)

struct row {
    uint64_t buckets[BUCKETS + 1];
    uint64_t count, sum_us;
    uint64_t failures[CODES];
};

struct metrics {
    struct row *rows; /* one per route */
};

struct metrics *metrics_new(void) {
    struct metrics *m = xnew(struct metrics);
    m->rows = xcalloc(route_count, sizeof(*m->rows));
    return m;
}

void metrics_free(struct metrics *m) {
    free(m->rows);
    free(m);
}

void metrics_count(struct metrics *m, const struct route *route, int status, enum err_code failed,
                   uint64_t us) {
    struct row *row = &m->rows[route - routes];
    size_t at = 0;
    (void)status;
    if (failed && failed < CODES)
        row->failures[failed]++;
    while (at < BUCKETS && us > bounds[at])
        at++;
    row->buckets[at]++;
    row->count++;
    row->sum_us += us;
}

/* Adds text. A document that reaches the limit of the buffer (16 MiB) is cut. */
#define ADD(out, ...)                      \
    do {                                   \
        if (!buf_addf((out), __VA_ARGS__)) \
            return;                        \
    } while (0)

void metrics_head(struct buf *out, const char *name, const char *type, const char *help) {
    ADD(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void metrics_line(struct buf *out, const char *name, const char *label, const char *value,
                  uint64_t number) {
    if (label)
        ADD(out, "%s{%s=\"%s\"} %" PRIu64 "\n", name, label, value, number);
    else
        ADD(out, "%s %" PRIu64 "\n", name, number);
}

/* Returns the label with the machine kind; routes that are not about a machine have none. */
static const char *metrics_kind_of(const struct route *r) {
    bool concerns = strncmp(r->path, "/v1/machines", 12) == 0 || strcmp(r->path, "/v1/run") == 0;
    return concerns ? ",kind=\"box\"" : "";
}

static void write_row(const struct row *row, const struct route *r, struct buf *out) {
    const char *id = r->id, *kind = metrics_kind_of(r);
    uint64_t sum = 0;
    for (size_t i = 0; i < BUCKETS; i++) {
        sum += row->buckets[i];
        ADD(out, "carrel_request_seconds_bucket{route=\"%s\"%s,le=\"%g\"} %" PRIu64 "\n", id, kind,
            (double)bounds[i] / 1e6, sum);
    }
    ADD(out, "carrel_request_seconds_bucket{route=\"%s\"%s,le=\"+Inf\"} %" PRIu64 "\n", id, kind,
        row->count);
    ADD(out, "carrel_request_seconds_sum{route=\"%s\"%s} %g\n", id, kind,
        (double)row->sum_us / 1e6);
    ADD(out, "carrel_request_seconds_count{route=\"%s\"%s} %" PRIu64 "\n", id, kind, row->count);
}

void metrics_write(const struct metrics *m, struct buf *out) {
    metrics_head(out, "carrel_request_seconds", "histogram",
                 "Time from request head to response, by route and machine kind");
    for (size_t i = 0; i < route_count; i++)
        if (m->rows[i].count)
            write_row(&m->rows[i], &routes[i], out);
    metrics_head(out, "carrel_failures_total", "counter",
                 "Failed requests, by route and error code");
    for (size_t i = 0; i < route_count; i++)
        for (size_t code = 1; code < CODES; code++)
            if (m->rows[i].failures[code])
                ADD(out, "carrel_failures_total{route=\"%s\",code=\"%s\"} %" PRIu64 "\n",
                    routes[i].id, err_code_name((enum err_code)code), m->rows[i].failures[code]);
}
