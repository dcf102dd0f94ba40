/* Starts the agent's command in its machine, on the caller's terminal or for one task. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/jot.h"
#include "cli/agent/agent.h"
#include "cli/cli.h"
#include "cli/exec.h"
#include "cli/remote.h"

enum { WORDS_MAX = 256, FILES_MAX = 8, FILE_SIZE = 16 << 10 };

/*
 * Writes each file FILE TEXT up to "--" unless it exists, and then runs the command: an agent
 * changes its own files, and they must stay as it left them.
 */
static const char launch_script[] =
    "while [ \"$1\" != -- ]; do\n"
    "  [ -e \"$HOME/$1\" ] || { mkdir -p \"$(dirname \"$HOME/$1\")\" &&\n"
    "    printf %s \"$2\" >\"$HOME/$1\"; } || exit 126\n"
    "  shift 2\n"
    "done\n"
    "agent=" AGENT_INSIDE "; task=$2; line=$3; shift 3\n"
    "eval \"$line\"\n";

struct launch {
    struct command_options options;
    struct command_setup setup;
    struct remote remote;
    const char *argv[WORDS_MAX];
    size_t words;
    struct buf texts[FILES_MAX];
};

static void launch_free(struct launch **slot) {
    struct launch *l = *slot;
    if (!l)
        return;
    remote_done(&l->remote);
    command_done(&l->setup);
    for (size_t i = 0; i < FILES_MAX; i++)
        buf_done(&l->texts[i]);
    free(l);
}

static int launch_word(struct launch *l, const char *word, struct err *err) {
    if (l->words == WORDS_MAX - 1)
        return err_set(err, ERR_LIMIT, "the agent has more than %d arguments", WORDS_MAX / 2);
    l->argv[l->words++] = word;
    return 0;
}

int agent_file_text(const struct agent_file *f, const char *dir, struct buf *ret, struct err *err) {
    struct buf quoted DEFER(buf_done) = BUF(FILE_SIZE);
    struct jot j = JOT(&quoted);
    const char *mark = strstr(f->text, "{dir}");
    bool ok = !mark || (jot_string(&j, NULL, dir), !j.failed);
    size_t before = mark ? (size_t)(mark - f->text) : strlen(f->text);
    *ret = BUF(FILE_SIZE);
    ok = ok && buf_add(ret, f->text, before);
    if (mark)
        ok = ok && buf_add(ret, quoted.data + 1, quoted.len - 2) &&
             buf_add(ret, mark + 5, strlen(mark + 5));
    return ok ? 0 : err_set(err, ERR_LIMIT, "the path of the directory is too long");
}

static int launch_files(struct launch *l, const struct agent *a, struct err *err) {
    size_t n = 0;
    for (const struct agent_file *f = a->row->files; f && f->path && n < FILES_MAX; f++, n++)
        if (agent_file_text(f, a->slice.dir, &l->texts[n], err) < 0 ||
            launch_word(l, f->path, err) < 0 || launch_word(l, l->texts[n].data, err) < 0)
            return -1;
    return launch_word(l, "--", err);
}

static int launch_words(struct launch *l, const struct agent *a, const char *line, const char *task,
                        struct err *err) {
    const char *const before[] = {"/bin/sh", "-c", launch_script, "carrel-agent"};
    const char *const after[] = {task ? task : "", line};
    for (size_t i = 0; i < sizeof(before) / sizeof(*before); i++)
        if (launch_word(l, before[i], err) < 0)
            return -1;
    if (launch_files(l, a, err) < 0)
        return -1;
    for (size_t i = 0; i < sizeof(after) / sizeof(*after); i++)
        if (launch_word(l, after[i], err) < 0)
            return -1;
    for (char **arg = a->args; *arg; arg++)
        if (launch_word(l, *arg, err) < 0)
            return -1;
    for (size_t i = 0; a->row->env && a->row->env[i]; i++)
        l->options.env.items[l->options.env.count++] = a->row->env[i];
    return 0;
}

static int choose_line(const struct agent *a, bool resume, const char **ret, struct err *err) {
    const struct agent_row *row = a->row;
    bool once = a->o->task != NULL;
    *ret = once ? (resume ? row->once_resume : row->once) : resume ? row->resume : row->start;
    if (*ret)
        return 0;
    err_set(err, ERR_UNSUPPORTED, "agent '%s' has no command for %s%s", row->name,
            once ? "one task (-p)" : "a terminal", resume ? " that continues a session" : "");
    return err_remedy(err, "add `%s` to section [agent %s] of carrel.conf",
                      resume ? "resume"
                      : once ? "once"
                             : "start",
                      row->name);
}

/* With a terminal: returns to the agent if it runs, else starts it under its name. */
static int launch_terminal(struct launch *l, struct agent *a, struct err *err) {
    struct session *session = &l->setup.session;
    session->request.name = AGENT_EXEC;
    session->request.terminal = session->detaches = true;
    int found = exec_find_running(a->client, a->machine, AGENT_EXEC, l->remote.exec, err);
    if (found < 0)
        return -1;
    cli_done(a->o->quiet || !found, "agent %s is still running: this is its terminal",
             a->row->name);
    if (!a->o->quiet)
        session->hint = "to leave the agent running, " SESSION_LEAVE_HELP;
    return 0;
}

int agent_launch(struct agent *a, bool resume, const char *task, bool *ret_left, struct err *err) {
    struct launch *l DEFER(launch_free) = xnew(struct launch);
    const char *line;
    bool once = a->o->task != NULL;
    if (choose_line(a, resume, &line, err) < 0 || launch_words(l, a, line, task, err) < 0)
        return -1;
    l->options.no_terminal = once;
    l->options.terminal = !once;
    l->options.quiet = a->o->quiet;
    l->remote = (struct remote){.client = a->client, .machine = a->machine};
    l->setup.session.remote = &l->remote;
    if (command_prepare(&l->setup, &l->options, (char **)l->argv, a->slice.dir, err) < 0 ||
        (!once && launch_terminal(l, a, err) < 0) || session_run(&l->setup.session, err) < 0)
        return -1;
    *ret_left = l->setup.session.result.end == EXEC_END_DETACHED;
    if (*ret_left)
        return 0;
    return command_report(&l->setup, &l->options, &(struct command_end){.id = a->machine});
}
