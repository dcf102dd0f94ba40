#include "cli/ship/slices.h"

#include <stdio.h>
#include <string.h>

#include "base/defer.h"
#include "base/id.h"
#include "cli/cli.h"
#include "cli/table.h"

static bool is_changeset(const char *word) {
    return id_valid(word, strlen(word), 'c');
}

static int slices_ask(struct client *c, const char *format, const char *word, json_t **ret,
                      struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "GET", .target = target};
    return client_target(target, err, format, word) < 0 ? -1 : client_call_again(c, &r, ret, err);
}

static const struct {
    const char *kind, *mode; /* mode NULL: any */
    enum slice_kind is;
} kinds[] = {{"dir", "cow", SLICE_DIR},
             {"repo", NULL, SLICE_REPO},
             {"sqlite", NULL, SLICE_DATABASE},
             {"postgres", NULL, SLICE_SERVER}};

static bool slices_kind_of(const char *kind, const char *mode, enum slice_kind *ret) {
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        *ret = kinds[i].is;
        if (strcmp(kinds[i].kind, kind) == 0 &&
            (!mode || !kinds[i].mode || strcmp(kinds[i].mode, mode) == 0))
            return true;
    }
    return false;
}

/* mode NULL: it is known to come back. */
static void slices_take(struct slices *s, const char *kind, const char *mode, const char *at,
                        const char *home) {
    struct slice *one = &s->list[s->count];
    const char *slash = strrchr(home, '/');
    if (s->count == SLICES_MAX || !slices_kind_of(kind, mode, &one->kind))
        return;
    s->count++;
    snprintf(one->at, sizeof(one->at), "%s", at);
    if (one->kind == SLICE_DATABASE && slash) /* the directory that the file is in */
        snprintf(one->home, sizeof(one->home), "%.*s", slash > home ? (int)(slash - home) : 1,
                 home);
    else
        snprintf(one->home, sizeof(one->home), "%s", one->kind == SLICE_SERVER ? "" : home);
}

int slices_of(struct client *c, const char *machine, struct slices *ret, struct err *err) {
    json_t *answer DEFER(json_decrefp) = NULL, *grant;
    size_t i;
    if (slices_ask(c, "/v1/machines/%s/grants", machine, &answer, err) < 0)
        return -1;
    ret->count = 0;
    json_array_foreach(json_object_get(answer, "grants"), i, grant) {
        slices_take(ret, client_text(grant, "kind"), client_text(grant, "mode"),
                    client_text(grant, "at"), client_text(grant, "what"));
    }
    return 0;
}

static int of_changeset(struct client *c, const char *id, struct slices *ret, struct err *err) {
    json_t *set DEFER(json_decrefp) = NULL;
    if (slices_ask(c, "/v1/changesets/%s", id, &set, err) < 0)
        return -1;
    const char *home = client_text(set, "home");
    if (json_is_true(json_object_get(set, "revoked"))) {
        err_set(err, ERR_DENIED, "what change set '%s' is the work on was taken back: %s", id,
                home);
        return err_remedy(err, "to let it out all the same: carrel ship %s DIRECTORY", id);
    }
    ret->count = 0;
    slices_take(ret, client_text(set, "kind"), NULL, client_text(set, "slice"), home);
    if (ret->count)
        return 0;
    err_set(err, ERR_INVALID, "change set '%s' is the work on nothing that was handed over", id);
    return err_remedy(err, "name where to: carrel ship %s DIRECTORY", id);
}

int slices_find(struct client *c, const char *word, struct slices *ret, struct err *err) {
    if (strchr(word, ':'))
        return err_set(err, ERR_INVALID, "no directory named");
    if (is_changeset(word))
        return of_changeset(c, word, ret, err);
    if (slices_of(c, word, ret, err) < 0)
        return -1;
    if (ret->count)
        return 0;
    err_set(err, ERR_INVALID, "machine '%s' was handed nothing that comes back", word);
    return err_remedy(err, "name what and where to: carrel ship MACHINE[:PATH] DIRECTORY");
}

void slice_word(const struct slice *s, const char *what, char ret[SLICE_WORD]) {
    bool plain = s->kind == SLICE_REPO || is_changeset(what);
    snprintf(ret, SLICE_WORD, "%.250s%s%s", what, plain ? "" : ":", plain ? "" : s->at);
}
