/* carrel ship --volume: ships changes in a volume of a machine to a directory of this host. */
#include <stdio.h>
#include <string.h>

#include "base/defer.h"
#include "cli/ship/ship.h"

/* Finds the grant of the volume; *ret points into *answer, which the caller releases. */
static int find_volume(struct ship *s, const char *machine, json_t **answer, const json_t **ret,
                       struct err *err) {
    const char *name = s->options->volume;
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "GET", .target = target};
    const json_t *grant;
    size_t i;
    if (client_target(target, err, "/v1/machines/%s/grants", machine) < 0 ||
        client_call_again(s->client, &r, answer, err) < 0)
        return -1;
    json_array_foreach(json_object_get(*answer, "grants"), i, grant) {
        *ret = grant;
        if (strcmp(client_text(grant, "kind"), "volume") == 0 &&
            strcmp(client_text(grant, "what"), name) == 0)
            return 0;
    }
    err_set(err, ERR_NOT_FOUND, "machine '%s' has no volume '%s'", machine, name);
    return err_remedy(err, "to list its volumes: carrel grants %s", machine);
}

/* Several machines may have changes of one volume, and another one may write to it meanwhile. */
static int needs_directory(const struct ship *s, const char *machine, bool cow, struct err *err) {
    const char *name = s->options->volume;
    if (!cow)
        return err_set(err, ERR_INVALID,
                       "machine '%s' writes to volume '%s' itself: name a DIRECTORY to ship to",
                       machine, name);
    err_set(err, ERR_UNSUPPORTED, "changes of mode cow are not shipped into volume '%s'", name);
    return err_remedy(
        err,
        "ship them to a directory (carrel ship -y %s --volume %s DIRECTORY), and copy "
        "that into a machine that has the volume as rw (carrel cp)",
        machine, name);
}

int ship_volume(struct ship *s, const char *machine, const char *dir, struct err *err) {
    json_t *answer DEFER(json_decrefp) = NULL;
    const json_t *grant = NULL;
    char word[SLICE_WORD];
    if (s->options->undo || s->options->comment || strchr(machine, ':'))
        return err_set(err, ERR_INVALID, "--volume excludes --undo, --return and a path");
    if (find_volume(s, machine, &answer, &grant, err) < 0)
        return -1;
    bool cow = strcmp(client_text(grant, "mode"), "cow") == 0;
    s->cow = cow && !s->options->mirror; /* --mirror needs to know the unchanged files, too */
    if (!dir)
        return needs_directory(s, machine, cow, err);
    snprintf(word, sizeof(word), "%.250s:%s", machine, client_text(grant, "at"));
    return ship_open(s, dir, err) < 0 ? -1 : ship_review(s, word, err);
}
