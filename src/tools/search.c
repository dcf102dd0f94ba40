#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/defer.h"
#include "base/parse.h"
#include "base/sha256.h"
#include "service/exec.h"
#include "tools/clip.h"
#include "tools/requests.h"
#include "tools/toolbox.h"

/* grep and find of the machine, as commands of their own: what they read is its business alone. */
enum { SEARCH_MS = 30000, TEXT_SHOWN = 300, OUTPUT_READ = 4 << 20 };

struct searching {
    struct act *act;
    struct exec *exec;
    struct exec_follower follower;
};

static bool by_name(const struct search_input *in) {
    return in->kind && strcmp(in->kind, "name") == 0;
}

/* ---- the answer ---- */

/* "PATH\0LINE:TEXT\n" of grep -Z, or "PATH\0" of find -print0. */
struct matches {
    struct jot j;
    uint64_t count, max;
    bool names;
};

static void put_match(struct matches *m, const char *path, size_t path_n, const char *rest,
                      size_t n) {
    jot_object(&m->j, NULL);
    jot_bytes(&m->j, "path", path, path_n);
    const char *colon = rest ? memchr(rest, ':', n) : NULL;
    if (colon) {
        char number[24];
        uint64_t line = 0;
        snprintf(number, sizeof(number), "%.*s", (int)(colon - rest), rest);
        if (parse_u64(number, 0, UINT64_MAX, &line, NULL) == 0)
            jot_u64(&m->j, "line", line);
        n -= (size_t)(colon + 1 - rest);
        jot_bytes(&m->j, "text", colon + 1, clip_end(colon + 1, n < TEXT_SHOWN ? n : TEXT_SHOWN));
    }
    jot_end(&m->j, '}');
    m->count++;
}

/* Only whole records count. */
static void put_matches(struct matches *m, const char *s, size_t n) {
    while (n && m->count < m->max) {
        const char *nul = memchr(s, '\0', n);
        if (!nul)
            return;
        const char *rest = nul + 1, *end = rest;
        size_t left = n - (size_t)(rest - s);
        if (!m->names && !(end = memchr(rest, '\n', left)))
            return;
        put_match(m, s, (size_t)(nul - s), m->names ? NULL : rest, (size_t)(end - rest));
        n -= (size_t)(end + !m->names - s);
        s = end + !m->names;
    }
}

static void answer(struct act *a, struct exec *x, const struct buf *found, bool more) {
    const struct search_input *in = a->request;
    struct buf text DEFER(buf_done) = BUF(4 << 20);
    struct matches m = {
        .j = JOT(&text), .max = in->max.is ? in->max.value : SEARCH_DEFAULT, .names = by_name(in)};
    jot_array(&m.j, NULL);
    put_matches(&m, found->data ? found->data : "", found->len);
    jot_end(&m.j, ']');
    act_done(a, &(struct search_output){.machine = a->machine,
                                        .matches = m.j.failed ? "[]" : text.data,
                                        .count = m.count,
                                        .more = more || m.count == m.max});
    exec_unref(x);
}

/* What grep or find complained of is the model's to read when nothing was found. */
static void complain(struct act *a, struct exec *x, const struct exec_view *view) {
    struct buf said DEFER(buf_done) = BUF(2000);
    uint64_t at = 0;
    struct err err;
    if (exec_log(x))
        clip_stream(exec_log(x), 1, &at, 1000, &said);
    err_set(&err, ERR_INVALID, "the search failed: %.200s",
            said.data      ? said.data
            : view->reason ? view->reason
                           : "no reason was given");
    exec_unref(x);
    act_fail(a, &err);
}

static void finish(struct searching *s) {
    struct act *a = s->act;
    struct exec *x = s->exec;
    struct buf found DEFER(buf_done) = BUF(OUTPUT_READ + 256);
    struct exec_view view;
    uint64_t at = 0;
    exec_unfollow(&s->follower);
    free(s);
    exec_view(x, &view);
    bool more = view.stdout_bytes > OUTPUT_READ || strcmp(view.state, "exited") != 0 ||
                (view.reason && strcmp(view.reason, "timeout") == 0);
    if (exec_log(x))
        clip_stream(exec_log(x), 0, &at, 2 * OUTPUT_READ, &found);
    if (!found.len && view.status > 1)
        complain(a, x, &view);
    else
        answer(a, x, &found, more);
}

static void ignore(void *arg, const struct err *err) {
    (void)arg;
    (void)err; /* it has ended meanwhile */
}

static void stop(struct act *a) {
    struct searching *s = a->user;
    exec_kill(s->exec, act_who(a), ignore, NULL);
}

/* More than can be shown: the rest need not be searched. */
static void changed(void *arg) {
    struct searching *s = arg;
    const struct outlog *log = exec_log(s->exec);
    if (exec_is_over(s->exec))
        finish(s);
    else if (log && outlog_extent(log, 0).produced > OUTPUT_READ)
        stop(s->act);
}

static void sent(void *arg, struct exec *x, const struct err *err) {
    struct act *a = arg;
    if (err) {
        act_fail(a, err);
        return;
    }
    struct searching *s = calloc(1, sizeof(*s));
    if (!s)
        abort();
    *s = (struct searching){
        .act = a, .exec = x, .follower = {.changed = changed, .arg = s, .wants_output = true}};
    a->user = s;
    a->cancel = stop;
    exec_follow(x, &s->follower);
    if (exec_is_over(x))
        finish(s);
}

/* ---- the command ---- */

static size_t grep_words(const struct search_input *in, const char **argv, char *include,
                         size_t size, char *most, size_t most_size) {
    size_t n = 0;
    argv[n++] = "grep";
    argv[n++] = "-rnHIEZ";
    argv[n++] = "--exclude-dir=.git";
    snprintf(most, most_size, "--max-count=%u",
             (unsigned)(in->max.is ? in->max.value : SEARCH_DEFAULT));
    argv[n++] = most;
    if (in->ignore_case)
        argv[n++] = "-i";
    if (in->glob) {
        snprintf(include, size, "--include=%s", in->glob);
        argv[n++] = include;
    }
    argv[n++] = "-e";
    argv[n++] = in->pattern;
    argv[n++] = "--";
    argv[n++] = in->path ? in->path : ".";
    return n;
}

static size_t find_words(const struct search_input *in, const char **argv) {
    static const char *const fixed[] = {"-name", ".git", "-prune", "-o"};
    size_t n = 0;
    argv[n++] = "find";
    argv[n++] = in->path ? in->path : ".";
    for (size_t i = 0; i < sizeof(fixed) / sizeof(*fixed); i++)
        argv[n++] = fixed[i];
    argv[n++] = in->ignore_case ? "-iname" : "-name";
    argv[n++] = in->pattern;
    argv[n++] = "-print0";
    return n;
}

void tool_search(struct act *a) {
    const struct search_input *in = a->request;
    static const uint8_t no_hash[SHA256_BYTES];
    const char *argv[24];
    char include[1100], most[40];
    struct err err;
    if (in->path && in->path[0] == '-') {
        err_set(&err, ERR_INVALID, "path '%.60s' starts with a dash", in->path);
        err_remedy(&err, "write ./ in front of it");
        act_fail(a, &err);
        return;
    }
    size_t n = by_name(in) ? find_words(in, argv)
                           : grep_words(in, argv, include, sizeof(include), most, sizeof(most));
    const struct exec_request r = {
        .argv = {argv, n}, .timeout = {SEARCH_MS, true}, .kill_left = true};
    service_exec(act_service(a), act_who(a), a->machine, &r, no_hash, NULL, 0, sent, a);
}
