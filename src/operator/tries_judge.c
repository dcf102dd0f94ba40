/* Judges a try (attempt): its work is copied to a fork of its machine as it was at the start, and
 * the check runs there. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/defer.h"
#include "operator/inner.h"
#include "operator/tries_inner.h"
#include "service/exec/exec.h"
#include "service/files.h"
#include "service/grants/grants.h"
#include "service/review/changesets.h"
#include "service/review/diff.h"

static uint64_t number_in(const json_t *object, const char *name) {
    json_int_t n = json_integer_value(json_object_get(object, name));
    return n > 0 ? (uint64_t)n : 0;
}

/* The check's machine is deleted only after the verdict is written: a resumed run reuses it. */
static void judge_over(struct trying *t) {
    tries_leave_check(t);
    t->judged.kind = RUN_JUDGED;
    t->judged.changeset = t->changeset[0] ? t->changeset : NULL;
    t->judged.text = t->why[0] ? t->why : NULL;
    t->judged.machine = t->forked ? t->place : NULL;
    tries_add(t, &t->judged);
    if (t->forked)
        tries_drop(t, t->place);
}

static void judge_failed(struct trying *t, const char *what, const struct err *err) {
    t->judged.good = false;
    snprintf(t->why, sizeof(t->why), "%s: %.200s", what, err->text);
    judge_over(t);
}

static void check_changed(void *arg) {
    struct trying *t = arg;
    struct exec_view view;
    if (!t->live || !exec_is_over(t->exec))
        return;
    exec_view(t->exec, &view);
    t->judged.good = view.status == 0;
    snprintf(t->why, sizeof(t->why), "the check %s %" PRId64, view.state, view.status);
    judge_over(t);
}

static void check_begun(void *arg, struct exec *x, const struct err *err) {
    struct trying *t = arg;
    if (tries_is_unwanted(t)) {
        if (x)
            exec_unref(x);
        return;
    }
    if (err) {
        judge_failed(t, "cannot run the check", err);
        return;
    }
    t->exec = x;
    t->follower = (struct exec_follower){.changed = check_changed, .arg = t};
    exec_follow(x, &t->follower);
    check_changed(t);
}

/* Check files come from the owner and overwrite files of the try. */
static void put_files(struct trying *t);

static void file_there(void *arg, const struct err *err) {
    struct trying *t = arg;
    if (tries_is_unwanted(t))
        return;
    t->file++;
    if (err)
        judge_failed(t, "cannot copy a check file to the check's machine", err);
    else
        put_files(t);
}

static void run_check(struct trying *t) {
    static const uint8_t no_hash[SHA256_BYTES];
    tries_key_of(t, "check");
    t->check = (struct exec_request){.command = t->live->run.start.check,
                                     .cwd = t->lent ? t->path : NULL,
                                     .key = t->key,
                                     .timeout = {CHECK_MS, true}};
    t->busy = true;
    service_exec(t->service, &t->live->who, t->place, &t->check, no_hash, NULL, 0, check_begun, t);
}

static void put_files(struct trying *t) {
    const char *text = t->live->run.start.check_files;
    json_t *files = text ? json_loads(text, 0, NULL) : NULL, *content;
    const char *path;
    size_t at = 0;
    json_object_foreach(files, path, content) {
        if (at++ < t->file)
            continue;
        const char *bytes = json_string_value(content);
        const struct file_text f = {path, bytes ? bytes : "",
                                    bytes && strncmp(bytes, "#!", 2) == 0 ? 0555 : 0444};
        t->busy = true;
        service_file_text(t->service, &t->live->who, t->place, &f, file_there, t);
        json_decref(files);
        return;
    }
    json_decref(files);
    run_check(t);
}

static void work_applied(void *arg, const struct err *err) {
    struct trying *t = arg;
    if (tries_is_unwanted(t))
        return;
    if (err)
        judge_failed(t, "cannot copy the try's work to the check's machine", err);
    else
        put_files(t);
}

static void check_forked(void *arg, const struct err *err) {
    struct trying *t = arg;
    if (tries_is_unwanted(t))
        return;
    t->forked = !err;
    if (err) {
        judge_failed(t, "cannot create the check's machine", err);
        return;
    }
    tries_key_of(t, "judge");
    const struct judge_request r = {tries_try_of(t)->machine, t->place, t->lent ? t->path : NULL,
                                    t->key};
    t->busy = true;
    judge_apply(t->service, &t->live->who, &r, work_applied, t);
}

/* The check does not run in the try's machine, where the try may have changed programs. */
static void begin_check(struct trying *t) {
    if (!t->live->run.start.check) {
        judge_over(t);
        return;
    }
    tries_key_of(t, "fork");
    tries_fork_of(t, tries_try_of(t)->machine, "start", check_forked);
}

static void frozen(void *arg, const struct changeset_view *view, const struct err *err) {
    struct trying *t = arg;
    if (tries_is_unwanted(t))
        return;
    if (err) {
        judge_failed(t, "cannot freeze the try's machine", err);
        return;
    }
    snprintf(t->changeset, sizeof(t->changeset), "%s", view->id);
    t->judged.changes = view->bytes;
    begin_check(t);
}

static void compared(void *arg, const struct diff_view *view, const struct err *err) {
    struct trying *t = arg;
    if (tries_is_unwanted(t))
        return;
    t->judged.changes = err ? UINT32_MAX : view->changes->count;
    begin_check(t);
}

/* Finds the first directory that the owner lent to the machine as a copy. */
static bool find_lent(const char *json, char ret[4096]) {
    json_t *all = json_loads(json ? json : "{}", 0, NULL), *grant;
    size_t i;
    bool found = false;
    json_array_foreach(json_object_get(all, "grants"), i, grant) {
        const char *mode = json_string_value(json_object_get(grant, "mode"));
        const char *kind = json_string_value(json_object_get(grant, "kind"));
        const char *at = json_string_value(json_object_get(grant, "at"));
        found = kind && mode && at && strcmp(kind, "dir") == 0 && strcmp(mode, "cow") == 0;
        if (!found)
            continue;
        snprintf(ret, 4096, "%s", at);
        break;
    }
    json_decref(all);
    return found;
}

static void grants_known(void *arg, const char *json, const struct err *err) {
    struct trying *t = arg;
    if (tries_is_unwanted(t))
        return;
    struct live_run *l = t->live;
    t->lent = !err && find_lent(json, t->path);
    t->busy = true;
    if (t->lent) {
        const struct freeze_request r = {.path = t->path, .changes_only = true};
        service_freeze(t->service, &l->who, t->place, &r, frozen, t);
    } else {
        const struct diff_request r = {.brief = true};
        service_diff(t->service, &l->who, t->place, &r, compared, t);
    }
}

static void nothing_runs(void *arg, const struct err *err) {
    struct trying *t = arg;
    if (tries_is_unwanted(t))
        return;
    t->busy = !err;
    if (err)
        judge_failed(t, "cannot end the try's processes", err);
    else
        service_grant_list(t->service, &t->live->who, t->place, grants_known, t);
}

/* Without a check, a try is good if it reports `done`. Its cost is charged to the whole run. */
void tries_judge(struct trying *t) {
    struct outcome o DEFER(tries_outcome_done) = {.report = NULL};
    struct live_run *l = t->live;
    tries_outcome_of(t, t->at, &o);
    t->judged =
        (struct run_event){.good = strcmp(o.status, "done") == 0,
                           .has_usage = true,
                           .usage = {.in = number_in(o.report, "input_tokens"),
                                     .cache_read = number_in(o.report, "cache_read_tokens"),
                                     .cache_write = number_in(o.report, "cache_write_tokens"),
                                     .out = number_in(o.report, "output_tokens")},
                           .calls = number_in(o.report, "calls"),
                           .micro = number_in(o.report, "cost_micro"),
                           .budget = {.turns = number_in(o.report, "turns")}};
    t->changeset[0] = t->why[0] = '\0';
    t->forked = t->lent = false;
    t->file = 0;
    snprintf(t->place, sizeof(t->place), "%s", tries_try_of(t)->machine);
    t->busy = true;
    if (l->run.start.check)
        judge_end_all(t->service, &l->who, t->place, nothing_runs, t);
    else
        nothing_runs(t, NULL);
}
