#include "report.h"

#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/jot.h"

enum { COLUMNS = 7, CELL = 120, JSON_MAX = 1 << 20 };

enum kind { SECTION, FACT, TIMES, FIGURE, BAR, SKIP };

struct row {
    struct row *next;
    enum kind kind;
    char name[CELL];
    char text[CELL]; /* of a fact, of what was skipped; the unit of a figure or bar */
    size_t n;
    uint64_t min, p10, p50, p99;
    double ratio; /* of medians; 0: to nothing */
    double value, limit;
};

struct rows {
    struct row *first, **last;
};

struct report {
    char name[32];
    struct rows rows, bars;
};

struct report *report_new(const char *name) {
    struct report *r = calloc(1, sizeof(*r));
    if (!r)
        abort();
    snprintf(r->name, sizeof(r->name), "%s", name);
    r->rows.last = &r->rows.first;
    r->bars.last = &r->bars.first;
    return r;
}

static void rows_free(struct rows *rows) {
    for (struct row *row = rows->first, *next; row; row = next) {
        next = row->next;
        free(row);
    }
}

void report_free(struct report *r) {
    rows_free(&r->rows);
    rows_free(&r->bars);
    free(r);
}

static struct row *add_to(struct rows *rows, enum kind kind, const char *name) {
    struct row *row = calloc(1, sizeof(*row));
    if (!row)
        abort();
    row->kind = kind;
    snprintf(row->name, sizeof(row->name), "%s", name);
    *rows->last = row;
    rows->last = &row->next;
    return row;
}

static struct row *add(struct report *r, enum kind kind, const char *name) {
    return add_to(&r->rows, kind, name);
}

void report_fact(struct report *r, const char *name, const char *fmt, ...) {
    struct row *row = add(r, FACT, name);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(row->text, sizeof(row->text), fmt, ap);
    va_end(ap);
}

void report_host(struct report *r) {
    struct utsname u;
    char load[128] = "", cpu[64] = "";
    uname(&u);
    read_file_at(AT_FDCWD, "/proc/loadavg", load, sizeof(load));
    read_file_at(AT_FDCWD, "/sys/devices/system/cpu/cpu0/regs/identification/midr_el1", cpu,
                 sizeof(cpu));
    load[strcspn(load, "\n")] = cpu[strcspn(cpu, "\n")] = '\0';
    report_fact(r, "kernel", "%s %s", u.release, u.machine);
    report_fact(r, "cores", "%ld%s%s", sysconf(_SC_NPROCESSORS_ONLN), *cpu ? ", midr " : "", cpu);
    report_fact(r, "load at the start", "%s", load);
}

void report_section(struct report *r, const char *title) {
    add(r, SECTION, title);
}

void report_times(struct report *r, const char *name, struct samples *s, struct samples *floor) {
    struct row *row = add(r, TIMES, name);
    row->n = s->n;
    row->min = samples_quantile(s, 0);
    row->p10 = samples_quantile(s, 100);
    row->p50 = samples_quantile(s, 500);
    row->p99 = samples_quantile(s, 990);
    uint64_t base = floor ? samples_quantile(floor, 500) : 0;
    row->ratio = base ? (double)row->p50 / (double)base : 0;
}

void report_figure(struct report *r, const char *name, double value, const char *unit) {
    struct row *row = add(r, FIGURE, name);
    snprintf(row->text, sizeof(row->text), "%s", unit);
    row->value = value;
}

void report_bar(struct report *r, const char *name, double value, double limit, const char *unit) {
    if (!r->bars.first)
        add_to(&r->bars, SECTION, "Bars");
    struct row *row = add_to(&r->bars, BAR, name);
    snprintf(row->text, sizeof(row->text), "%s", unit);
    row->value = value;
    row->limit = limit;
}

void report_skip(struct report *r, const char *name, const char *why) {
    snprintf(add(r, SKIP, name)->text, CELL, "%s", why);
}

static bool has_value(const struct row *row) {
    switch (row->kind) {
    case TIMES:
        return row->n > 0 && row->p50 > 0;
    case FIGURE:
    case BAR:
        return isfinite(row->value);
    default:
        return true;
    }
}

static bool rows_are_whole(const struct rows *rows) {
    bool whole = true;
    for (const struct row *row = rows->first; row; row = row->next)
        if (!has_value(row)) {
            fprintf(stderr, "no figure for '%s'\n", row->name);
            whole = false;
        }
    return whole;
}

bool report_is_whole(const struct report *r) {
    bool whole = rows_are_whole(&r->rows);
    return rows_are_whole(&r->bars) && whole;
}

/* Tables. */

static const char *const heads[][COLUMNS] = {
    [TIMES] = {"measure, us", "n", "min", "p10", "p50", "p99", "x floor"},
    [FIGURE] = {"measure", "figure", NULL},
    [BAR] = {"bar", "limit", "measured", "verdict", NULL},
    [SKIP] = {"skipped", "why", NULL},
};

#define FIGURE_FORMAT(v) ((v) < 10 ? "%.2f %s" : (v) < 1000 ? "%.1f %s" : "%.0f %s")

static void cells(const struct row *row, char out[COLUMNS][CELL]) {
    for (int i = 0; i < COLUMNS; i++)
        out[i][0] = 0;
    snprintf(out[0], CELL, "%s", row->name);
    switch (row->kind) {
    case TIMES:
        snprintf(out[1], CELL, "%zu", row->n);
        snprintf(out[2], CELL, "%.1f", (double)row->min / 1e3);
        snprintf(out[3], CELL, "%.1f", (double)row->p10 / 1e3);
        snprintf(out[4], CELL, "%.1f", (double)row->p50 / 1e3);
        snprintf(out[5], CELL, "%.1f", (double)row->p99 / 1e3);
        if (row->ratio > 0)
            snprintf(out[6], CELL, "%.2f", row->ratio);
        break;
    case FIGURE:
        snprintf(out[1], CELL, FIGURE_FORMAT(row->value), row->value, row->text);
        break;
    case BAR:
        snprintf(out[1], CELL, FIGURE_FORMAT(row->limit), row->limit, row->text);
        snprintf(out[2], CELL, FIGURE_FORMAT(row->value), row->value, row->text);
        snprintf(out[3], CELL, "%s", row->value <= row->limit ? "pass" : "MISS");
        break;
    default:
        snprintf(out[1], CELL, "%s", row->text);
    }
}

static int columns_of(enum kind kind) {
    int n = 0;
    while (n < COLUMNS && heads[kind][n])
        n++;
    return n;
}

static void print_cells(FILE *to, char text[COLUMNS][CELL], int n, const int *width) {
    fprintf(to, "| %-*s", width[0], text[0]);
    for (int i = 1; i < n; i++)
        fprintf(to, " | %*s", width[i], text[i]);
    fprintf(to, " |\n");
}

/* Rows of one kind that follow each other are one table. Returns the row after them. */
static const struct row *print_table(FILE *to, const struct row *row) {
    char text[COLUMNS][CELL];
    int width[COLUMNS], n = columns_of(row->kind);
    const struct row *end = row;
    for (int i = 0; i < n; i++)
        width[i] = (int)strlen(heads[row->kind][i]) < 3 ? 3 : (int)strlen(heads[row->kind][i]);
    for (; end && end->kind == row->kind; end = end->next) {
        cells(end, text);
        for (int i = 0; i < n; i++)
            width[i] = (int)fmax(width[i], (double)strlen(text[i]));
    }
    for (int i = 0; i < n; i++)
        snprintf(text[i], CELL, "%s", heads[row->kind][i]);
    fputc('\n', to);
    print_cells(to, text, n, width);
    for (int i = 0; i < n; i++) {
        memset(text[i], '-', CELL - 1);
        text[i][width[i]] = '\0';
        if (i > 0)
            text[i][width[i] - 1] = ':';
    }
    print_cells(to, text, n, width);
    for (; row != end; row = row->next) {
        cells(row, text);
        print_cells(to, text, n, width);
    }
    return end;
}

static void print_rows(FILE *to, const struct rows *rows) {
    for (const struct row *row = rows->first; row;) {
        if (row->kind == FACT)
            fprintf(to, "%s: %s  \n", row->name, row->text);
        else if (row->kind == SECTION)
            fprintf(to, "\n### %s\n", row->name);
        else {
            row = print_table(to, row);
            continue;
        }
        row = row->next;
    }
}

static void print(const struct report *r, FILE *to) {
    print_rows(to, &r->rows);
    print_rows(to, &r->bars);
}

/* JSON. Figures are fractions, which base/jot.h does not write: thousandths are enough. */

static void put_milli(struct jot *j, const char *name, double value) {
    char key[40];
    snprintf(key, sizeof(key), "%s_milli", name);
    jot_i64(j, key, (int64_t)llround(value * 1000));
}

static void put_row(struct jot *j, const struct row *row) {
    static const char *const kinds[] = {"section", "fact", "times", "figure", "bar", "skip"};
    jot_object(j, NULL);
    jot_string(j, "kind", kinds[row->kind]);
    jot_string(j, "name", row->name);
    if (row->kind == TIMES) {
        jot_u64(j, "n", row->n);
        jot_u64(j, "min_ns", row->min);
        jot_u64(j, "p10_ns", row->p10);
        jot_u64(j, "p50_ns", row->p50);
        jot_u64(j, "p99_ns", row->p99);
        if (row->ratio > 0)
            put_milli(j, "ratio", row->ratio);
    } else if (row->kind != SECTION) {
        jot_string(j, row->kind == FACT || row->kind == SKIP ? "text" : "unit", row->text);
    }
    if (row->kind == FIGURE || row->kind == BAR)
        put_milli(j, "value", row->value);
    if (row->kind == BAR) {
        put_milli(j, "limit", row->limit);
        jot_bool(j, "pass", row->value <= row->limit);
    }
    jot_end(j, '}');
}

static void close_file(FILE **f) {
    if (*f)
        fclose(*f);
}

static int write_table(const struct report *r, const char *path, struct err *err) {
    FILE *f DEFER(close_file) = fopen(path, "we");
    if (!f)
        return err_sys(err, "write '%s'", path);
    print(r, f);
    return fflush(f) != 0 ? err_sys(err, "write '%s'", path) : 0;
}

static int write_json(const struct report *r, const char *path, struct err *err) {
    struct buf text DEFER(buf_done) = BUF(JSON_MAX);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_string(&j, "benchmark", r->name);
    jot_array(&j, "rows");
    for (const struct row *row = r->rows.first; row; row = row->next)
        put_row(&j, row);
    for (const struct row *row = r->bars.first; row; row = row->next)
        put_row(&j, row);
    jot_end(&j, ']');
    jot_end(&j, '}');
    FILE *f DEFER(close_file) = fopen(path, "we");
    if (j.failed || !f || fprintf(f, "%s\n", text.data) < 0 || fflush(f) != 0)
        return err_sys(err, "write '%s'", path);
    return 0;
}

int report_show(const struct report *r, const char *table, const char *json, struct err *err) {
    print(r, stdout);
    if (table && write_table(r, table, err) < 0)
        return -1;
    return json ? write_json(r, json, err) : 0;
}
