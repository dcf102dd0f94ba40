/*
 * Copies the work of a try (one of several attempts) into a machine that the try never touched.
 * Only the work directories are copied, so the check runs with the programs of the starting step.
 *
 * Files are unpacked into a staging directory and moved into place by one command. Commands have
 * keys, so a resumed run moves nothing twice, even if it packs files again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "operator/inner.h"
#include "service/exec/exec.h"
#include "service/exec/tool_run.h"
#include "service/files.h"
#include "service/taint.h"

enum {
    JUDGE_MS = 600 * 1000,
    JUDGE_DIRS = 2,
    JUDGE_STOPS = 15,
    JUDGE_KEY_SIZE = 80,
    JUDGE_WINDOW = 16 << 20, /* size of the buffer; more than a tool sends before a reply */
};

#define STAGING "/.carrel-judge"

struct judging {
    struct service *service;
    struct caller who;
    char from[ID_SIZE], to[ID_SIZE], key[JUDGE_KEY_SIZE];
    char dirs[JUDGE_DIRS][4096], owner[32]; /* uid:gid of the work directories */
    bool lent; /* dirs[0] is a directory that the owner lent; its dot files are copied too */
    size_t at;
    /* The command in progress. */
    struct exec *exec;
    struct exec_follower follower;
    struct exec_request request;
    const char *words[9];
    char exec_key[JUDGE_KEY_SIZE + 16];
    void (*next)(struct judging *j);
    /* The directory that is being copied. */
    struct tool_run *out, *in;
    struct buf bytes;
    size_t fed;
    bool packed; /* the whole archive was read into `bytes` */
    judge_fn *done;
    void *arg;
};

static void judging_end(struct judging *j, const struct err *err) {
    judge_fn *done = j->done;
    void *arg = j->arg;
    buf_done(&j->bytes);
    free(j);
    done(arg, err);
}

/* ---- commands ---- */

static void command_changed(void *arg) {
    struct judging *j = arg;
    struct exec_view view;
    struct err err;
    if (!exec_is_over(j->exec))
        return;
    exec_view(j->exec, &view);
    bool good = view.status == 0;
    exec_unfollow(&j->follower);
    exec_unref(TAKE(j->exec));
    if (good) {
        j->next(j);
        return;
    }
    err_set(&err, ERR_UNKNOWN, "cannot prepare the machine for the check: a command in it failed");
    judging_end(j, &err);
}

static void command_begun(void *arg, struct exec *x, const struct err *err) {
    struct judging *j = arg;
    if (err) {
        judging_end(j, err);
        return;
    }
    j->exec = x;
    j->follower = (struct exec_follower){.changed = command_changed, .arg = j};
    exec_follow(x, &j->follower);
    command_changed(j);
}

static void command_run(struct judging *j, const char *name, const char *script,
                        void (*next)(struct judging *j)) {
    static const uint8_t no_hash[SHA256_BYTES];
    const char *const words[] = {"/bin/sh", "-c",       script,     "sh",
                                 STAGING,   j->dirs[0], j->dirs[1], j->lent ? "dots" : "",
                                 j->owner};
    memcpy(j->words, words, sizeof(words));
    snprintf(j->exec_key, sizeof(j->exec_key), "%s.%s", j->key, name);
    j->next = next;
    j->request = (struct exec_request){.argv = {j->words, sizeof(words) / sizeof(*words)},
                                       .user = "root",
                                       .cwd = "/",
                                       .key = j->exec_key,
                                       .timeout = {JUDGE_MS, true}};
    service_exec(j->service, &j->who, j->to, &j->request, no_hash, NULL, 0, command_begun, j);
}

/* ---- directories ---- */

static void dir_copy(struct judging *j);

#define PREPARE "umask 077; mkdir -p \"$1/0\" \"$1/1\" && chown \"$5\" \"$1\" \"$1/0\" \"$1/1\""

/*
 * Moves files from the staging directory $1 to the work directories $2 and $3. Dot files in a home
 * directory are settings of programs that the check runs, so those of the try are left out.
 *
 * A resumed run finds this command and PREPARE by their keys and does not repeat them, but copies
 * into the staging directory again. So the directory stays, empty.
 */
static const char move_into_place[] =
    "owner=$5\n"
    "put() {\n"
    "  mkdir -p \"$2\" && chown \"$owner\" \"$2\" && rm -rf -- \"$2\"/* || exit 1\n"
    "  [ -z \"$3\" ] || rm -rf -- \"$2\"/.[!.]* \"$2\"/..?* || exit 1\n"
    "  for f in \"$1\"/* \"$1\"/.[!.]* \"$1\"/..?*; do\n"
    "    case ${f##*/} in .*) [ -n \"$3\" ] || continue;; esac\n"
    "    [ -e \"$f\" ] || [ -L \"$f\" ] || continue\n"
    "    mv -- \"$f\" \"$2/\" || exit 1\n"
    "  done\n"
    "}\n"
    "put \"$1/0\" \"$2\" \"$4\"; put \"$1/1\" \"$3\" dots; rm -rf -- \"$1\" && " PREPARE "\n";

static void dirs_moved(struct judging *j) {
    judging_end(j, NULL);
}

/* Called when the packing and the unpacking tool have ended or were never started. */
static void dir_over(struct judging *j, const struct err *err) {
    buf_done(&j->bytes);
    if (err) {
        judging_end(j, err);
        return;
    }
    j->at++;
    dir_copy(j);
}

static void dir_unpacked(void *arg, int status, const char *answer, const char *said,
                         const struct err *err) {
    struct judging *j = arg;
    struct err why;
    (void)answer;
    j->in = NULL;
    if (!err && status != 0) {
        tool_said(said, &why);
        err = &why;
    }
    if (j->out)
        tool_cancel(TAKE(j->out));
    dir_over(j, err);
}

/* Passes archive bytes to the unpacking tool. The packing tool may send more only after that, so at
 * most one window is buffered here. */
static void dir_feed(void *arg) {
    struct judging *j = arg;
    size_t n = tool_feed(j->in, j->bytes.data + j->fed, j->bytes.len - j->fed, j->packed);
    j->fed += n;
    if (j->fed == j->bytes.len) {
        buf_done(&j->bytes);
        j->bytes = BUF(JUDGE_WINDOW);
        j->fed = 0;
    }
    if (j->out && n)
        tool_consumed(j->out, n);
}

static void dir_packing(void *arg, const uint8_t *bytes, uint32_t n) {
    struct judging *j = arg;
    struct err err;
    /* Processes of the try may still run, so the try can become tainted after its check was forked.
     */
    int r = service_taint_flow(j->service, &j->who, TAINT_CHECK, j->from, j->to, &err);
    if (r == 0 && !buf_add(&j->bytes, bytes, n))
        r = err_set(&err, ERR_LIMIT,
                    "the try's machine sent more bytes of a directory than requested");
    if (r < 0)
        tool_stop(j->out, &err);
    else
        dir_feed(j);
}

/* True if the work directory does not exist in the try's machine; it is copied as an empty one. */
static bool is_absent(const struct judging *j, const struct err *why) {
    return why->code == ERR_NOT_FOUND && !j->bytes.len;
}

static void dir_packed(void *arg, int status, const char *answer, const char *said,
                       const struct err *err) {
    static const char no_files[1024];
    struct judging *j = arg;
    struct err why;
    (void)answer;
    j->out = NULL;
    if (!err && status != 0) {
        tool_said(said, &why);
        err = &why;
    }
    if (err && !(is_absent(j, err) && buf_add(&j->bytes, no_files, sizeof(no_files)))) {
        tool_stop(j->in, err); /* stops both tools; `done` gets this error */
        return;
    }
    j->packed = true;
    dir_feed(j);
}

static void dir_copy(struct judging *j) {
    char staging[sizeof(STAGING) + 4];
    const char *const unpack[] = {"untar", staging, NULL};
    const char *const pack[] = {"tar", j->at < JUDGE_DIRS ? j->dirs[j->at] : NULL, NULL};
    const struct tool_events into = {
        .arg = j, .limit_ms = JUDGE_MS, .room = dir_feed, .ended = dir_unpacked};
    const struct tool_events out = {
        .arg = j, .limit_ms = JUDGE_MS, .data = dir_packing, .ended = dir_packed};
    struct err err;
    if (j->at == JUDGE_DIRS) {
        command_run(j, "move", move_into_place, dirs_moved);
        return;
    }
    snprintf(staging, sizeof(staging), STAGING "/%zu", j->at);
    j->bytes = BUF(JUDGE_WINDOW);
    j->fed = 0;
    j->packed = false;
    j->in = service_tool(j->service, &j->who, j->to, "file.untar", unpack, NULL, &into, &err);
    if (!j->in) {
        dir_over(j, &err);
        return;
    }
    j->out = service_tool(j->service, &j->who, j->from, "file.tar", pack, "root", &out, &err);
    if (j->out)
        tool_feed(j->out, "", 0, true);
    else
        tool_stop(j->in, &err);
}

void judge_apply(struct service *s, const struct caller *who, const struct judge_request *r,
                 judge_fn *done, void *arg) {
    struct judging *j = xnew(struct judging);
    struct err err;
    uint32_t uid, gid;
    *j = (struct judging){
        .service = s, .who = *who, .lent = r->lent != NULL, .done = done, .arg = arg};
    snprintf(j->from, sizeof(j->from), "%s", r->from);
    snprintf(j->to, sizeof(j->to), "%s", r->to);
    snprintf(j->key, sizeof(j->key), "%s", r->key);
    snprintf(j->dirs[0], sizeof(j->dirs[0]), "%s", r->lent ? r->lent : "/home/user");
    snprintf(j->dirs[1], sizeof(j->dirs[1]), "/outbox");
    if (service_file_owner(s, who, r->to, &uid, &gid, &err) < 0) {
        judging_end(j, &err);
        return;
    }
    snprintf(j->owner, sizeof(j->owner), "%u:%u", uid, gid);
    command_run(j, "stage", PREPARE, dir_copy);
}

/* ---- processes of a try ---- */

struct ending {
    struct service *service;
    struct caller who;
    char machine[ID_SIZE];
    unsigned tries;
    judge_fn *done;
    void *arg;
};

static void up_again(void *arg, const struct machine_view *view, const struct err *err) {
    struct ending *e DEFER_FREE = arg;
    (void)view;
    e->done(e->arg, err);
}

/* Repeats a stop of the machine, because a large process tree may outlast the first one. */
static void all_ended(void *arg, const struct machine_view *view, const struct err *err) {
    struct ending *e = arg;
    if (err && err->code == ERR_BUSY && ++e->tries < JUDGE_STOPS)
        service_stop(e->service, &e->who, e->machine, all_ended, e);
    else if (err)
        up_again(e, view, err);
    else
        service_resume(e->service, &e->who, e->machine, up_again, e);
}

void judge_end_all(struct service *s, const struct caller *who, const char *machine, judge_fn *done,
                   void *arg) {
    struct ending *e = xnew(struct ending);
    *e = (struct ending){.service = s, .who = *who, .done = done, .arg = arg};
    snprintf(e->machine, sizeof(e->machine), "%s", machine);
    service_stop(s, who, e->machine, all_ended, e);
}
