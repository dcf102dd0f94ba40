#include "cli/ship/slices_find.h"

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

int slices_of(struct client *c, const char *machine, struct slices *ret, struct err *err) {
    json_t *answer DEFER(json_decrefp) = NULL, *grant;
    size_t i;
    if (slices_ask(c, "/v1/machines/%s/grants", machine, &answer, err) < 0)
        return -1;
    ret->count = 0;
    json_array_foreach(json_object_get(answer, "grants"), i, grant) {
        size_t before = ret->count;
        slices_add(ret, client_text(grant, "kind"), client_text(grant, "mode"),
                   client_text(grant, "at"), client_text(grant, "what"));
        if (ret->count == before)
            continue;
        struct slice *one = &ret->list[before];
        const json_t *detail = json_object_get(grant, "detail");
        snprintf(one->ref, sizeof(one->ref), "%s", client_text(detail, "ref"));
        snprintf(one->exec, sizeof(one->exec), "%s", client_text(detail, "exec"));
    }
    return 0;
}

static int of_changeset(struct client *c, const char *id, struct slices *ret, struct err *err) {
    json_t *set DEFER(json_decrefp) = NULL;
    if (slices_ask(c, "/v1/changesets/%s", id, &set, err) < 0)
        return -1;
    const char *home = client_text(set, "home");
    if (json_is_true(json_object_get(set, "revoked"))) {
        err_set(err, ERR_DENIED, "the grant that change set '%s' belongs to was revoked: %s", id,
                home);
        return err_remedy(err, "to ship it anyway, name a directory: carrel ship %s DIRECTORY", id);
    }
    ret->count = 0;
    slices_add(ret, client_text(set, "kind"), NULL, client_text(set, "slice"), home);
    if (ret->count)
        return 0;
    err_set(err, ERR_INVALID, "change set '%s' does not belong to a grant", id);
    return err_remedy(err, "name the directory to ship to: carrel ship %s DIRECTORY", id);
}

int slices_find(struct client *c, const char *word, struct slices *ret, struct err *err) {
    if (strchr(word, ':'))
        return err_set(err, ERR_INVALID, "MACHINE:PATH requires a DIRECTORY to ship to");
    if (is_changeset(word))
        return of_changeset(c, word, ret, err);
    if (slices_of(c, word, ret, err) < 0)
        return -1;
    if (ret->count)
        return 0;
    err_set(err, ERR_INVALID,
            "machine '%s' has no directory copy, repository or database that was granted", word);
    return err_remedy(err, "name a path and a directory: carrel ship MACHINE[:PATH] DIRECTORY");
}
