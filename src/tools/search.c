/* The tool search: runs grep or find inside the machine, never on the host. */
#include <stdio.h>
#include <string.h>

#include "base/defer.h"
#include "base/parse.h"
#include "base/utf8.h"
#include "tools/clip.h"
#include "tools/helper.h"
#include "tools/requests.h"
#include "tools/toolbox.h"

enum { SEARCH_MS = 30000, TEXT_SHOWN = 300, OUTPUT_READ = 4 << 20 };

static bool search_by_name(const struct search_input *in) {
    return in->kind && strcmp(in->kind, "name") == 0;
}

/* ---- matches ---- */

/* Matches as JSON, from "PATH\0LINE:TEXT\n" of grep -Z or "PATH\0" of find -print0. */
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
        jot_bytes(&m->j, "text", colon + 1, utf8_end(colon + 1, n < TEXT_SHOWN ? n : TEXT_SHOWN));
    }
    jot_end(&m->j, '}');
    m->count++;
}

/* Output that was cut ends with a partial record, which is dropped. */
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

static void search_answer(struct act *a, const struct buf *found, bool more) {
    const struct search_input *in = a->request;
    struct buf text DEFER(buf_done) = BUF(4 << 20);
    struct matches m = {.j = JOT(&text),
                        .max = in->max.is ? in->max.value : SEARCH_DEFAULT,
                        .names = search_by_name(in)};
    jot_array(&m.j, NULL);
    put_matches(&m, found->data ? found->data : "", found->len);
    jot_end(&m.j, ']');
    act_done(a, &(struct search_output){.machine = a->machine,
                                        .matches = m.j.failed ? "[]" : text.data,
                                        .count = m.count,
                                        .more = more || m.count == m.max});
}

/* Errors of grep or find are reported only if nothing was found. */
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
    act_fail(a, &err);
}

static void ended(struct act *a, struct exec *x, const struct exec_view *view) {
    struct buf found DEFER(buf_done) = BUF(OUTPUT_READ + 256);
    uint64_t at = 0;
    bool more = view->stdout_bytes > OUTPUT_READ || !exec_end_word(view->end) ||
                view->end == EXEC_END_TIMEOUT;
    if (exec_log(x))
        clip_stream(exec_log(x), 0, &at, 2 * OUTPUT_READ, &found);
    if (!found.len && view->status > 1)
        complain(a, x, view);
    else
        search_answer(a, &found, more);
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
    const char *argv[24];
    char include[1100], most[40];
    struct err err;
    if (in->path && in->path[0] == '-') {
        err_set(&err, ERR_INVALID, "path '%.60s' starts with a dash", in->path);
        err_remedy(&err, "write ./ in front of the path");
        act_fail(a, &err);
        return;
    }
    size_t n = search_by_name(in)
                   ? find_words(in, argv)
                   : grep_words(in, argv, include, sizeof(include), most, sizeof(most));
    const struct exec_request r = {
        .argv = {argv, n}, .timeout = {SEARCH_MS, true}, .kill_left = true};
    helper_run(a, &r, OUTPUT_READ, ended);
}
