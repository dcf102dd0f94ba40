/* carrel volume: disks that outlive machines. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/defer.h"
#include "base/jot.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/options.h"
#include "cli/table.h"
#include "cli/text/units.h"

enum { VOLUME_WORDS = 3 };

struct volume_options {
    uint64_t size; /* 0: not given */
    const char *from;
    bool quiet, json, help;
};

#define AT(member) offsetof(struct volume_options, member)

const struct option_row volume_rows[] = {
    {0, "size", "SIZE", OPTION_SIZE, AT(size), "create: limit of the volume (default: 1G)"},
    {0, "from", "VOLUME", OPTION_TEXT, AT(from),
     "create: copy this volume or snapshot, which no machine may have"},
    {'q', "quiet", NULL, OPTION_FLAG, AT(quiet),
     "ls: print only names; create, snap, rm: print nothing"},
    {0, "json", NULL, OPTION_FLAG, AT(json), "print JSON"},
    {'h', "help", NULL, OPTION_FLAG, AT(help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};

static int volume_call(struct client *c, const char *method, const char *target,
                       const struct buf *body, json_t **ret, struct err *err) {
    const struct client_request r = {.method = method, .target = target, .body = body};
    return client_call(c, &r, ret, err);
}

static int volume_create(struct client *c, char **words, const struct volume_options *o,
                         json_t **ret, struct err *err) {
    struct buf body DEFER(buf_done) = BUF(8192);
    struct jot j = JOT(&body);
    jot_object(&j, NULL);
    jot_string(&j, "name", words[0]);
    if (o->size)
        jot_u64(&j, "size", o->size);
    if (o->from)
        jot_string(&j, "from", o->from);
    jot_end(&j, '}');
    if (j.failed)
        return err_set(err, ERR_LIMIT, "the name of the volume is too long");
    return volume_call(c, "POST", "/v1/volumes", &body, ret, err);
}

static int volume_list(struct client *c, char **words, const struct volume_options *o, json_t **ret,
                       struct err *err) {
    (void)words, (void)o;
    return volume_call(c, "GET", "/v1/volumes", NULL, ret, err);
}

static int volume_show(struct client *c, char **words, const struct volume_options *o, json_t **ret,
                       struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    (void)o;
    if (client_target(target, err, "/v1/volumes/%s", words[0]) < 0)
        return -1;
    return volume_call(c, "GET", target, NULL, ret, err);
}

static int volume_snap(struct client *c, char **words, const struct volume_options *o, json_t **ret,
                       struct err *err) {
    struct buf body DEFER(buf_done) = BUF(8192);
    struct jot j = JOT(&body);
    char target[CLIENT_TARGET_SIZE];
    (void)o;
    jot_object(&j, NULL);
    if (words[1])
        jot_string(&j, "name", words[1]);
    jot_end(&j, '}');
    if (j.failed)
        return err_set(err, ERR_LIMIT, "the name of the snapshot is too long");
    if (client_target(target, err, "/v1/volumes/%s/snapshots", words[0]) < 0)
        return -1;
    return volume_call(c, "POST", target, &body, ret, err);
}

static int volume_drop(struct client *c, char **words, const struct volume_options *o, json_t **ret,
                       struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    (void)o, (void)ret;
    if (client_target(target, err, "/v1/volumes/%s", words[0]) < 0)
        return -1;
    return volume_call(c, "DELETE", target, NULL, NULL, err);
}

static const struct volume_verb {
    const char *name;
    int least, most; /* arguments */
    int (*run)(struct client *c, char **words, const struct volume_options *o, json_t **ret,
               struct err *err);
    const char *done; /* what it did to the volume; NULL: nothing was changed */
    bool makes;       /* takes --size and --from */
} verbs[] = {
    {"create", 1, 1, volume_create, "made volume", true},
    {"ls", 0, 0, volume_list, NULL, false},
    {"show", 1, 1, volume_show, NULL, false},
    {"snap", 1, 2, volume_snap, "made snapshot", false},
    {"rm", 1, 1, volume_drop, "deleted volume", false},
};
enum { VERBS = sizeof(verbs) / sizeof(*verbs) };

/* Prints the machines that have the volume, such as "m-1:rw m-2:ro". */
static void print_uses(const json_t *volume) {
    size_t i;
    const json_t *use;
    json_array_foreach(json_object_get(volume, "machines"), i, use) {
        char text[160];
        snprintf(text, sizeof(text), "%s:%s", client_text(use, "machine"),
                 client_text(use, "mode"));
        if (i)
            putchar(' ');
        table_cell(text, 0);
    }
    putchar('\n');
}

static void print_volume(const json_t *v) {
    char size[16], used[16];
    table_bytes(client_number(v, "size"), size);
    table_bytes(client_number(v, "used_bytes"), used);
    table_cell(client_text(v, "name"), 24);
    table_cell(size, 6);
    table_cell(used, 6);
    print_uses(v);
}

static void print_volumes(const json_t *volumes, bool names_only) {
    size_t i;
    const json_t *v;
    if (names_only) {
        print_ids(volumes, "name");
        return;
    }
    puts("VOLUME                    SIZE    USED    MACHINES");
    json_array_foreach(volumes, i, v) {
        print_volume(v);
    }
}

static void volume_print(const struct volume_verb *v, const json_t *answer, char **words,
                         const struct volume_options *o) {
    const json_t *volumes = json_object_get(answer, "volumes");
    const char *name = answer && v->done ? client_text(answer, "name") : words[0];
    if (o->json && answer)
        print_json(answer);
    else if (volumes)
        print_volumes(volumes, o->quiet);
    else if (!v->done)
        units_print(answer, 0);
    if (v->done)
        cli_done(o->quiet || o->json, "%s '%s'", v->done, name);
}

static const struct volume_verb *volume_verb_of(char **words, int count,
                                                const struct volume_options *o, struct err *err) {
    size_t i = 0;
    while (i < VERBS && (!count || strcmp(verbs[i].name, words[0]) != 0))
        i++;
    if (i == VERBS) {
        cli_unknown_subcommand("volume", count ? words[0] : "", err);
        return NULL;
    }
    const struct volume_verb *v = &verbs[i];
    if (count - 1 < v->least || count - 1 > v->most) {
        err_set(err, ERR_INVALID, "carrel volume %s takes %d%s argument%s", v->name, v->least,
                v->most > v->least ? " or 2" : "", v->most == 1 ? "" : "s");
        err_remedy(err, "see carrel volume --help");
        return NULL;
    }
    if (!v->makes && (o->size || o->from)) {
        err_set(err, ERR_INVALID, "carrel volume %s does not take --size or --from", v->name);
        return NULL;
    }
    return v;
}

int cmd_volume(int argc, char **argv) {
    struct client c DEFER(client_close) = {0};
    json_t *answer DEFER(json_decrefp) = NULL;
    struct err err;
    struct volume_options o = {.quiet = false};
    char *words[VOLUME_WORDS + 1] = {NULL};
    int count = options_words(volume_rows, argc, argv, &o, words, VOLUME_WORDS, &err);
    if (count < 0)
        return cli_fail(&err);
    if (o.help) {
        cli_help("volume");
        return 0;
    }
    const struct volume_verb *v = volume_verb_of(words, count, &o, &err);
    if (!v || client_open(&c, CLIENT_START, NULL, &err) < 0 ||
        v->run(&c, words + 1, &o, &answer, &err) < 0)
        return cli_fail(&err);
    if (!answer && o.json)
        answer = json_pack("{s:s}", "name", words[1]);
    volume_print(v, answer, words + 1, &o);
    return 0;
}
