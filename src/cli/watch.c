/*
 * carrel top: prints the table once as text or JSON. The live table is the program carrel-top, so
 * that only it loads the terminal library.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/defer.h"
#include "cli/cli.h"
#include "cli/machine.h"
#include "cli/table.h"
#include "cli/top.h"

struct top_options {
    const char *sort;
    bool once, json, help;
};

#define AT(member) offsetof(struct top_options, member)

const struct option_row top_rows[] = {
    {'s', "sort", "cpu|mem|disk|age|name", OPTION_TEXT, AT(sort),
     "sort by this column (default: cpu)"},
    {'1', "once", NULL, OPTION_FLAG, AT(once), "print the table once and exit"},
    {0, "json", NULL, OPTION_FLAG, AT(json), "print one JSON object and exit"},
    {'h', "help", NULL, OPTION_FLAG, AT(help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};

static void print_cell(const char *text, const struct top_column *c) {
    printf(c->right ? "%*s  " : "%-*s  ", c->width, text);
}

static void print_table(const struct top *t) {
    for (size_t k = 0; k < TOP_COLUMNS; k++)
        print_cell(top_columns[k].title, &top_columns[k]);
    putchar('\n');
    for (size_t i = 0; i < t->count; i++) {
        for (size_t k = 0; k < TOP_COLUMNS; k++) {
            char *text DEFER_FREE = top_cell(t->rows[i], k);
            print_cell(text, &top_columns[k]);
        }
        putchar('\n');
    }
}

static void print_object(const struct top *t) {
    json_t *rows = json_array();
    json_t *object DEFER(json_decrefp) = json_pack("{s:o}", "machines", rows);
    for (size_t i = 0; i < t->count; i++)
        json_array_append(rows, t->rows[i]);
    if (t->store)
        json_object_set(object, "store", t->store);
    print_json(object);
}

/* Prints the table once. It takes two samples, because the cpu share is their difference. */
static int show_once(enum top_order order, bool json, struct err *err) {
    struct top t DEFER(top_done) = {0};
    if (top_look(&t, err) < 0)
        return -1;
    if (t.count)
        usleep(TOP_FIRST_MS * 1000);
    if ((t.count && top_look(&t, err) < 0) || top_commands(&t, 0, t.count, err) < 0)
        return -1;
    top_sort(&t, order);
    if (json)
        print_object(&t);
    else
        print_table(&t);
    if (!json)
        store_note(t.store, stderr);
    return 0;
}

static int show_live(enum top_order order, struct err *err) {
    struct place place;
    char program[PLACE_SIZE + 16];
    if (place_find(&place, err) < 0)
        return -1;
    snprintf(program, sizeof(program), "%s/carrel-top", place.libexec);
    execl(program, "carrel-top", top_order_names[order], (char *)NULL);
    err_sys(err, "cannot run program '%s'", program);
    return err_remedy(err, "use carrel top --once, which works without this program");
}

int cmd_top(int argc, char **argv) {
    struct top_options o = {.sort = "cpu"};
    enum top_order order;
    struct err err;
    int next;
    if (options_parse(top_rows, argc - 1, argv + 1, &o, &next, &err) < 0 ||
        top_order_named(o.sort, &order, &err) < 0)
        return cli_fail(&err);
    if (o.help) {
        cli_usage("top");
        options_print(top_rows);
        return 0;
    }
    if (argv[1 + next]) {
        err_set(&err, ERR_INVALID, "unexpected argument '%s'", argv[1 + next]);
        return cli_fail(&err);
    }
    bool live = !o.once && !o.json && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    int r = live ? show_live(order, &err) : show_once(order, o.json, &err);
    return r < 0 ? cli_fail(&err) : 0;
}
