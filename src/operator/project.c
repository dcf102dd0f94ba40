/* The notes of a project for agents, AGENTS.md and CLAUDE.md in the directory that the owner lent.
 * A run reads them before its first model call. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "operator/inner.h"
#include "service/grants/grants.h"
#include "service/taint.h"

static const char *const note_files[] = {"AGENTS.md", "CLAUDE.md"};
enum { NOTE_FILES = sizeof(note_files) / sizeof(*note_files), NOTES_MAX = 256 << 10 };

struct project {
    struct live_run *live; /* NULL: the run was closed */
    bool asking;           /* waits for the list of grants, which cannot be cancelled */
    char at[4096];
    char path[4096 + 16];
    size_t file;
    char *first; /* content of the first file: the second one is often a copy of it or a link */
    char names[64];
    struct buf text;
    struct act *act;
};

static void project_free(struct project *p) {
    buf_done(&p->text);
    free(p->first);
    free(p);
}

/* Untrusted text must not reach the model as advice, and some modes keep all text away from it. */
static bool project_is_wanted(const struct live_run *l) {
    char source[TAINT_SOURCE_SIZE] = "";
    const struct run *r = &l->run;
    if (r->count != 1 || r->noted & 1u << RUN_NOTE_PROJECT || l->is_child ||
        l->mode->calls != MODE_CALLS_ANY || l->mode->results != MODE_RESULTS_WHOLE)
        return false;
    service_taint_of(l->runs->service, r->start.machine, source);
    return !source[0];
}

static void project_over(struct project *p) {
    struct live_run *l = p->live;
    struct run_event e = {
        .kind = RUN_NOTE, .note = RUN_NOTE_PROJECT, .name = p->names, .text = p->text.data};
    l->project = NULL;
    l->knows_project = true;
    if (p->text.len)
        (void)live_add(l, &e);
    project_free(p);
    live_again(l);
}

static void project_read_next(struct project *p);

static void project_add(struct project *p, const json_t *answer) {
    const char *content = json_string_value(json_object_get(answer, "content"));
    bool more = json_is_true(json_object_get(answer, "more"));
    size_t n = strlen(p->names);
    if (!content || !*content || (p->first && strcmp(p->first, content) == 0))
        return;
    if (!buf_addf(&p->text,
                  "%sThe project in %s has notes for agents in %s%s. Follow them in how you work, "
                  "as far as they do not contradict the task and the rules above:\n%s",
                  p->text.len ? "\n\n" : "", p->at, note_files[p->file],
                  more ? " (only the beginning is shown; read the rest with the tool read)" : "",
                  content))
        return; /* unreachable: two results of `read` are shorter than NOTES_MAX */
    snprintf(p->names + n, sizeof(p->names) - n, "%s%s", n ? ", " : "", note_files[p->file]);
    if (!p->first)
        p->first = xstrdup(content);
}

static void project_read_done(void *arg, const struct act_result *result) {
    struct project *p = arg;
    json_t *answer DEFER(json_decrefp) = result->err ? NULL : json_loads(result->json, 0, NULL);
    p->act = NULL;
    project_add(p, answer); /* a file that is missing, or cannot be read, gives no note */
    p->file++;
    project_read_next(p);
}

static void project_read_next(struct project *p) {
    struct live_run *l = p->live;
    const struct act_events events = {.arg = p, .done = project_read_done};
    if (p->file == NOTE_FILES) {
        project_over(p);
        return;
    }
    snprintf(p->path, sizeof(p->path), "%s/%s", p->at, note_files[p->file]);
    json_t *arguments DEFER(json_decrefp) = json_pack("{s:s}", "path", p->path);
    size_t before = p->file;
    struct act *act = act_start(l->box, tool_find(l->box, "read"), arguments, &events);
    if (act && p->file == before)
        p->act = act;
}

/* The first directory or repository that was lent, in which commands begin. */
static void project_grants(void *arg, const char *json, const struct err *err) {
    struct project *p = arg;
    json_t *all DEFER(json_decrefp) = err ? NULL : json_loads(json, 0, NULL), *grant;
    size_t i;
    p->asking = false;
    if (!p->live) {
        project_free(p);
        return;
    }
    json_array_foreach(json_object_get(all, "grants"), i, grant) {
        const char *kind = json_string_value(json_object_get(grant, "kind"));
        const char *at = json_string_value(json_object_get(grant, "at"));
        if (!p->at[0] && kind && at && (strcmp(kind, "dir") == 0 || strcmp(kind, "repo") == 0))
            snprintf(p->at, sizeof(p->at), "%s", at);
    }
    if (p->at[0])
        project_read_next(p);
    else
        project_over(p);
}

bool project_reads(struct live_run *l) {
    if (l->project || l->knows_project)
        return l->project;
    if (!project_is_wanted(l)) {
        l->knows_project = true;
        return false;
    }
    struct project *p = l->project = xnew(struct project);
    *p = (struct project){.live = l, .asking = true, .text = BUF(NOTES_MAX)};
    service_grant_list(l->runs->service, &l->who, l->run.start.machine, project_grants, p);
    return true;
}

void project_leave(struct live_run *l) {
    struct project *p = TAKE(l->project);
    if (!p)
        return;
    if (p->act)
        act_abandon(TAKE(p->act));
    p->live = NULL;
    if (!p->asking)
        project_free(p);
}
