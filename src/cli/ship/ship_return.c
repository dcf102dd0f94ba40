/* carrel ship --return: ships nothing; the run continues with a comment. */
#include <stdio.h>
#include <string.h>

#include "base/defer.h"
#include "base/id.h"
#include "cli/do/do.h"
#include "cli/ship/ship.h"
#include "cli/table.h"

/* Finds the newest run of the machine. */
static int find_run(struct ship *s, const char *word, char ret[64], struct err *err) {
    char machine[256];
    const struct client_request r = {.method = "GET", .target = "/v1/runs?limit=200"};
    json_t *answer DEFER(json_decrefp) = NULL, *view DEFER(json_decrefp) = NULL, *run;
    char target[CLIENT_TARGET_SIZE];
    const struct client_request show = {.method = "GET", .target = target};
    size_t i;
    snprintf(machine, sizeof(machine), "%.*s", (int)strcspn(word, ":"), word);
    if (client_target(target, err, "/v1/machines/%s", machine) < 0 ||
        client_call_again(s->client, &show, &view, err) < 0 ||
        client_call_again(s->client, &r, &answer, err) < 0)
        return -1;
    json_array_foreach(json_object_get(answer, "runs"), i, run) {
        if (strcmp(client_text(run, "machine"), client_text(view, "id")) == 0) {
            snprintf(ret, 64, "%s", client_text(run, "id"));
            return 0;
        }
    }
    err_set(err, ERR_NOT_FOUND, "no run has worked on machine '%s'", machine);
    return err_remedy(err, "start a run with carrel do %s \"TASK\"", machine);
}

int ship_send_back(struct ship *s, const char *word, struct err *err) {
    char run[64], target[CLIENT_TARGET_SIZE];
    struct buf body DEFER(buf_done) = BUF(1 << 20);
    struct jot j = JOT(&body);
    const struct client_request r = {.method = "POST", .target = target, .body = &body};
    jot_object(&j, NULL);
    jot_string(&j, "comment", s->options->comment);
    jot_string(&j, "key", id_new('k').text); /* with a key, a retry does not repeat the comment */
    do_put_keys(&j, s->client);
    jot_end(&j, '}');
    if (j.failed)
        return err_set(err, ERR_LIMIT, "the comment of --return is too long");
    if (find_run(s, word, run, err) < 0 ||
        client_target(target, err, "/v1/runs/%s/resume", run) < 0 ||
        client_call_again(s->client, &r, NULL, err) < 0)
        return -1;
    printf("comment sent: run %s continues; to watch it: carrel do --resume %s\n", run, run);
    return 0;
}
