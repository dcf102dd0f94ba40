/* Starts the agent's command in its machine, on the caller's terminal or for one task. */
#include <fcntl.h>
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
#include "cli/text/aside.h"

enum { WORDS_MAX = 256, FILES_MAX = 8, FILE_SIZE = 16 << 10, NOTES_MAX = 80 << 10 };

/*
 * Writes the notes $2 into file $1, unless the agent has changed it since. Then writes each file
 * FILE TEXT up to "--" unless it exists, and runs the command: an agent changes its own files, and
 * they must stay as it left them.
 */
static const char launch_script[] =
    "if [ -n \"$2\" ]; then\n"
    "  f=$HOME/$1; k=$f.carrel; mkdir -p \"$(dirname \"$f\")\"\n"
    "  if [ ! -e \"$f\" ] || [ \"$(cat \"$f\")\" = \"$(cat \"$k\" 2>/dev/null)\" ]; then\n"
    "    printf '%s\\n' \"$2\" >\"$f\" && cp \"$f\" \"$k\"\n"
    "  fi\n"
    "fi\n"
    "shift 2\n"
    "[ -d \"$HOME/.local/bin\" ] && PATH=$HOME/.local/bin:$PATH\n"
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
    struct buf texts[FILES_MAX], notes, script;
    char env[PROJECT_LIST_MAX][PROJECT_TEXT_SIZE + 80];
};

static void launch_free(struct launch **slot) {
    struct launch *l = *slot;
    if (!l)
        return;
    remote_done(&l->remote);
    command_done(&l->setup);
    for (size_t i = 0; i < FILES_MAX; i++)
        buf_done(&l->texts[i]);
    buf_done(&l->notes);
    buf_done(&l->script);
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

/* The notes of the project file for the agent: the path of its file of notes, and the text. */
static int launch_notes(struct launch *l, const struct agent *a, struct err *err) {
    const struct project *p = agent_project(a);
    bool ok = true;
    l->notes = BUF(NOTES_MAX);
    if (p && p->note_count)
        ok = buf_addf(&l->notes, "# Notes of " PROJECT_PATH "\n");
    for (size_t i = 0; ok && p && i < p->note_count; i++)
        ok = buf_addf(&l->notes, "\n* %s", p->notes[i]);
    if (!ok)
        return err_set(err, ERR_LIMIT, PROJECT_PATH ": the notes are too long");
    return launch_word(l, a->row->memory ? a->row->memory : "notes.md", err) < 0
               ? -1
               : launch_word(l, l->notes.len ? l->notes.data : "", err);
}

/* Variables of the project file. Those of the agent itself count more. */
static int launch_env(struct launch *l, const struct agent *a, bool is_setup, struct err *err) {
    const struct project *p = agent_project(a);
    struct option_list *env = &l->options.env;
    for (size_t i = 0; p && i < p->env_count; i++) {
        snprintf(l->env[i], sizeof(l->env[i]), "%s=%s", p->env[i].name, p->env[i].text);
        env->items[env->count++] = l->env[i];
    }
    const char *const *const lists[] = {a->row->env, a->uses_login ? a->row->login->env : NULL};
    for (size_t k = 0; !is_setup && k < sizeof(lists) / sizeof(*lists); k++)
        for (size_t i = 0; lists[k] && lists[k][i]; i++) {
            if (env->count == OPTION_LIST_MAX)
                return err_set(err, ERR_LIMIT, "the agent has more than %d variables",
                               OPTION_LIST_MAX);
            env->items[env->count++] = lists[k][i];
        }
    return 0;
}

static int launch_files(struct launch *l, const struct agent *a, struct err *err) {
    const struct agent_file *const lists[] = {a->row->files,
                                              a->uses_login ? a->row->login->files : NULL};
    size_t n = 0;
    for (size_t k = 0; k < sizeof(lists) / sizeof(*lists); k++)
        for (const struct agent_file *f = lists[k]; f && f->path && n < FILES_MAX; f++, n++)
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
    if (launch_notes(l, a, err) < 0 || launch_files(l, a, err) < 0 ||
        launch_env(l, a, false, err) < 0)
        return -1;
    for (size_t i = 0; i < sizeof(after) / sizeof(*after); i++)
        if (launch_word(l, after[i], err) < 0)
            return -1;
    for (char **arg = a->args; *arg; arg++)
        if (launch_word(l, *arg, err) < 0)
            return -1;
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
        session->hint = "to leave the agent running, " SESSION_LEAVE_HELP
                        "; to answer its requests, press " ASIDE_KEY_NAME;
    return 0;
}

/* ---- the script of the project file ---- */

/* The script must not read the input that is meant for the agent's task. */
static int setup_session(struct session *s, struct err *err) {
    int input DEFER_CLOSE = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    int null DEFER_CLOSE = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null < 0 || dup2(null, STDIN_FILENO) < 0)
        return err_sys(err, "cannot open /dev/null");
    int r = session_run(s, err);
    if (input < 0 || dup2(input, STDIN_FILENO) < 0)
        close(STDIN_FILENO); /* it was closed before */
    return r;
}

static int setup_run(struct agent *a, bool as_root, struct err *err) {
    struct launch *l DEFER(launch_free) = xnew(struct launch);
    l->script = BUF(2 * PROJECT_FILE_MAX);
    if (!agent_project_script(a, as_root, &l->script))
        return 0;
    l->options.user = as_root ? "root" : NULL;
    const char *const words[] = {"/bin/sh", "-c", "exec >&2; eval \"$1\"", "carrel-setup",
                                 l->script.data};
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (launch_word(l, words[i], err) < 0)
            return -1;
    l->options.no_terminal = l->options.quiet = true;
    l->remote = (struct remote){.client = a->client, .machine = a->machine};
    l->setup.session.remote = &l->remote;
    cli_done(a->o->quiet, "setting up machine %s as " PROJECT_PATH " says", a->name);
    if (launch_env(l, a, true, err) < 0 ||
        command_prepare(&l->setup, &l->options, (char **)l->argv, a->slice.top, err) < 0 ||
        setup_session(&l->setup.session, err) < 0)
        return err_wrap(err, "cannot set up machine '%s'", a->name);
    int status = command_report(&l->setup, &l->options, &(struct command_end){.id = a->machine});
    if (status == 0)
        return 0;
    err_set(err, ERR_UNKNOWN, "the setup of " PROJECT_PATH " failed with exit status %d", status);
    return err_remedy(err, "correct it and use --fresh, or continue without it: carrel agent %s",
                      a->row->name);
}

int agent_setup(struct agent *a, struct err *err) {
    return setup_run(a, true, err) < 0 ? -1 : setup_run(a, false, err);
}

/* ---- the agent ---- */

int agent_launch(struct agent *a, bool resume, const char *task, bool *ret_left, struct err *err) {
    struct launch *l DEFER(launch_free) = xnew(struct launch);
    struct aside *waiting DEFER(agent_waiting_close) = NULL;
    const char *line;
    bool once = a->o->task != NULL;
    if (choose_line(a, resume, &line, err) < 0 || launch_words(l, a, line, task, err) < 0)
        return -1;
    l->options.no_terminal = once;
    l->options.terminal = !once;
    l->options.quiet = a->o->quiet;
    l->remote = (struct remote){.client = a->client, .machine = a->machine};
    l->setup.session.remote = &l->remote;
    if (!once)
        l->setup.session.aside = waiting = agent_waiting_open(a);
    if (command_prepare(&l->setup, &l->options, (char **)l->argv, a->slice.dir, err) < 0 ||
        (!once && launch_terminal(l, a, err) < 0) || session_run(&l->setup.session, err) < 0)
        return -1;
    *ret_left = l->setup.session.result.end == EXEC_END_DETACHED;
    if (*ret_left)
        return 0;
    return command_report(&l->setup, &l->options, &(struct command_end){.id = a->machine});
}
