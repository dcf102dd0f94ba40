/* carrel do --tries: makes the machines of several tries (parallel attempts), and prints their
 * results. */
#include <stdio.h>
#include <string.h>

#include "base/defer.h"
#include "cli/cli.h"
#include "cli/do/do.h"
#include "cli/safe.h"
#include "cli/table.h"

static void do_tries_drop(struct client *c, const char *machine) {
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "DELETE", .target = target};
    struct err err;
    if (client_target(target, &err, "/v1/machines/%s", machine) < 0 ||
        client_call(c, &r, NULL, &err) < 0)
        fprintf(stderr, "carrel: cannot delete machine %s: %s\n", machine, err.text);
}

static int make_one(const struct do_options *o, struct client *c, size_t i, char ret[64],
                    struct err *err) {
    json_t *machine DEFER(json_decrefp) = NULL;
    struct new_options made = o->made;
    made.quiet = i > 0; /* the machines of all tries get the same */
    char name[128];
    snprintf(name, sizeof(name), "%s-%zu", made.name ? made.name : "", i + 1);
    if (made.name && o->tries)
        made.name = name;
    if (new_make(&made, c, &machine, err) < 0)
        return -1;
    snprintf(ret, 64, "%s", client_text(machine, "id"));
    return 0;
}

int do_make(const struct do_options *o, struct client *c, struct do_machines *ret,
            struct err *err) {
    size_t wanted = !do_makes(o) ? 0 : o->tries ? o->tries : 1;
    for (; ret->count < wanted; ret->count++) {
        if (make_one(o, c, ret->count, ret->ids[ret->count], err) == 0)
            continue;
        for (size_t i = 0; i < ret->count; i++)
            do_tries_drop(c, ret->ids[i]);
        return -1;
    }
    return 0;
}

bool do_show_try(const json_t *event) {
    const char *kind = client_text(event, "event");
    bool judged = strcmp(kind, "judged") == 0;
    if (!judged && strcmp(kind, "try") != 0)
        return false;
    printf("try %lld  ", client_number(event, "index") + 1);
    if (!judged && !*client_text(event, "run")) {
        printf("machine %s\n", client_text(event, "machine"));
        return true;
    }
    if (!judged) {
        printf("run %s\n", client_text(event, "run"));
        return true;
    }
    fputs(json_is_true(json_object_get(event, "good")) ? "good" : "not good", stdout);
    if (*client_text(event, "text")) {
        fputs(": ", stdout);
        safe_name(stdout, client_text(event, "text"));
    }
    if (*client_text(event, "changeset"))
        printf("  change set %s", client_text(event, "changeset"));
    putchar('\n');
    return true;
}

void do_show_tries(const json_t *report) {
    long long best = client_number(report, "best");
    const json_t *tries = json_object_get(report, "tries"),
                 *x = json_array_get(tries, (size_t)best);
    if (!x)
        return;
    bool good = json_is_true(json_object_get(x, "good"));
    printf("%s try %lld, machine %s", good ? "The best is" : "No try succeeded; the closest is",
           best + 1, client_text(x, "machine"));
    if (*client_text(x, "changeset"))
        printf(", change set %s", client_text(x, "changeset"));
    putchar('\n');
}
