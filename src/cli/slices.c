#include "cli/slices.h"

#include <stdio.h>
#include <string.h>

#include "base/defer.h"
#include "base/id.h"
#include "cli/cli.h"
#include "cli/table.h"

static bool is_changeset(const char *word) {
    return id_valid(word, strlen(word), 'c');
}

static int ask(struct client *c, const char *format, const char *word, json_t **ret,
               struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "GET", .target = target};
    return client_target(target, err, format, word) < 0 ? -1 : client_call(c, &r, ret, err);
}

static void take(struct slices *s, const json_t *grant) {
    const char *kind = client_text(grant, "kind");
    bool is_repo = strcmp(kind, "repo") == 0,
         is_copy = strcmp(kind, "dir") == 0 && strcmp(client_text(grant, "mode"), "cow") == 0;
    if ((!is_repo && !is_copy) || s->count == SLICES_MAX)
        return;
    struct slice *one = &s->list[s->count++];
    snprintf(one->at, sizeof(one->at), "%s", client_text(grant, "at"));
    snprintf(one->home, sizeof(one->home), "%s", client_text(grant, "what"));
    one->is_repo = is_repo;
}

int slices_of(struct client *c, const char *machine, struct slices *ret, struct err *err) {
    json_t *answer DEFER(json_free) = NULL, *grant;
    size_t i;
    if (ask(c, "/v1/machines/%s/grants", machine, &answer, err) < 0)
        return -1;
    ret->count = 0;
    json_array_foreach(json_object_get(answer, "grants"), i, grant) {
        take(ret, grant);
    }
    return 0;
}

/* Only what lies there. */
static void keep_only(struct slices *s, const char *at) {
    size_t kept = 0;
    for (size_t i = 0; i < s->count; i++)
        if (strcmp(s->list[i].at, at) == 0)
            s->list[kept++] = s->list[i];
    s->count = kept;
}

int slices_find(struct client *c, const char *word, struct slices *ret, struct err *err) {
    json_t *set DEFER(json_free) = NULL;
    bool frozen = is_changeset(word);
    if (strchr(word, ':'))
        return err_set(err, ERR_INVALID, "no directory named");
    if (frozen && ask(c, "/v1/changesets/%s", word, &set, err) < 0)
        return -1;
    const char *machine = frozen ? client_text(set, "machine") : word;
    if (slices_of(c, machine, ret, err) < 0)
        return -1;
    if (frozen)
        keep_only(ret, client_text(set, "slice"));
    if (ret->count)
        return 0;
    err_set(err, ERR_INVALID, "machine '%s' was handed nothing that comes back%s", machine,
            frozen ? " as this" : "");
    return err_remedy(err, "name what and where to: carrel ship MACHINE[:PATH] DIRECTORY");
}

void slice_word(const struct slice *s, const char *what, char ret[SLICE_WORD]) {
    bool plain = s->is_repo || is_changeset(what);
    snprintf(ret, SLICE_WORD, "%.250s%s%s", what, plain ? "" : ":", plain ? "" : s->at);
}
