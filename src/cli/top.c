#include "cli/top.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "cli/machine.h"
#include "cli/safe.h"
#include "cli/table.h"

enum { PATIENCE_MS = 5000 }; /* how long to wait for a daemon that does not answer */

const char *const top_order_names[TOP_ORDERS] = {"cpu", "mem", "disk", "age", "name"};

const struct top_column top_columns[TOP_COLUMNS] = {
    {"MACHINE", 14, false}, {"STATE", 8, false}, {"CPU", 6, true},      {"MEM", 5, true},
    {"DISK", 5, true},      {"AGE", 4, true},    {"COMMAND", 0, false},
};

int top_order_named(const char *name, enum top_order *ret, struct err *err) {
    for (int i = 0; i < TOP_ORDERS; i++)
        if (strcmp(name, top_order_names[i]) == 0) {
            *ret = (enum top_order)i;
            return 0;
        }
    err_set(err, ERR_INVALID, "--sort %s: unknown column", name);
    return err_remedy(err, "use cpu, mem, disk, age or name");
}

/* ---- samples ---- */

static void drop_rows(struct top *t) {
    for (size_t i = 0; i < t->count; i++)
        json_decref(t->rows[i]);
    free(t->rows);
    t->rows = NULL;
    t->count = 0;
}

void top_done(struct top *t) {
    drop_rows(t);
    json_decref(t->before);
    json_decref(t->store);
    t->before = t->store = NULL;
    client_close(&t->client);
}

static void copy_members(json_t *to, const json_t *from, const char *const *names) {
    for (; *names; names++)
        if (json_object_get(from, *names))
            json_object_set(to, *names, json_object_get(from, *names));
}

/* Copies counts other than 0. A running machine uses some of each, so 0 means not counted. */
static void copy_counts(json_t *row, const json_t *stats) {
    static const char *const counts[] = {"mem_bytes", "mem_limit_bytes", "pids"};
    for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++)
        if (client_number(stats, counts[i]) > 0)
            json_object_set(row, counts[i], json_object_get(stats, counts[i]));
}

/* A share in percent with one decimal: the counters are not more exact. */
static double tenths(long long more, long long passed) {
    return more > 0 ? (double)(more * 1000 / passed) / 10 : 0;
}

/*
 * Sets the cpu share since the last sample, and stores the counter for the next one. If this host
 * counts no memory, a cpu count of 0 means that it does not count cpu time either.
 */
static void count_cpu(json_t *row, const json_t *stats, const json_t *before, json_t *next) {
    const char *id = client_text(row, "id");
    const json_t *last = json_object_get(before, id);
    long long used = client_number(stats, "cpu_us"), at = (long long)monotonic_us();
    long long more = used - client_number(last, "used"), passed = at - client_number(last, "at");
    json_object_set_new(next, id, json_pack("{s:I, s:I}", "used", used, "at", at));
    if (last && passed > 0 && (used > 0 || client_number(stats, "mem_bytes") > 0))
        json_object_set_new(row, "cpu_percent", json_real(tenths(more, passed)));
}

/* True if only this machine has failed: then its row has no figures, and the table goes on. */
static bool is_of_the_machine(const struct err *err) {
    return err->code == ERR_NOT_FOUND || err->code == ERR_GONE || err->code == ERR_BUSY ||
           err->code == ERR_UNSUPPORTED;
}

static int top_ask(struct top *t, const json_t *row, const char *format, json_t **ret,
                   struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "GET", .target = target};
    if (client_target(target, err, format, client_text(row, "id")) < 0)
        return -1;
    if (client_call(&t->client, &r, ret, err) == 0)
        return 0;
    *ret = NULL;
    return t->client.http && is_of_the_machine(err) ? 0 : -1;
}

static int top_look_at(struct top *t, const json_t *machine, json_t *next, json_t *row,
                       struct err *err) {
    static const char *const known[] = {"id", "name", "state", "created", NULL};
    static const char *const disk[] = {"disk_bytes", NULL};
    json_t *stats DEFER(json_decrefp) = NULL;
    copy_members(row, machine, known);
    const char *state = client_text(row, "state");
    if (strcmp(state, "running") != 0 && strcmp(state, "paused") != 0)
        return 0;
    if (top_ask(t, row, "/v1/machines/%s/stats", &stats, err) < 0)
        return -1;
    if (stats) {
        copy_counts(row, stats);
        copy_members(row, stats, disk);
        count_cpu(row, stats, t->before, next);
    }
    return 0;
}

static int top_refresh(struct top *t, struct err *err) {
    json_t *list DEFER(json_decrefp) = NULL, *next DEFER(json_decrefp) = json_object();
    size_t i;
    json_t *m;
    if (!t->client.http && client_open(&t->client, CLIENT_IF_MACHINES, NULL, err) < 0) {
        drop_rows(t);
        return err->code == ERR_NOT_FOUND ? 0 : -1;
    }
    http_client_set_timeout(t->client.http, PATIENCE_MS);
    if (machines_list(&t->client, &list, err) < 0)
        return -1;
    const json_t *machines = json_object_get(list, "machines");
    drop_rows(t);
    json_decref(t->store);
    t->store = json_incref(json_object_get(list, "store"));
    t->rows = xcalloc(json_array_size(machines) + 1, sizeof(*t->rows));
    json_array_foreach(machines, i, m) {
        t->rows[t->count++] = json_object();
        if (top_look_at(t, m, next, t->rows[i], err) < 0)
            return -1;
    }
    json_decref(t->before);
    t->before = json_incref(next);
    return 0;
}

int top_look(struct top *t, struct err *err) {
    int r = top_refresh(t, err);
    if (r < 0)
        client_close(&t->client);
    return r;
}

int top_commands(struct top *t, size_t from, size_t count, struct err *err) {
    for (size_t i = from; i < t->count && i < from + count; i++) {
        json_t *list DEFER(json_decrefp) = NULL, *row = t->rows[i];
        if (json_object_get(row, "command"))
            continue;
        if (!t->client.http)
            return err_set(err, ERR_GONE, "the connection to the daemon is closed");
        if (top_ask(t, row, "/v1/machines/%s/execs?limit=1", &list, err) < 0) {
            client_close(&t->client);
            return -1;
        }
        json_t *argv = json_object_get(json_array_get(json_object_get(list, "execs"), 0), "argv");
        json_object_set_new(row, "command", argv ? json_incref(argv) : json_array());
    }
    return 0;
}

/* ---- order ---- */

static const char *called(const json_t *row) {
    const char *name = client_text(row, "name");
    return *name ? name : client_text(row, "id");
}

static int top_by_name(const void *a, const void *b) {
    return strcmp(called(*(json_t *const *)a), called(*(json_t *const *)b));
}

/* Sorts larger figures first, and rows without a figure last. */
static int by_figure(const void *a, const void *b, const char *member) {
    const json_t *x = json_object_get(*(json_t *const *)a, member);
    const json_t *y = json_object_get(*(json_t *const *)b, member);
    double left = x ? json_number_value(x) : -1, right = y ? json_number_value(y) : -1;
    return left != right ? (left < right) - (left > right) : top_by_name(a, b);
}

static int by_cpu(const void *a, const void *b) {
    return by_figure(a, b, "cpu_percent");
}

static int by_mem(const void *a, const void *b) {
    return by_figure(a, b, "mem_bytes");
}

static int by_disk(const void *a, const void *b) {
    return by_figure(a, b, "disk_bytes");
}

/* Sorts the oldest machine first. */
static int by_age(const void *a, const void *b) {
    int r = strcmp(client_text(*(json_t *const *)a, "created"),
                   client_text(*(json_t *const *)b, "created"));
    return r ? r : top_by_name(a, b);
}

void top_sort(struct top *t, enum top_order order) {
    static int (*const orders[TOP_ORDERS])(const void *, const void *) = {by_cpu, by_mem, by_disk,
                                                                          by_age, top_by_name};
    if (t->count)
        qsort(t->rows, t->count, sizeof(*t->rows), orders[order]);
}

/* ---- cells ---- */

static void top_put_bytes(FILE *to, const json_t *row, const char *member) {
    char text[16] = "-";
    if (json_object_get(row, member))
        table_bytes(client_number(row, member), text);
    fputs(text, to);
}

static void put_called(FILE *to, const json_t *row) {
    safe_name(to, called(row));
}

static void put_state(FILE *to, const json_t *row) {
    safe_name(to, client_text(row, "state"));
}

static void put_cpu(FILE *to, const json_t *row) {
    const json_t *cpu = json_object_get(row, "cpu_percent");
    if (cpu)
        fprintf(to, "%.1f%%", json_number_value(cpu));
    else
        fputc('-', to);
}

static void put_mem(FILE *to, const json_t *row) {
    top_put_bytes(to, row, "mem_bytes");
}

static void put_disk(FILE *to, const json_t *row) {
    top_put_bytes(to, row, "disk_bytes");
}

static void put_age(FILE *to, const json_t *row) {
    char age[16];
    table_age(client_text(row, "created"), age);
    fputs(age, to);
}

static void put_command(FILE *to, const json_t *row) {
    size_t i;
    json_t *word;
    json_array_foreach(json_object_get(row, "command"), i, word) {
        fputs(i ? " " : "", to);
        safe_name(to, json_is_string(word) ? json_string_value(word) : "");
    }
}

char *top_cell(const json_t *row, size_t column) {
    static void (*const put[TOP_COLUMNS])(FILE *, const json_t *) = {
        put_called, put_state, put_cpu, put_mem, put_disk, put_age, put_command};
    char *text = NULL;
    size_t n;
    FILE *to = alloc_check(open_memstream(&text, &n));
    put[column](to, row);
    if (fclose(to) != 0)
        abort();
    return text;
}

char *top_summary(const struct top *t) {
    char mem[16], free[16], store[64] = "";
    double cpu = 0;
    long long bytes = 0;
    for (size_t i = 0; i < t->count; i++) {
        cpu += json_number_value(json_object_get(t->rows[i], "cpu_percent"));
        bytes += client_number(t->rows[i], "mem_bytes");
    }
    table_bytes(bytes, mem);
    table_bytes(client_number(t->store, "free_bytes"), free);
    if (t->store)
        snprintf(store, sizeof(store), "; store %lld%% full, %s free: carrel rm, image prune",
                 client_number(t->store, "used_percent"), free);
    return xformat("%zu machine%s, cpu %.1f%%, memory %s%s", t->count, t->count == 1 ? "" : "s",
                   cpu, mem, store);
}
