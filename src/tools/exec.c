/* The tools exec, install and session. A command outlives the call that started it. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/sha256.h"
#include "service/exec/exec.h"
#include "service/net/net.h"
#include "tools/clip.h"
#include "tools/requests.h"
#include "tools/toolbox.h"

enum { TICK_MS = 1000, QUIET_MS = 250 };

/* A command that a call waits for, at most until yield_ms. */
struct waiting {
    struct act *act;
    struct exec *exec;
    struct exec_follower follower;
    struct loop_timer *yield, *tick, *quiet;
    uint64_t began_ms, max;
    bool until_quiet; /* end the call soon after the next output */
};

static void waiting_free(struct waiting *w) {
    exec_unfollow(&w->follower);
    exec_unref(w->exec);
    loop_timer_free(w->yield);
    loop_timer_free(w->tick);
    loop_timer_free(w->quiet);
    free(w);
}

static const char *status_of(const struct exec *x, const struct exec_view *view) {
    const char *word = view->end == EXEC_END_EXIT ? NULL : exec_end_word(view->end);
    if (!exec_is_over(x))
        return "running";
    return word ? word : view->state; /* one of exited, failed, unknown */
}

static void exec_describe(const struct exec *x, const struct exec_view *view,
                          struct exec_output *ret, char exit_json[24], char log[80]) {
    bool ended = exec_is_over(x) && view->end != EXEC_END_UNKNOWN;
    snprintf(exit_json, 24, "%" PRId64, view->status);
    snprintf(log, 80, "carrel://%s/logs/%s", view->machine, view->id);
    *ret = (struct exec_output){
        .machine = view->machine,
        .session = view->id,
        .status = status_of(x, view),
        .reason = view->error ? view->error : view->reason,
        .exit_json = ended ? exit_json : NULL,
        .log = log,
        .stdout_bytes = view->stdout_bytes,
        .stderr_bytes = view->stderr_bytes,
        .wall_ms = view->usage.wall_us / 1000,
        .cpu_ms = (view->usage.user_us + view->usage.system_us) / 1000,
        .max_rss_kb = view->usage.max_rss_kb,
    };
}

/* Ends the call with the state of the command and its output since the last call. */
static void exec_report(struct act *a, struct exec *x, uint64_t at[2], unsigned streams,
                        uint64_t max) {
    struct buf text DEFER(buf_done) = BUF(max + 256), errors DEFER(buf_done) = BUF(max + 256);
    struct buf *texts[] = {&text, &errors};
    const struct outlog *log = exec_log(x);
    struct exec_output out;
    struct exec_view view;
    char exit_json[24], uri[80];
    exec_view(x, &view);
    exec_describe(x, &view, &out, exit_json, uri);
    for (int i = 0; log && i < 2; i++)
        if (streams & 1u << i)
            out.left_out += clip_stream(log, i, &at[i], max, texts[i]);
    out.stdout_text = text.data ? text.data : "";
    out.stderr_text = errors.data ? errors.data : "";
    act_done(a, &out);
}

/* Frees w first, because exec_report() ends the act (the call). */
static void exec_finish(struct waiting *w) {
    struct act *a = w->act;
    struct exec *x = w->exec;
    struct exec_view view;
    uint64_t max = w->max;
    exec_ref(x);
    exec_view(x, &view);
    struct shown *shown = toolbox_shown(a->box, view.id);
    waiting_free(w);
    exec_report(a, x, shown->at, 3, max);
    exec_unref(x);
}

static void exec_changed(void *arg) {
    struct waiting *w = arg;
    if (exec_is_over(w->exec))
        exec_finish(w);
    else if (w->until_quiet)
        loop_timer_start(w->quiet, QUIET_MS, 0);
}

static void enough(void *arg) {
    exec_finish(arg);
}

static void report(void *arg) {
    struct waiting *w = arg;
    const struct outlog *log = exec_log(w->exec);
    struct err err;
    char line[200] = "";
    if (!w->act->events.progress)
        return; /* the call was cancelled */
    /* Output taints the client (marks it as a reader of untrusted data). If the taint cannot be
     * stored, report only the time. */
    if (log && toolbox_saw(w->act->box, w->act->machine, &err) == 0)
        clip_last_line(log, !outlog_extent(log, 0).produced, line, sizeof(line));
    w->act->events.progress(w->act->events.arg,
                            (double)(loop_now_ms(act_loop(w->act)) - w->began_ms) / 1000, line);
}

static void ignore(void *arg, const struct err *err) {
    (void)arg;
    (void)err; /* an error means that the command has already ended */
}

/* A cancelled call kills its command. */
static void kill_it(struct act *a) {
    struct waiting *w = a->user;
    exec_kill(w->exec, act_who(a), ignore, NULL);
}

/* Takes over the caller's reference to x. */
static struct waiting *exec_wait_for(struct act *a, struct exec *x, uint64_t wait_ms, uint64_t max,
                                     bool until_quiet) {
    struct loop *loop = act_loop(a);
    struct waiting *w = xnew(struct waiting);
    *w = (struct waiting){
        .act = a,
        .exec = x,
        .follower = {.changed = exec_changed, .arg = w, .wants_output = until_quiet},
        .began_ms = loop_now_ms(loop),
        .max = max,
        .until_quiet = until_quiet};
    a->user = w;
    w->yield = loop_timer_new(loop, enough, w);
    loop_timer_start(w->yield, wait_ms, 0);
    if (until_quiet)
        w->quiet = loop_timer_new(loop, enough, w);
    if (a->events.progress) {
        w->tick = loop_timer_new(loop, report, w);
        loop_timer_start(w->tick, TICK_MS, TICK_MS);
    }
    exec_follow(x, &w->follower);
    return w;
}

/* ---- exec ---- */

static uint64_t given_or(struct given g, uint64_t otherwise) {
    return g.is ? g.value : otherwise;
}

/* A command that is being started, with the memory that must live until then. */
struct sending {
    struct act *act;
    uint64_t yield_ms, max;
    struct exec_request request;
    struct texts env;
    const char *argv[INSTALL_MAX + 4];
    char key[STORE_KEY_SIZE];
};

static struct sending *sending_new(struct act *a) {
    struct sending *s = xnew(struct sending);
    s->act = a;
    return s;
}

static void sending_free(struct sending *s) {
    free(s->env.v);
    free(s);
}

static void sent(void *arg, struct exec *x, const struct err *err) {
    struct sending *s = arg;
    struct act *a = s->act;
    uint64_t yield_ms = s->yield_ms, max = s->max;
    sending_free(s);
    if (err) {
        act_fail(a, err);
        return;
    }
    struct waiting *w = exec_wait_for(a, x, yield_ms, max, false);
    a->cancel = kill_it;
    if (a->cancelled) /* cancelled while the command waited to be started */
        kill_it(a);
    if (exec_is_over(x))
        exec_finish(w);
}

/* Variables that keep programs from prompting; those of the call override them. */
static struct texts quiet_env(const struct exec_input *in) {
    static const char *const pairs[] = {"CI",        "1",   "NO_COLOR",         "1",
                                        "GIT_PAGER", "cat", "PIP_PROGRESS_BAR", "off"};
    enum { PAIRS = sizeof(pairs) / sizeof(*pairs) };
    struct texts all = {.v = xcalloc(PAIRS + in->env.count + 1, sizeof(*all.v))};
    if (!in->tty) {
        memcpy(all.v, pairs, sizeof(pairs));
        all.count = PAIRS;
    }
    if (in->env.count)
        memcpy(all.v + all.count, in->env.v, in->env.count * sizeof(*all.v));
    all.count += in->env.count;
    return all;
}

static int exec_check(const struct exec_input *in, struct err *err) {
    if ((in->cmd != NULL) == (in->argv.count > 0)) {
        err_set(err, ERR_INVALID, "give either argument 'cmd' or argument 'argv'");
        return err_remedy(err, "'cmd' is a shell command line, 'argv' a list of arguments");
    }
    if (in->stdin_text && (in->tty || in->interactive))
        return err_set(err, ERR_INVALID,
                       "argument 'stdin' is the complete input: do not use it with 'tty' or "
                       "'interactive'");
    return 0;
}

/* The strings and arrays of `in` must belong to the act or to s, until the command is started. */
static void exec_run(struct sending *s, const struct exec_input *in) {
    static const uint8_t no_hash[SHA256_BYTES];
    struct act *a = s->act;
    s->yield_ms = given_or(in->yield_ms, YIELD_DEFAULT_MS);
    s->max = given_or(in->max_output, OUTPUT_DEFAULT);
    s->env = quiet_env(in);
    snprintf(s->key, sizeof(s->key), "%s", a->events.key ? a->events.key : "");
    s->request = (struct exec_request){
        .argv = in->argv,
        .command = in->cmd,
        .env = s->env,
        .cwd = in->cwd,
        .user = in->user,
        .stdin_text = in->stdin_text,
        .key = s->key[0] ? s->key : NULL,
        .timeout = {given_or(in->timeout_ms, TIMEOUT_DEFAULT_MS), true},
        .terminal = in->tty,
        .stdin_open = in->interactive && !in->tty,
    };
    service_exec(act_service(a), act_who(a), a->machine, &s->request, no_hash, NULL, 0, sent, s);
}

void tool_exec(struct act *a) {
    struct err err;
    if (exec_check(a->request, &err) < 0)
        act_fail(a, &err);
    else
        exec_run(sending_new(a), a->request);
}

/* ---- install ---- */

/* Command lines of the package managers: no prompts, and no change to user settings. */
static const struct {
    const char *name, *user, *script;
} managers[] = {
    {"apt", "root",
     "apt-get -q update >/dev/null 2>&1 || echo 'package lists could not be updated' >&2\n"
     "exec apt-get -qy --no-install-recommends install -- \"$@\""},
    {"npm", NULL, "exec npm install --no-fund --no-audit -- \"$@\""},
    {"pip", NULL, "exec python3 -m pip install --user --break-system-packages -- \"$@\""},
};
enum { MANAGERS = sizeof(managers) / sizeof(*managers) };
const char *const install_managers[] = {"apt", "npm", "pip", NULL};

static bool is_path(const char *package) {
    return package[0] == '/' || strncmp(package, "./", 2) == 0;
}

static bool downloads(const struct texts *packages) {
    for (size_t i = 0; i < packages->count; i++)
        if (!is_path(packages->v[i]))
            return true;
    return false;
}

/* Accepts a name with an optional version, or a path; never an option or a URL. */
static int check_packages(const struct texts *packages, struct err *err) {
    for (size_t i = 0; i < packages->count; i++) {
        const char *p = packages->v[i];
        if (!*p || p[0] == '-' || strlen(p) > 300 || (!is_path(p) && strstr(p, "://"))) {
            err_set(err, ERR_INVALID,
                    "'packages' contains '%.80s', which is not a package name or path", p);
            return err_remedy(err, "give names, such as jq or left-pad@1.3.0, or paths of local "
                                   "packages");
        }
    }
    return packages->count ? 0 : err_set(err, ERR_INVALID, "argument 'packages' is an empty list");
}

void tool_install(struct act *a) {
    const struct install_input *in = a->request;
    size_t m = 0;
    struct err err;
    if (check_packages(&in->packages, &err) < 0) {
        act_fail(a, &err);
        return;
    }
    if (downloads(&in->packages) &&
        service_net_check(act_service(a), act_who(a), a->machine, in->manager, &err) < 0) {
        act_fail(a, &err);
        return;
    }
    while (m < MANAGERS && strcmp(managers[m].name, in->manager) != 0)
        m++;
    /* The schema accepts only names of this table, so m is in range. */
    const char *const first[] = {"/bin/sh", "-c", managers[m].script, "install"};
    struct sending *s = sending_new(a);
    memcpy(s->argv, first, sizeof(first));
    memcpy(s->argv + 4, in->packages.v, in->packages.count * sizeof(*s->argv));
    const struct exec_input command = {.argv = {s->argv, 4 + in->packages.count},
                                       .cwd = in->cwd,
                                       .user = managers[m].user,
                                       .timeout_ms = {INSTALL_TIMEOUT_MS, true},
                                       .yield_ms = in->yield_ms};
    exec_run(s, &command);
}

/* ---- session ---- */

static struct exec *exec_find(struct act *a, struct err *err) {
    const struct session_input *in = a->request;
    struct exec *x = service_exec_find(act_service(a), act_who(a), a->machine, in->session, err);
    if (!x)
        err_remedy(err, "use the session id that exec returned");
    return x;
}

static int type_text(struct act *a, struct exec *x, struct err *err) {
    const struct session_input *in = a->request;
    size_t n = in->type ? strlen(in->type) : 0;
    if (!n && !in->eof)
        return 0;
    ssize_t taken =
        exec_write(x, act_who(a), exec_stdin_offset(x), in->type ? in->type : "", n, in->eof, err);
    if (taken < 0) {
        if (err->code == ERR_INVALID)
            err_remedy(err, "to type, start the command with \"interactive\":true or \"tty\":true");
        return -1;
    }
    if ((size_t)taken == n)
        return 0;
    err_set(err, ERR_BUSY, "the command does not read its input: only %zd of %zu bytes were typed",
            taken, n);
    return err_remedy(err, "type the rest later, from that byte on");
}

const char *const session_signals[] = {"INT",  "TERM", "KILL", "HUP",  "QUIT",
                                       "USR1", "USR2", "STOP", "CONT", NULL};

static int send_signal(struct act *a, struct exec *x, struct err *err) {
    static const int numbers[] = {SIGINT,  SIGTERM, SIGKILL, SIGHUP, SIGQUIT,
                                  SIGUSR1, SIGUSR2, SIGSTOP, SIGCONT};
    const struct session_input *in = a->request;
    size_t i = 0;
    if (!in->signal)
        return 0;
    while (strcmp(session_signals[i], in->signal) != 0)
        i++; /* the schema accepts only these names */
    if (numbers[i] != SIGKILL)
        return exec_signal(x, act_who(a), numbers[i], false, err);
    exec_kill(x, act_who(a), ignore, NULL); /* kills all processes of the command */
    return 0;
}

/* Reports output from a given offset, without waiting. The offsets of the client do not move:
 * the tool session without an offset still returns all new output. */
static void tell_from(struct act *a, struct exec *x) {
    const struct session_input *in = a->request;
    int stream = in->stream && strcmp(in->stream, "stderr") == 0;
    uint64_t at[2] = {in->offset.value, in->offset.value};
    exec_report(a, x, at, 1u << stream, given_or(in->max_output, OUTPUT_DEFAULT));
    exec_unref(x);
}

static void stop_waiting(struct act *a) {
    exec_finish(a->user);
}

void tool_session(struct act *a) {
    const struct session_input *in = a->request;
    struct err err;
    struct exec *x = exec_find(a, &err);
    if (!x) {
        act_fail(a, &err);
        return;
    }
    if (type_text(a, x, &err) < 0 || send_signal(a, x, &err) < 0) {
        exec_unref(x);
        act_fail(a, &err);
        return;
    }
    if (in->offset.is) {
        tell_from(a, x);
        return;
    }
    bool typed = in->type || in->eof || in->signal;
    struct waiting *w = exec_wait_for(a, x, given_or(in->wait_ms, typed ? 5000 : YIELD_DEFAULT_MS),
                                      given_or(in->max_output, OUTPUT_DEFAULT), typed);
    a->cancel = stop_waiting;
    if (exec_is_over(x))
        exec_finish(w);
}
