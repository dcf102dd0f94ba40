/* carrel serve, token and audit: runs the daemon, manages its tokens, reads its journal. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "base/sha256.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/options.h"
#include "cli/safe.h"
#include "cli/table.h"
#include "cli/text/pager.h"
#include "cli/text/units.h"
#include "review/parcel.h"

/* ---- serve ---- */

struct serve_options {
    const char *listen, *conf;
    bool help;
};

const struct option_row serve_rows[] = {
    {0, "listen", "ADDRESS:PORT", OPTION_TEXT, offsetof(struct serve_options, listen),
     "also listen on this TCP address, for clients with a token (see carrel token)"},
    {0, "conf", "FILE", OPTION_TEXT, offsetof(struct serve_options, conf),
     "read the daemon's settings from this file instead of carrel.conf"},
    {'h', "help", NULL, OPTION_FLAG, offsetof(struct serve_options, help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};

int cmd_serve(int argc, char **argv) {
    struct serve_options o = {0};
    struct place place;
    struct err err;
    char program[PLACE_SIZE + 16];
    int next;
    if (options_parse(serve_rows, argc - 1, argv + 1, &o, &next, &err) < 0)
        return cli_fail(&err);
    if (o.help) {
        cli_usage("serve");
        options_print(serve_rows);
        return 0;
    }
    if (argv[1 + next]) {
        err_set(&err, ERR_INVALID, "unexpected argument '%s'", argv[1 + next]);
        err_remedy(&err, "see carrel serve --help");
        return cli_fail(&err);
    }
    if (place_find(&place, &err) < 0 || place_make(&place, &err) < 0)
        return cli_fail(&err);
    const char *words[12] = {"carrel-daemon", "--run", place.run, "--home", place.home};
    size_t n = 5;
    if (o.listen) {
        words[n++] = "--listen";
        words[n++] = o.listen;
    }
    if (o.conf) {
        words[n++] = "--conf";
        words[n++] = o.conf;
    }
    snprintf(program, sizeof(program), "%s/carrel-daemon", place.libexec);
    execv(program, (char *const *)words);
    err_sys(&err, "cannot run program '%s'", program);
    return cli_fail(&err);
}

/* ---- token ---- */

struct token_options {
    const char *owner, *note;
    struct option_list scopes;
    uint64_t machines, cpu_milli, mem, disk, max_ttl_ms;
    bool quiet, json, help;
};

#define AT(member) offsetof(struct token_options, member)

const struct option_row token_rows[] = {
    {0, "scope", "read|run|admin", OPTION_LIST, AT(scopes),
     "what the token may do (default: read and run; repeatable)"},
    {0, "note", "TEXT", OPTION_TEXT, AT(note), "note about the token, which token ls shows"},
    {0, "owner", "NAME", OPTION_TEXT, AT(owner),
     "owner of machines made with the token (requires scope admin)"},
    {0, "machines", "N", OPTION_NUMBER, AT(machines),
     "limit of the token's machines that exist at once, stopped ones included"},
    {'c', "cpus", "N", OPTION_MILLI, AT(cpu_milli),
     "limit of the cpus of all machines of the token together"},
    {'m', "mem", "SIZE", OPTION_SIZE, AT(mem),
     "limit of the memory of all machines of the token together"},
    {0, "disk", "SIZE", OPTION_SIZE, AT(disk),
     "limit of the disk space of all machines of the token together"},
    {0, "max-ttl", "TIME", OPTION_DURATION, AT(max_ttl_ms),
     "require a --ttl of at most this time for each machine of the token"},
    {'q', "quiet", NULL, OPTION_FLAG, AT(quiet), "ls: print only ids; rm: print nothing"},
    {0, "json", NULL, OPTION_FLAG, AT(json), "print JSON"},
    {'h', "help", NULL, OPTION_FLAG, AT(help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};

static void put_token(struct jot *j, const struct token_options *o) {
    const struct {
        const char *name;
        uint64_t value;
        double unit;
    } quotas[] = {{"machines", o->machines, 1},
                  {"cpus", o->cpu_milli, 1000},
                  {"mem", o->mem, 1},
                  {"disk", o->disk, 1},
                  {"max_ttl", o->max_ttl_ms, 1000}};
    jot_object(j, NULL);
    if (o->owner)
        jot_string(j, "owner", o->owner);
    if (o->note)
        jot_string(j, "note", o->note);
    if (o->scopes.count) {
        jot_array(j, "scopes");
        for (size_t i = 0; i < o->scopes.count; i++)
            jot_string(j, NULL, o->scopes.items[i]);
        jot_end(j, ']');
    }
    for (size_t i = 0; i < sizeof(quotas) / sizeof(*quotas); i++) {
        char number[40];
        snprintf(number, sizeof(number), quotas[i].unit == 1 ? "%.0f" : "%.3f",
                 (double)quotas[i].value / quotas[i].unit);
        if (quotas[i].value)
            jot_raw(j, quotas[i].name, number);
    }
    jot_end(j, '}');
}

static int token_new(struct client *c, const struct token_options *o, char **ids, struct err *err) {
    (void)ids;
    struct buf body DEFER(buf_done) = BUF(65536);
    struct jot j = JOT(&body);
    json_t *token DEFER(json_decrefp) = NULL;
    put_token(&j, o);
    const struct client_request r = {.method = "POST", .target = "/v1/tokens", .body = &body};
    if (client_call(c, &r, &token, err) < 0)
        return -1;
    if (o->json)
        print_json(token);
    else
        puts(client_text(token, "secret"));
    return 0;
}

static int token_get_all(struct client *c, json_t **ret, struct err *err) {
    const struct client_request r = {.method = "GET", .target = "/v1/tokens"};
    return client_call(c, &r, ret, err);
}

/* A quota of 0 means unlimited. */
static void print_token(const json_t *token) {
    static const char *const quotas[][2] = {{"machines", "machines"},
                                            {"cpus", "cpus"},
                                            {"mem", "mem"},
                                            {"disk", "disk"},
                                            {"max_ttl_ms", "max_ttl"}};
    json_t *shown DEFER(json_decrefp) = json_copy((json_t *)token);
    for (size_t i = 0; i < sizeof(quotas) / sizeof(*quotas); i++) {
        if (json_number_value(json_object_get(shown, quotas[i][0])) > 0)
            continue;
        json_object_del(shown, quotas[i][0]);
        json_object_set_new(shown, quotas[i][1], json_string("unlimited"));
    }
    units_print(shown, 0);
}

static int token_show(struct client *c, const struct token_options *o, char **ids,
                      struct err *err) {
    json_t *list DEFER(json_decrefp) = NULL;
    if (token_get_all(c, &list, err) < 0)
        return -1;
    const json_t *token = table_find(json_object_get(list, "tokens"), "id", ids[0]);
    if (!token) {
        err_set(err, ERR_NOT_FOUND, "token '%s' does not exist", ids[0]);
        return err_remedy(err, "see carrel token ls");
    }
    if (o->json)
        print_json(token);
    else
        print_token(token);
    return 0;
}

static int token_list(struct client *c, const struct token_options *o, char **ids,
                      struct err *err) {
    json_t *list DEFER(json_decrefp) = NULL;
    size_t i;
    json_t *t;
    (void)ids;
    if (token_get_all(c, &list, err) < 0)
        return -1;
    if (o->json || o->quiet) {
        if (o->json)
            print_json(list);
        else
            print_ids(json_object_get(list, "tokens"), "id");
        return 0;
    }
    puts("TOKEN           OWNER         SCOPES          STATE     NOTE");
    json_array_foreach(json_object_get(list, "tokens"), i, t) {
        table_cell(client_text(t, "id"), 14);
        table_cell(client_text(t, "owner"), 12);
        table_cell(client_text(t, "scopes"), 14);
        table_cell(*client_text(t, "revoked") ? "revoked" : "valid", 8);
        table_cell(client_text(t, "note"), 0);
        putchar('\n');
    }
    return 0;
}

static int token_remove(struct client *c, const struct token_options *o, char **ids,
                        struct err *err) {
    json_t *revoked DEFER(json_decrefp) = json_pack("{s:[]}", "revoked");
    for (; *ids; ids++) {
        char target[CLIENT_TARGET_SIZE];
        const struct client_request r = {.method = "DELETE", .target = target};
        if (client_target(target, err, "/v1/tokens/%s", *ids) < 0 ||
            client_call(c, &r, NULL, err) < 0)
            return -1;
        json_array_append_new(json_object_get(revoked, "revoked"), json_string(*ids));
        cli_done(o->quiet || o->json, "revoked token '%s'", *ids);
    }
    if (o->json)
        print_json(revoked);
    return 0;
}

static const struct {
    const char *name;
    size_t least, most; /* how many tokens follow the subcommand */
    int (*run)(struct client *c, const struct token_options *o, char **ids, struct err *err);
} token_verbs[] = {
    {"new", 0, 0, token_new},
    {"ls", 0, 0, token_list},
    {"show", 1, 1, token_show},
    {"rm", 1, SIZE_MAX, token_remove},
};
enum { TOKEN_VERBS = sizeof(token_verbs) / sizeof(*token_verbs) };

static int token_check(size_t verb, char **ids, struct err *err) {
    size_t count = 0;
    while (ids[count] && count < token_verbs[verb].most)
        count++;
    if (count < token_verbs[verb].least)
        err_set(err, ERR_INVALID, "carrel token %s requires the id of a token",
                token_verbs[verb].name);
    else if (ids[count])
        err_set(err, ERR_INVALID, "unexpected argument '%s'", ids[count]);
    else
        return 0;
    return err_remedy(err, "see carrel token --help");
}

int cmd_token(int argc, char **argv) {
    struct token_options o = {0};
    struct client c DEFER(client_close) = {0};
    struct err err;
    int count = options_take(token_rows, argc, argv, &o, &err);
    if (count < 0)
        return cli_fail(&err);
    if (o.help) {
        cli_usage("token");
        options_print(token_rows);
        return 0;
    }
    const char *verb = count ? argv[1] : "";
    size_t v = 0;
    while (v < TOKEN_VERBS && strcmp(token_verbs[v].name, verb) != 0)
        v++;
    char **ids = argv + 1 + (count > 0);
    if (v == TOKEN_VERBS)
        cli_unknown_subcommand("token", verb, &err);
    else if (token_check(v, ids, &err) == 0 && client_open(&c, CLIENT_START, NULL, &err) == 0 &&
             token_verbs[v].run(&c, &o, ids, &err) == 0)
        return 0;
    return cli_fail(&err);
}

/* ---- audit ---- */

struct audit_options {
    const char *machine, *verb, *owner, *text, *head;
    uint64_t count;
    bool json, help;
};

const struct option_row audit_rows[] = {
    {0, "machine", "MACHINE", OPTION_TEXT, offsetof(struct audit_options, machine),
     "print only records about this machine: its name or id, also after its end"},
    {0, "verb", "VERB", OPTION_TEXT, offsetof(struct audit_options, verb),
     "print only records of this action (machine.create) or group of actions (machine)"},
    {0, "owner", "NAME", OPTION_TEXT, offsetof(struct audit_options, owner),
     "print only records of this owner (a user, or the owner of a token)"},
    {0, "text", "TEXT", OPTION_TEXT, offsetof(struct audit_options, text),
     "print only records that contain all words of this text, such as the name of a secret"},
    {'n', "count", "N", OPTION_NUMBER, offsetof(struct audit_options, count),
     "print only the last N records (default: all)"},
    {0, "head", "SEQ:HASH", OPTION_TEXT, offsetof(struct audit_options, head),
     "verify: fail unless record number SEQ of the journal has this HASH"},
    {0, "json", NULL, OPTION_FLAG, offsetof(struct audit_options, json),
     "print the records as JSON"},
    {'h', "help", NULL, OPTION_FLAG, offsetof(struct audit_options, help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};

/* ---- receipts ---- */

/* Hashes the list of files in a receipt (record of a shipment), in the format of `carrel ship`. */
static void list_hash(const json_t *files, char ret[SHA256_HEX]) {
    struct buf text DEFER(buf_done) = BUF(CLIENT_BODY_MAX);
    const json_t *file;
    size_t i;
    json_array_foreach(files, i, file) {
        if (!buf_addf(&text, "%s %s %s\n", client_text(file, "change"), client_text(file, "sha256"),
                      client_text(file, "path")))
            break;
    }
    sha256_hex(text.data ? text.data : "", text.len, ret);
}

/* Compares a receipt with its journal record; returns the difference, or NULL if they agree. */
static const char *receipt_fault(const json_t *receipt, const json_t *record) {
    static const char *const same[][2] = {{"changeset", "changeset"},
                                          {"archive_sha256", "archive"},
                                          {"files_sha256", "files_sha256"}};
    const json_t *detail = json_object_get(record, "detail");
    char hash[SHA256_HEX];
    list_hash(json_object_get(receipt, "files"), hash);
    if (strcmp(hash, client_text(receipt, "files_sha256")) != 0)
        return "not valid: its list of files does not match its hash";
    if (!record || strcmp(client_text(record, "verb"), "review.ship") != 0)
        return "not valid: the journal has no record with its number";
    for (size_t i = 0; i < sizeof(same) / sizeof(*same); i++)
        if (strcmp(client_text(receipt, same[i][0]), client_text(detail, same[i][1])) != 0)
            return "not valid: it differs from its record in the journal";
    return NULL;
}

static int find_record(struct client *c, long long seq, json_t **ret, struct err *err) {
    struct buf text DEFER(buf_done) = BUF(CLIENT_BODY_MAX);
    const struct client_request r = {
        .method = "GET", .target = "/v1/audit?verb=review", .accept = "*/*"};
    const struct http_head *head;
    if (client_send(c, c->http, &r, err) < 0 || client_answer(c->http, &head, err) < 0 ||
        http_client_collect(c->http, &text, err) < 0)
        return -1;
    for (const char *at = text.data, *end; at && !*ret && (end = strchr(at, '\n')); at = end + 1) {
        json_t *record DEFER(json_decrefp) = json_loadb(at, (size_t)(end - at), 0, NULL);
        if (client_number(record, "seq") == seq)
            *ret = json_incref(record);
    }
    return 0;
}

/* Prints whether a receipt matches the journal. 0: it matches; 1: it does not. */
static int verify_receipt(struct client *c, const char *path, struct err *err) {
    json_t *receipt DEFER(json_decrefp) = json_load_file(path, 0, NULL),
                    *record DEFER(json_decrefp) = NULL;
    if (!json_is_array(json_object_get(receipt, "files")))
        return err_set(err, ERR_INVALID, "file '%s' is not a receipt of carrel ship", path);
    if (find_record(c, client_number(receipt, "journal_record"), &record, err) < 0)
        return -1;
    const char *fault = receipt_fault(receipt, record);
    printf("%s: %s\n", path, fault ? fault : "valid: the journal has the same record");
    return fault ? 1 : 0;
}

static int verify_receipts(struct client *c, char **paths, struct err *err) {
    int status = 0;
    for (; *paths; paths++) {
        int r = verify_receipt(c, *paths, err);
        if (r < 0)
            return -1;
        status |= r;
    }
    return status;
}

static int verify(struct client *c, const struct audit_options *o, struct err *err) {
    char target[CLIENT_TARGET_SIZE] = "/v1/audit/verify";
    json_t *report DEFER(json_decrefp) = NULL;
    const struct client_request r = {.method = "GET", .target = target};
    if (client_query(target, "head", o->head, err) < 0 || client_call(c, &r, &report, err) < 0)
        return -1;
    bool whole = json_is_true(json_object_get(report, "whole"));
    if (o->json) {
        print_json(report);
    } else {
        printf("%lld record%s in %lld segment%s\nhead %s\n", client_number(report, "records"),
               client_number(report, "records") == 1 ? "" : "s", client_number(report, "segments"),
               client_number(report, "segments") == 1 ? "" : "s", client_text(report, "head"));
        if (client_number(report, "first") > 1)
            printf("the journal begins with record %lld: earlier records were deleted\n",
                   client_number(report, "first"));
        puts(whole ? "the journal is complete: every hash and signature is valid"
                   : client_text(report, "problem"));
    }
    return whole ? 0 : 1;
}

/* Prints the host, port, method and path of a connection, if the record is about one. */
static void print_crossing(const json_t *detail) {
    struct buf where DEFER(buf_done) = BUF(65536);
    const char *host = client_text(detail, "host");
    if (!*host)
        return;
    (void)!buf_addf(&where, "%s", host);
    if (client_number(detail, "port"))
        (void)!buf_addf(&where, ":%lld", client_number(detail, "port"));
    if (*client_text(detail, "method"))
        table_cell(client_text(detail, "method"), 0);
    table_cell(where.data ? where.data : host, 0);
    if (*client_text(detail, "path"))
        table_cell(client_text(detail, "path"), 0);
}

/* Prints why something happened: the reason of the record, or that in its details. */
static void print_reason(const json_t *record) {
    const char *reason = client_text(record, "reason");
    table_cell(*reason ? reason : client_text(json_object_get(record, "detail"), "why"), 0);
}

/* Prints a record as one line: time, kind, owner, verb, machine and details. */
static void print_record(const char *line, size_t n) {
    json_t *r DEFER(json_decrefp) = json_loadb(line, n, 0, NULL);
    long long ms = client_number(r, "time");
    char when[32];
    time_t seconds = (time_t)(ms / 1000);
    struct tm tm;
    if (!r || !gmtime_r(&seconds, &tm) || !strftime(when, sizeof(when), "%F %T", &tm))
        return;
    printf("%s  ", when);
    table_cell(client_text(r, "kind"), 6);
    table_cell(client_text(r, "owner"), 8);
    table_cell(client_text(r, "verb"), 14);
    table_cell(client_text(r, "machine"), 14);
    size_t i;
    json_t *word;
    json_array_foreach(json_object_get(r, "argv"), i, word) {
        table_cell(json_string_value(word), 0);
    }
    if (json_object_get(r, "exit"))
        printf("exit %lld  ", client_number(r, "exit"));
    print_crossing(json_object_get(r, "detail"));
    print_reason(r);
    putchar('\n');
}

static int copy_records(struct client *c, bool json, struct err *err) {
    struct buf text DEFER(buf_done) = BUF(CLIENT_BODY_MAX);
    if (http_client_collect(c->http, &text, err) < 0)
        return -1;
    for (const char *at = text.data, *end; at && (end = strchr(at, '\n')); at = end + 1)
        /* A pipe or file gets the exact bytes that were hashed; a terminal gets safe text. */
        if (json && !isatty(STDOUT_FILENO))
            fwrite(at, 1, (size_t)(end - at) + 1, stdout);
        else if (json)
            safe_json(stdout, at, (size_t)(end - at) + 1);
        else
            print_record(at, (size_t)(end - at));
    return 0;
}

static int show_records(struct client *c, const struct audit_options *o, struct err *err) {
    char target[CLIENT_TARGET_SIZE] = "/v1/audit", tail[24];
    const struct http_head *head;
    snprintf(tail, sizeof(tail), "%llu", (unsigned long long)o->count);
    const struct client_request r = {.method = "GET", .target = target, .accept = "*/*"};
    if (client_query(target, "machine", o->machine, err) < 0 ||
        client_query(target, "verb", o->verb, err) < 0 ||
        client_query(target, "owner", o->owner, err) < 0 ||
        client_query(target, "text", o->text, err) < 0 ||
        client_query(target, "tail", o->count ? tail : NULL, err) < 0 ||
        client_send(c, c->http, &r, err) < 0 || client_answer(c->http, &head, err) < 0)
        return -1;
    if (!o->json)
        pager_start();
    return copy_records(c, o->json, err);
}

int cmd_audit(int argc, char **argv) {
    struct audit_options o = {0};
    struct client c DEFER(client_close) = {0};
    struct err err;
    int count = options_take(audit_rows, argc, argv, &o, &err);
    if (count < 0)
        return cli_fail(&err);
    bool verifying = count && strcmp(argv[1], "verify") == 0;
    if (o.help) {
        cli_usage("audit");
        options_print(audit_rows);
        return 0;
    }
    if (count && !verifying) {
        cli_unknown_subcommand("audit", argv[1], &err);
        return cli_fail(&err);
    }
    if (client_open(&c, CLIENT_START, NULL, &err) < 0)
        return cli_fail(&err);
    int r = verifying ? verify(&c, &o, &err) : show_records(&c, &o, &err);
    if (verifying && r == 0)
        r = verify_receipts(&c, argv + 2, &err);
    return r < 0 ? cli_fail(&err) : r;
}
