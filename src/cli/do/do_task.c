/* The task of `carrel do`: given as an argument, or typed when the command asks for it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/defer.h"
#include "cli/do/do.h"

/* True if a machine has this name or id. A task of one word is rare, so one request is cheap. */
static bool names_machine(struct client *c, const char *word) {
    char target[CLIENT_TARGET_SIZE];
    struct err err; /* ignored: if the machine cannot be found, the word is a task */
    const struct client_request r = {.method = "GET", .target = target};
    return *word && !strpbrk(word, " \t\n/") &&
           client_target(target, &err, "/v1/machines/%s", word) == 0 &&
           client_call(c, &r, NULL, &err) == 0;
}

bool do_may_ask(void) {
    return isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
}

static int type_task(const char *machine, char typed[DO_TASK_SIZE], struct err *err) {
    if (do_may_ask()) {
        fprintf(stderr, machine ? "task for machine '%s': " : "task: ", machine);
        if (fgets(typed, DO_TASK_SIZE, stdin)) {
            typed[strcspn(typed, "\n")] = '\0';
            if (typed[strspn(typed, " \t")])
                return 0;
        }
    }
    if (machine)
        err_set(err, ERR_INVALID, "no task given for machine '%s'", machine);
    else
        err_set(err, ERR_INVALID, "no task given");
    return err_remedy(err, "use: carrel do %s \"TASK\"", machine ? machine : "[MACHINE]");
}

int do_find_task(const struct do_options *o, struct client *c, char *const words[2], int count,
                 char typed[DO_TASK_SIZE], struct do_task *ret, struct err *err) {
    *ret = (struct do_task){count == 2 ? words[0] : NULL, count ? words[count - 1] : NULL};
    if (count == 1 && !do_makes(o) && names_machine(c, words[0]))
        *ret = (struct do_task){.machine = words[0]};
    if (ret->text)
        return 0;
    if (type_task(ret->machine, typed, err) < 0)
        return -1;
    ret->text = typed;
    return 0;
}
