#include "cli/mcp_machine.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/hex.h"
#include "base/sha256.h"
#include "cli/machine.h"

#define META_NAME "mcp_dir"

enum { IDLE_MS = 30 * 60 * 1000, RULES_MAX = 4096 };

bool mcp_grants_given(const struct mcp_grants *g) {
    return g->dirs.count || g->net.count || g->models || g->budget || g->image || g->mem ||
           g->cpu_milli || g->disk;
}

/* ---- the options as those of `new` ---- */

/* Splits "apt,npm" into rules. The word "local" belongs to the rule before it. */
static int split_rules(const struct option_list *from, char *room, size_t size,
                       struct option_list *ret, struct err *err) {
    char *at = room, *end = room + size;
    for (size_t i = 0; i < from->count; i++)
        for (const char *s = from->items[i], *comma; s; s = comma ? comma + 1 : NULL) {
            comma = strchr(s, ',');
            if (comma && strncmp(comma, ",local", 6) == 0 && (!comma[6] || comma[6] == ','))
                comma = strchr(comma + 1, ',');
            size_t n = comma ? (size_t)(comma - s) : strlen(s);
            if (n + 1 > (size_t)(end - at) || ret->count == OPTION_LIST_MAX)
                return err_set(err, ERR_LIMIT, "--net: there are too many rules");
            memcpy(at, s, n);
            at[n] = '\0';
            ret->items[ret->count++] = at;
            at += n + 1;
        }
    return 0;
}

/* A budget that is a plain number is money, as for `carrel agent`. */
static int models_of(const struct mcp_grants *g, char *room, size_t size, const char **ret,
                     struct err *err) {
    if (g->models && g->budget)
        return err_set(err, ERR_INVALID, "--models and --budget cannot be used together");
    bool plain = g->budget && !strchr(g->budget, '=') && strcmp(g->budget, "any") != 0;
    if (g->budget && (size_t)snprintf(room, size, "%s%s", plain ? "money=" : "", g->budget) >= size)
        return err_set(err, ERR_INVALID, "--budget %.40s...: too long", g->budget);
    *ret = g->budget ? room : g->models;
    struct buf unused DEFER(buf_done) = BUF(1024);
    struct jot j = JOT(&unused);
    if (net_put_models(&j, *ret, err) < 0)
        return err_wrap(err, "%s %.60s", g->budget ? "--budget" : "--models",
                        g->budget ? g->budget : g->models);
    return 0;
}

/* An agent gets no directory whose changes need no review. */
static int check_dirs(const struct option_list *dirs, struct err *err) {
    for (size_t i = 0; i < dirs->count; i++) {
        const char *mode = strstr(dirs->items[i], ":rw");
        if (!mode || (mode[3] && mode[3] != ':'))
            continue;
        err_set(err, ERR_INVALID, "--dir %.200s: must be a copy (cow) or read-only (ro)",
                dirs->items[i]);
        return err_remedy(err, "to skip the review, make a machine with carrel new --unreviewed, "
                               "and use carrel mcp --machine");
    }
    return 0;
}

/* ---- the machine ---- */

static void key_add(struct sha256 *s, const char *name, const char *value) {
    if (!value)
        return;
    sha256_add(s, name, strlen(name) + 1);
    sha256_add(s, value, strlen(value) + 1);
}

static void key_add_list(struct sha256 *s, const char *name, const struct option_list *list) {
    for (size_t i = 0; i < list->count; i++)
        key_add(s, name, list->items[i]);
}

/* Hashes the current directory and the options: other options are for another machine. */
static int machine_key(const struct mcp_grants *g, char ret[33], struct err *err) {
    char *cwd DEFER_FREE = getcwd(NULL, 0), limits[80];
    uint8_t hash[SHA256_BYTES];
    struct sha256 s;
    if (!cwd)
        return err_sys(err, "cannot find the present directory");
    snprintf(limits, sizeof(limits), "%" PRIu64 " %" PRIu64 " %" PRIu64, g->mem, g->cpu_milli,
             g->disk);
    sha256_init(&s);
    key_add(&s, "cwd", cwd);
    key_add_list(&s, "dir", &g->dirs);
    key_add_list(&s, "net", &g->net);
    key_add(&s, "models", g->models);
    key_add(&s, "budget", g->budget);
    key_add(&s, "image", g->image);
    key_add(&s, "limits", limits);
    sha256_end(&s, hash);
    hex_put(hash, 16, ret);
    return 0;
}

/* A fork has the metadata of its source, but nothing that was granted to it. */
static int machine_find(struct client *c, const char *key, char ret[ID_SIZE], struct err *err) {
    json_t *all DEFER(json_decrefp) = NULL, *m;
    size_t i;
    if (machines_list(c, &all, err) < 0)
        return -1;
    json_array_foreach(json_object_get(all, "machines"), i, m) {
        const json_t *meta = json_object_get(m, "metadata");
        const char *state = client_text(m, "state");
        bool ended = strcmp(state, "ending") == 0 || strcmp(state, "ended") == 0;
        if (!ended && strcmp(client_text(meta, META_NAME), key) == 0 &&
            !*client_text(meta, "forked_from"))
            snprintf(ret, ID_SIZE, "%s", client_text(m, "id"));
    }
    return 0;
}

static int machine_make(struct client *c, const struct mcp_grants *g, const char *key,
                        char ret[ID_SIZE], struct err *err) {
    json_t *machine DEFER(json_decrefp) = NULL;
    char rules[RULES_MAX], models[128], meta[64];
    struct new_options *n DEFER_FREE = xnew(struct new_options);
    *n = (struct new_options){
        .image = g->image, .idle_action = "stop", .idle_ms = IDLE_MS, .quiet = true};
    n->spec.dirs = g->dirs;
    n->spec.mem = g->mem;
    n->spec.cpu_milli = g->cpu_milli;
    n->spec.disk = g->disk;
    snprintf(meta, sizeof(meta), "%s=%s", META_NAME, key);
    n->meta = (struct option_list){.items = {meta}, .count = 1};
    if (check_dirs(&g->dirs, err) < 0 ||
        split_rules(&g->net, rules, sizeof(rules), &n->net, err) < 0 ||
        models_of(g, models, sizeof(models), &n->models, err) < 0 ||
        new_make(n, c, &machine, err) < 0)
        return -1;
    snprintf(ret, ID_SIZE, "%s", client_text(machine, "id"));
    fprintf(stderr,
            "carrel: machine %s is made for the agent; see its changes with carrel diff %s, and "
            "delete it with carrel rm %s\n",
            ret, ret, ret);
    return 0;
}

int mcp_machine(struct client *c, const struct mcp_grants *g, char ret[ID_SIZE], struct err *err) {
    char key[33];
    ret[0] = '\0';
    if (machine_key(g, key, err) < 0 || machine_find(c, key, ret, err) < 0)
        return -1;
    return ret[0] ? 0 : machine_make(c, g, key, ret, err);
}
