/* carrel backup: backups of machines. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/defer.h"
#include "base/id.h"
#include "base/jot.h"
#include "cli/backups/away.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/machine.h"
#include "cli/options.h"
#include "cli/table.h"

enum { BACKUP_WORDS = 3 };

struct backup_options {
    const char *as, *to;
    const char *of; /* a backup in a directory; NULL: the newest one */
    uint64_t keep;  /* 0: not given */
    bool quiet, json, help;
};

#define AT(member) offsetof(struct backup_options, member)

const struct option_row backup_rows[] = {
    {0, "as", "NAME", OPTION_TEXT, AT(as), "restore: name of the new machine"},
    {0, "to", "DIR", OPTION_TEXT, AT(to), "also copy the backup to a directory, which may be new"},
    {0, "keep-last", "COUNT", OPTION_NUMBER, AT(keep), "prune: number of backups to keep"},
    {'q', "quiet", NULL, OPTION_FLAG, AT(quiet), "print only ids"},
    {0, "json", NULL, OPTION_FLAG, AT(json), "print JSON"},
    {'h', "help", NULL, OPTION_FLAG, AT(help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};

static int backup_call(struct client *c, const char *method, const char *target,
                       const struct buf *body, json_t **ret, struct err *err) {
    const struct client_request r = {.method = method, .target = target, .body = body};
    return client_call(c, &r, ret, err);
}

static int backup_fetch(struct client *c, const char *machine, json_t **ret, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    return client_target(target, err, machine ? "/v1/backups?machine=%s" : "/v1/backups", machine) <
                   0
               ? -1
               : backup_call(c, "GET", target, NULL, ret, err);
}

/* The id of a backup: `word` itself, or that of the newest backup of a machine. */
static int backup_id(struct client *c, const char *word, char ret[ID_SIZE], struct err *err) {
    json_t *all DEFER(json_decrefp) = NULL;
    if (id_valid(word, strlen(word), 'k')) {
        snprintf(ret, ID_SIZE, "%s", word);
        return 0;
    }
    if (backup_fetch(c, word, &all, err) < 0)
        return -1;
    const char *id = client_text(json_array_get(json_object_get(all, "backups"), 0), "id");
    if (!id_valid(id, strlen(id), 'k')) {
        err_set(err, ERR_NOT_FOUND, "machine '%s' has no backups", word);
        return err_remedy(err, "make one with: carrel backup %s", word);
    }
    snprintf(ret, ID_SIZE, "%s", id);
    return 0;
}

/* With --to, the word may also be a backup. */
static int backup_take(struct client *c, const char *word, const struct backup_options *o,
                       json_t **ret, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    uint64_t bytes;
    if (o->to && id_valid(word, strlen(word), 'k')) {
        *ret = json_pack("{s:s}", "id", word);
    } else if (client_target(target, err, "/v1/machines/%s/backups", word) < 0 ||
               backup_call(c, "POST", target, NULL, ret, err) < 0) {
        return -1;
    }
    if (!o->to)
        return 0;
    if (away_save(c, client_text(*ret, "id"), o->to, o->quiet, &bytes, err) < 0)
        return err_wrap(err, "backup '%s' is in the store, but not in directory '%s'",
                        client_text(*ret, "id"), o->to);
    json_object_set_new(*ret, "copied_bytes", json_integer((json_int_t)bytes));
    return 0;
}

static int backup_list(struct client *c, const char *word, const struct backup_options *o,
                       json_t **ret, struct err *err) {
    json_t *list = NULL;
    (void)o;
    if (!word || !away_is_dir(word))
        return backup_fetch(c, word, ret, err);
    if (away_list(word, &list, err) < 0)
        return -1;
    *ret = json_pack("{s:o}", "backups", list);
    return 0;
}

static int backup_verify(struct client *c, const char *word, const struct backup_options *o,
                         json_t **ret, struct err *err) {
    char target[CLIENT_TARGET_SIZE], id[ID_SIZE];
    json_t *away DEFER(json_decrefp) = NULL;
    uint64_t bytes;
    if (!away_is_dir(word))
        return backup_id(c, word, id, err) < 0 ||
                       client_target(target, err, "/v1/backups/%s/verify", id) < 0
                   ? -1
                   : backup_call(c, "POST", target, NULL, ret, err);
    if (away_find(word, o->of, &away, err) < 0 ||
        away_verify(word, away, o->quiet, &bytes, err) < 0)
        return -1;
    *ret = json_pack("{s:O, s:I, s:I}", "id", json_object_get(away, "id"), "packs",
                     (json_int_t)json_array_size(json_object_get(away, "packs")), "bytes",
                     (json_int_t)bytes);
    return 0;
}

/* Stores a copy in the daemon, makes a machine of it, and forgets it. */
static int backup_restore_away(struct client *c, const char *dir, const struct backup_options *o,
                               const struct buf *body, json_t **ret, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    json_t *away DEFER(json_decrefp) = NULL, *stored DEFER(json_decrefp) = NULL;
    struct err ignored;
    if (away_find(dir, o->of, &away, err) < 0 ||
        away_send(c, dir, away, o->quiet, &stored, err) < 0)
        return -1;
    int r = client_target(target, err, "/v1/backups/%s/restore", client_text(stored, "id"));
    if (r == 0)
        r = backup_call(c, "POST", target, body, ret, err);
    if (client_target(target, &ignored, "/v1/backups/%s", client_text(stored, "id")) == 0)
        backup_call(c, "DELETE", target, NULL, NULL, &ignored);
    return r;
}

static int backup_restore(struct client *c, const char *word, const struct backup_options *o,
                          json_t **ret, struct err *err) {
    struct buf body DEFER(buf_done) = BUF(8192);
    struct jot j = JOT(&body);
    char target[CLIENT_TARGET_SIZE], id[ID_SIZE];
    jot_object(&j, NULL);
    if (o->as)
        jot_string(&j, "as", o->as);
    jot_end(&j, '}');
    if (j.failed)
        return err_set(err, ERR_LIMIT, "--as: the name is too long");
    if (away_is_dir(word))
        return backup_restore_away(c, word, o, &body, ret, err);
    return backup_id(c, word, id, err) < 0 ||
                   client_target(target, err, "/v1/backups/%s/restore", id) < 0
               ? -1
               : backup_call(c, "POST", target, &body, ret, err);
}

static int backup_forget(struct client *c, const char *word, const struct backup_options *o,
                         json_t **ret, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    (void)o;
    return client_target(target, err, "/v1/backups/%s", word) < 0
               ? -1
               : backup_call(c, "DELETE", target, NULL, ret, err);
}

static int backup_prune(struct client *c, const char *word, const struct backup_options *o,
                        json_t **ret, struct err *err) {
    struct buf body DEFER(buf_done) = BUF(256);
    struct jot j = JOT(&body);
    char target[CLIENT_TARGET_SIZE];
    if (!o->keep)
        return err_set(err, ERR_INVALID, "carrel backup prune needs --keep-last COUNT");
    jot_object(&j, NULL);
    jot_u64(&j, "keep", o->keep);
    jot_end(&j, '}');
    return client_target(target, err, "/v1/machines/%s/backups/prune", word) < 0
               ? -1
               : backup_call(c, "POST", target, &body, ret, err);
}

/* ---- output ---- */

static void backup_line(const json_t *b) {
    char when[32], bytes[16], written[16];
    const char *name = client_text(b, "name");
    time_t at = (time_t)(client_number(b, "created_ms") / 1000);
    struct tm tm;
    if (!gmtime_r(&at, &tm) || !strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &tm))
        when[0] = '\0';
    table_bytes(client_number(b, "bytes"), bytes);
    table_bytes(client_number(b, "written_bytes"), written);
    table_cell(client_text(b, "id"), 14);
    table_cell(when, 19);
    table_cell(bytes, 6);
    table_cell(written, 7);
    table_cell(*name ? name : client_text(b, "machine"), 0);
    putchar('\n');
}

static void print_backup(const json_t *b, const struct backup_options *o) {
    char written[16];
    puts(client_text(b, "id"));
    if (o->to) {
        table_bytes(client_number(b, "copied_bytes"), written);
        cli_done(o->quiet, "copied %s; restore it on any host with: carrel backup restore %s",
                 written, o->to);
        return;
    }
    table_bytes(client_number(b, "written_bytes"), written);
    cli_done(o->quiet, "stored %s; restore it with: carrel backup restore %s", written,
             client_text(b, "id"));
}

static void print_list(const json_t *answer, const struct backup_options *o) {
    const json_t *all = json_object_get(answer, "backups"), *b;
    size_t i;
    if (o->quiet) {
        print_ids(all, "id");
        return;
    }
    puts("BACKUP          TIME                 SIZE    STORED   MACHINE");
    json_array_foreach(all, i, b) {
        backup_line(b);
    }
}

static void print_verified(const json_t *v, const struct backup_options *o) {
    char bytes[16];
    table_bytes(client_number(v, "bytes"), bytes);
    cli_done(o->quiet, "backup '%s' is complete: %s in %lld packs match their hashes",
             client_text(v, "id"), bytes, (long long)client_number(v, "packs"));
}

static void print_restored(const json_t *m, const struct backup_options *o) {
    (void)o;
    if (*client_text(m, "warnings"))
        fprintf(stderr, "carrel: warning: %s\n", client_text(m, "warnings"));
    puts(client_text(m, "id"));
}

static void print_forgotten(const json_t *f, const struct backup_options *o) {
    long long n = (long long)client_number(f, "forgotten");
    cli_done(o->quiet, "deleted %lld backup%s", n, n == 1 ? "" : "s");
}

static const struct backup_verb {
    const char *name;
    bool needs; /* a machine or backup */
    int (*run)(struct client *c, const char *word, const struct backup_options *o, json_t **ret,
               struct err *err);
    void (*print)(const json_t *answer, const struct backup_options *o);
} verbs[] = {
    {"ls", false, backup_list, print_list},
    {"verify", true, backup_verify, print_verified},
    {"restore", true, backup_restore, print_restored},
    {"forget", true, backup_forget, print_forgotten},
    {"prune", true, backup_prune, print_forgotten},
};
/* The word is the machine. */
static const struct backup_verb take = {"", true, backup_take, print_backup};
enum { VERBS = sizeof(verbs) / sizeof(*verbs) };

static int backup_options_fit(const struct backup_verb *v, const char *word, const char *of,
                              struct backup_options *o, struct err *err) {
    if ((o->as && v->run != backup_restore) || (o->keep && v->run != backup_prune) ||
        (o->to && v != &take))
        return err_set(err, ERR_INVALID,
                       "--to belongs to carrel backup MACHINE, --as to restore, and --keep-last "
                       "to prune");
    if (o->to && !away_is_dir(o->to)) {
        err_set(err, ERR_INVALID, "--to needs a directory with a slash in its name");
        return err_remedy(err, "for one in this directory, write: --to ./%s", o->to);
    }
    o->of = of;
    if (!of || ((v->run == backup_verify || v->run == backup_restore) && away_is_dir(word) &&
                id_valid(of, strlen(of), 'k')))
        return 0;
    err_set(err, ERR_INVALID, "'%.60s' is not a backup in a directory", of);
    return err_remedy(err, "see carrel backup --help");
}

static const struct backup_verb *backup_verb_of(char **words, int count, const char **ret_word,
                                                struct backup_options *o, struct err *err) {
    size_t i = 0;
    while (i < VERBS && (!count || strcmp(verbs[i].name, words[0]) != 0))
        i++;
    const struct backup_verb *v = i < VERBS ? &verbs[i] : &take;
    *ret_word = words[v == &take ? 0 : 1];
    if (v->needs ? !*ret_word : false) {
        err_set(err, ERR_INVALID, "carrel backup%s%s needs a machine or backup",
                v == &take ? "" : " ", v->name);
        err_remedy(err, "see carrel backup --help");
        return NULL;
    }
    if (v == &take && count > 1) {
        cli_unknown_subcommand("backup", words[0], err);
        return NULL;
    }
    return backup_options_fit(v, *ret_word, count > 2 ? words[2] : NULL, o, err) < 0 ? NULL : v;
}

int cmd_backup(int argc, char **argv) {
    struct client c DEFER(client_close) = {0};
    json_t *answer DEFER(json_decrefp) = NULL;
    struct err err;
    struct backup_options o = {.quiet = false};
    char *words[BACKUP_WORDS + 1] = {NULL};
    const char *word = NULL;
    int count = options_words(backup_rows, argc, argv, &o, words, BACKUP_WORDS, &err);
    if (count < 0)
        return cli_fail(&err);
    if (o.help) {
        cli_help("backup");
        return 0;
    }
    const struct backup_verb *v = backup_verb_of(words, count, &word, &o, &err);
    /* What is in a directory is listed and checked without a daemon. */
    bool alone =
        v && word && away_is_dir(word) && (v->run == backup_list || v->run == backup_verify);
    if (!v || (!alone && client_open(&c, CLIENT_START, NULL, &err) < 0) ||
        v->run(&c, word, &o, &answer, &err) < 0)
        return cli_fail(&err);
    if (o.json)
        print_json(answer);
    else
        v->print(answer, &o);
    return 0;
}
