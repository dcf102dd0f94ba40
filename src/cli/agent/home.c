/*
 * The home of an agent: one volume for each agent and directory. The history of the agent then
 * outlives its machine, and nothing of one project reaches another.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/sha256.h"
#include "cli/agent/agent.h"
#include "cli/cli.h"

/* Names the volume home-AGENT-DIRECTORY-HASH. The hash alone keeps homes apart. */
static void home_name(const struct agent *a, char ret[AGENT_HOME_SIZE]) {
    char key[PATH_MAX + 64], hash[SHA256_HEX];
    const char *last = strrchr(a->slice.top, '/');
    int n = snprintf(key, sizeof(key), "%s %s", a->row->name, a->slice.top);
    sha256_hex(key, (size_t)n < sizeof(key) ? (size_t)n : sizeof(key) - 1, hash);
    snprintf(ret, AGENT_HOME_SIZE, "home-%.16s-%.16s-%.20s", a->row->name, last ? last + 1 : "",
             hash);
    for (char *at = ret; *at; at++)
        *at = isalnum((unsigned char)*at) ? (char)tolower((unsigned char)*at) : '-';
}

/*
 * A volume would hide what an image has in the home, and must not contain the directory that the
 * agent works on.
 */
static bool home_is_wanted(const struct agent *a) {
    const char *image = a->o->made.image ? a->o->made.image : a->row->image;
    bool is_host = !image || strcmp(image, "host") == 0;
    return is_host && !agent_path_is_below(a->slice.top, AGENT_HOME_INSIDE) &&
           !agent_path_is_below(AGENT_HOME_INSIDE, a->slice.top);
}

bool agent_home_exists(const struct agent *a) {
    char target[CLIENT_TARGET_SIZE], name[AGENT_HOME_SIZE];
    const struct client_request r = {.method = "GET", .target = target};
    struct err none;
    home_name(a, name);
    return home_is_wanted(a) && client_target(target, &none, "/v1/volumes/%s", name) == 0 &&
           client_call(a->client, &r, NULL, &none) == 0;
}

int agent_home_make(struct agent *a, char option[AGENT_HOME_SIZE + 32], struct err *err) {
    struct buf body DEFER(buf_done) = BUF(1024);
    struct jot j = JOT(&body);
    const struct client_request r = {.method = "POST", .target = "/v1/volumes", .body = &body};
    a->home[0] = option[0] = '\0';
    if (!home_is_wanted(a))
        return 0;
    home_name(a, a->home);
    jot_object(&j, NULL);
    jot_string(&j, "name", a->home);
    jot_end(&j, '}');
    if (client_call(a->client, &r, NULL, err) < 0 && err->code != ERR_EXISTS) {
        if (err->code != ERR_UNSUPPORTED)
            return err_wrap(err, "cannot make the home of agent '%s'", a->row->name);
        a->home[0] = '\0'; /* a daemon without root has no volumes: the home is in the machine */
        return 0;
    }
    snprintf(option, AGENT_HOME_SIZE + 32, "%s:" AGENT_HOME_INSIDE ":rw", a->home);
    return 0;
}

void agent_home_of(struct agent *a, const json_t *machine) {
    size_t i;
    const json_t *v;
    a->home[0] = '\0';
    json_array_foreach(json_object_get(machine, "volumes"), i, v) {
        if (strcmp(client_text(v, "at"), AGENT_HOME_INSIDE) == 0)
            snprintf(a->home, sizeof(a->home), "%s", client_text(v, "name"));
    }
}
