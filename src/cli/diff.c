/*
 * carrel diff: shows which files of a machine changed between two steps, or since a step. Then it
 * freezes each granted directory, repository and database as a change set and shows its changes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/options.h"
#include "cli/safe.h"
#include "cli/ship/own_files.h"
#include "cli/ship/ship.h"
#include "cli/ship/slices_find.h"
#include "cli/table.h"
#include "cli/text/colour.h"
#include "cli/text/pager.h"

enum { WORDS_MAX = 3 };

struct diff_options {
    uint64_t context;
    const char *path, *volume;
    bool stat, all, json, help;
};

#define AT(member) offsetof(struct diff_options, member)
const struct option_row diff_rows[] = {
    {0, "stat", NULL, OPTION_FLAG, AT(stat), "print one line per changed file"},
    {'U', "context", "N", OPTION_NUMBER, AT(context),
     "show N lines of context around a change (default: 3)"},
    {0, "path", "PATH", OPTION_TEXT, AT(path),
     "show only PATH of the machine and everything below it"},
    {'a', "all", NULL, OPTION_FLAG, AT(all),
     "without FROM: also show files that Carrel wrote for the network"},
    {0, "volume", "NAME", OPTION_TEXT, AT(volume),
     "show the changes in this volume; FROM is a snapshot of it"},
    {0, "json", NULL, OPTION_FLAG, AT(json), "print JSON"},
    {'h', "help", NULL, OPTION_FLAG, AT(help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};
#undef AT

struct words {
    char *v[WORDS_MAX];
    size_t count;
};

static int parse(int argc, char **argv, struct diff_options *o, struct words *ret,
                 struct err *err) {
    int count = options_words(diff_rows, argc, argv, o, ret->v, WORDS_MAX, err);
    if (count < 0)
        return -1;
    ret->count = (size_t)count;
    if (o->volume && ret->count > 2)
        return err_set(err, ERR_INVALID, "--volume compares with the present state: leave out '%s'",
                       ret->v[2]);
    if (ret->count || o->help)
        return 0;
    err_set(err, ERR_INVALID, "no machine given");
    return err_remedy(err, "see `carrel ls`");
}

/* ---- printing ---- */

static const char *member(const json_t *side, const char *name) {
    return client_text(side, name);
}

static bool differs(const json_t *a, const json_t *b, const char *name) {
    return !json_equal(json_object_get(a, name), json_object_get(b, name));
}

/* Prints "mode 0644 -> 0755, owner 0:0 -> 1000:1000". */
static void print_metadata(const json_t *before, const json_t *after) {
    const char *gap = "  (";
    if (differs(before, after, "type")) {
        printf("%s%s -> %s", gap, member(before, "type"), member(after, "type"));
        gap = ", ";
    }
    if (differs(before, after, "mode")) {
        printf("%smode %s -> %s", gap, member(before, "mode"), member(after, "mode"));
        gap = ", ";
    }
    if (differs(before, after, "owner") || differs(before, after, "group")) {
        printf("%sowner %lld:%lld -> %lld:%lld", gap, client_number(before, "owner"),
               client_number(before, "group"), client_number(after, "owner"),
               client_number(after, "group"));
        gap = ", ";
    }
    if (*gap == ',')
        putchar(')');
}

static void print_size(const json_t *side) {
    char size[16];
    table_bytes(client_number(side, "size"), size);
    fputs(side ? size : "-", stdout);
}

static void print_content(const json_t *change, const json_t *before, const json_t *after) {
    const char *content = client_text(change, "content");
    if (!*content)
        return;
    if (json_object_get(change, "lines_added")) {
        printf("  +%lld -%lld", client_number(change, "lines_added"),
               client_number(change, "lines_removed"));
        if (strcmp(content, "text") != 0)
            fputs(", too large to show", stdout);
        return;
    }
    printf("  %s, ", strcmp(content, "cut") == 0 ? "text" : content);
    print_size(before);
    fputs(" -> ", stdout);
    print_size(after);
}

static void print_link(const json_t *change, const char *name, const char *sign) {
    if (!json_object_get(change, name))
        return;
    fputs(sign, stdout);
    safe_name(stdout, client_text(change, name));
}

static void print_change(const json_t *change, const struct diff_options *o) {
    const json_t *before = json_object_get(change, "before"),
                 *after = json_object_get(change, "after");
    const char *kind = client_text(change, "change"), *diff = client_text(change, "diff");
    const char *type = member(after ? after : before, "type");
    colour_begin(*kind == 'a' ? COLOUR_GREEN : *kind == 'd' ? COLOUR_RED : COLOUR_YELLOW);
    printf("%c", *kind == 'a' ? 'A' : *kind == 'd' ? 'D' : 'M');
    colour_end();
    fputs(o->volume ? " " : " /", stdout); /* paths in a volume do not begin at the root */
    safe_name(stdout, client_text(change, "path"));
    if (strcmp(type, "directory") == 0)
        putchar('/');
    else if (strcmp(type, "file") != 0)
        printf("  %s", type);
    print_link(change, "target_before", "  was -> ");
    print_link(change, "target_after", "  -> ");
    if (before && after)
        print_metadata(before, after);
    print_content(change, before, after);
    putchar('\n');
    if (!o->stat && *diff)
        colour_diff(diff);
}

/* Changes that are not shown. */
struct hidden {
    long long added, modified;
};

static void print_end(const json_t *answer, const struct hidden *h) {
    const char *cut = client_text(answer, "cut");
    printf("%lld added, %lld modified, %lld deleted", client_number(answer, "added") - h->added,
           client_number(answer, "modified") - h->modified, client_number(answer, "deleted"));
    if (h->added + h->modified)
        printf("; %lld of Carrel's own for the network are not shown (--all)",
               h->added + h->modified);
    putchar('\n');
    if (*cut)
        fprintf(stderr, "carrel: the list of changes is incomplete: %s\n",
                strcmp(cut, "entries") == 0  ? "too many paths differ"
                : strcmp(cut, "looked") == 0 ? "there are too many files to compare"
                : strcmp(cut, "time") == 0
                    ? "the comparison took too long"
                    : "directories are nested too deeply, or cannot be read");
}

static void print_all(const json_t *answer, const struct diff_options *o, bool hides) {
    size_t i;
    const json_t *change, *changes = json_object_get(answer, "changes");
    struct hidden hidden = {0};
    json_array_foreach(changes, i, change) {
        if (!hides || !own_files_has(changes, i))
            print_change(change, o);
        else if (strcmp(client_text(change, "change"), "added") == 0)
            hidden.added++;
        else
            hidden.modified++;
    }
    print_end(answer, &hidden);
}

/* True if the changes of all grants are shown after those of the machine's own files. */
static bool is_whole(const struct diff_options *o, const struct words *w) {
    return w->count == 1 && !o->path && !o->volume;
}

static int fetch(struct client *c, const struct diff_options *o, const struct words *w,
                 json_t **ret, struct err *err) {
    char target[CLIENT_TARGET_SIZE], context[24];
    const struct client_request r = {.method = "GET", .target = target};
    snprintf(context, sizeof(context), "%llu", (unsigned long long)o->context);
    if (client_open(c, CLIENT_IF_MACHINES, NULL, err) < 0 ||
        client_target(target, err,
                      "/v1/machines/%s/diff?from=%s&to=%s&context=%s&path=%s&skip_repos=%s"
                      "&volume=%s",
                      w->v[0],
                      w->count > 1 ? w->v[1]
                      : o->volume  ? ""
                                   : "start",
                      w->count > 2 ? w->v[2] : "now", context, o->path ? o->path : "",
                      is_whole(o, w) ? "true" : "false", o->volume ? o->volume : "") < 0)
        return -1;
    return client_call(c, &r, ret, err);
}

/* ---- grants ---- */

struct handed_over {
    struct client *client;
    const char *machine;
    struct ship_options options;
    json_t *list; /* results for --json */
};

static void title(const struct handed_over *h, const char *at, const char *home) {
    if (h->list)
        return;
    printf("\n%s", at);
    if (*home)
        printf(", granted from %s", home);
    puts(":");
}

/* Reports a grant that cannot be compared, and goes on with the others. */
static int show_slice(struct handed_over *h, const char *word, const char *at, const char *home) {
    json_t *told = NULL;
    struct ship s DEFER(ship_done) = {.options = &h->options,
                                      .client = h->client,
                                      .dir = -1,
                                      .parcel = {.dir = -1},
                                      .told = h->list ? &told : NULL};
    struct err err;
    title(h, at, home);
    int status = *home && ship_open(&s, home, &err) < 0 ? -1 : ship_review(&s, word, &err);
    if (status < 0)
        fprintf(stderr, "carrel: %s: %s\n", at, err.text);
    if (told)
        json_array_append_new(h->list, told);
    return status;
}

static bool has_outbox(struct client *c, const char *machine) {
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "GET", .target = target};
    struct err none;
    return client_target(target, &none, "/v1/machines/%s/files/stat?path=%s", machine, "/outbox") ==
               0 &&
           client_call(c, &r, NULL, &none) == 0;
}

/* Shows the changes of all grants. 1: a grant could not be compared. */
static int show_handed(struct handed_over *h, struct err *err) {
    struct slices *found DEFER_FREE = xnew(struct slices);
    char word[SLICE_WORD];
    int failed = 0;
    if (slices_of(h->client, h->machine, found, err) < 0)
        return -1;
    for (size_t i = 0; i < found->count; i++) {
        const struct slice *one = &found->list[i];
        bool is_file = one->kind == SLICE_DIR || one->kind == SLICE_REPO;
        if (is_file && !h->client->local)
            continue; /* the original of the grant is on another host */
        slice_word(one, h->machine, word);
        failed |= show_slice(h, word, one->at, h->client->local ? one->home : "") < 0;
    }
    if (has_outbox(h->client, h->machine))
        failed |= show_slice(h, h->machine, "/outbox", "") < 0;
    return failed;
}

/* ---- the command ---- */

int cmd_diff(int argc, char **argv) {
    struct diff_options o = {.context = 3};
    struct words w = {.count = 0};
    struct client c DEFER(client_close) = {0};
    json_t *answer DEFER(json_decrefp) = NULL;
    struct err err;
    if (parse(argc, argv, &o, &w, &err) < 0)
        return cli_fail(&err);
    if (o.help) {
        cli_usage("diff");
        options_print(diff_rows);
        return 0;
    }
    if (fetch(&c, &o, &w, &answer, &err) < 0)
        return cli_fail(&err);
    bool whole = is_whole(&o, &w);
    struct handed_over handed = {.client = &c,
                                 .machine = w.v[0],
                                 .options = {.stat = o.stat, .json = o.json},
                                 .list = o.json ? json_array() : NULL};
    if (!o.json) {
        pager_start();
        print_all(answer, &o, whole && !o.all);
    }
    int status = whole ? show_handed(&handed, &err) : 0;
    if (o.json) {
        json_object_set_new(answer, "changesets", handed.list);
        print_json(answer);
    }
    return status < 0 ? cli_fail(&err) : status;
}
