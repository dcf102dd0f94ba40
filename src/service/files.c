#include "service/files.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/parse.h"
#include "service/asleep.h"
#include "service/cells.h"
#include "service/exec/plan.h"
#include "service/steps/barrier.h"
#include "service/steps/live.h"

static const struct {
    uint16_t type;
    enum token_scope scope;
    const char *verb;
    size_t size; /* size of its message struct */
} verbs[] = {
    {MSG_STAT, SCOPE_READ, "file.stat", sizeof(struct msg_path)},
    {MSG_LIST, SCOPE_READ, "file.list", sizeof(struct msg_list)},
    {MSG_READ, SCOPE_READ, "file.read", sizeof(struct msg_read)},
    {MSG_WRITE, SCOPE_RUN, "file.write", sizeof(struct msg_write)},
    {MSG_MKDIR, SCOPE_RUN, "file.mkdir", sizeof(struct msg_path)},
    {MSG_MOVE, SCOPE_RUN, "file.move", sizeof(struct msg_move)},
    {MSG_REMOVE, SCOPE_RUN, "file.remove", sizeof(struct msg_path)},
    {MSG_CHMOD, SCOPE_RUN, "file.chmod", sizeof(struct msg_path)},
    {MSG_CHOWN, SCOPE_RUN, "file.chown", sizeof(struct msg_chown)},
    {MSG_SYMLINK, SCOPE_RUN, "file.symlink", sizeof(struct msg_move)},
    {MSG_WATCH, SCOPE_READ, "file.watch", sizeof(struct msg_path)},
    {MSG_META, SCOPE_READ, "file.meta", sizeof(struct msg_list)},
    {MSG_META_SET, SCOPE_RUN, "file.meta", sizeof(struct msg_meta_set)},
    {MSG_FILE_ROOT, SCOPE_RUN, "file.root", sizeof(struct msg_path)},
};

/* The message of any file request. Its strings and data belong to the caller,
 * who keeps them until the answer. */
union file_message {
    struct msg_path path;
    struct msg_list list;
    struct msg_read read;
    struct msg_write write;
    struct msg_move move;
    struct msg_chown chown;
    struct msg_meta_set meta;
};

static size_t message_size(uint16_t type, bool *ret_changes) {
    size_t at = 0;
    while (verbs[at].type != type)
        at++;
    *ret_changes = verbs[at].scope == SCOPE_RUN;
    return verbs[at].size;
}

int file_user(const char *text, uint32_t *ret_uid, struct err *err) {
    uint64_t uid = text ? 1000 : FILE_USER_OF_MACHINE;
    if (text && strcmp(text, "root") == 0)
        uid = 0;
    else if (text && strcmp(text, "user") != 0 && parse_u64(text, 0, 65534, &uid, NULL) < 0) {
        err_set(err, ERR_INVALID, "'%.40s' is not a user of the machine", text);
        return err_remedy(err, "use 'user', 'root' or a number up to 65534");
    }
    *ret_uid = (uint32_t)uid;
    return 0;
}

int service_file_owner(struct service *s, const struct caller *who, const char *id,
                       uint32_t *ret_uid, uint32_t *ret_gid, struct err *err) {
    const struct live *l = live_find(s, who, id, LIVE_ANY, err);
    if (l)
        live_user(l, ret_uid, ret_gid);
    return l ? 0 : -1;
}

/* All messages about files start with uid and gid. A cell has one user. */
void file_user_settle(const struct live *l, uint32_t *uid, uint32_t *gid) {
    if (live_is_cell(l))
        *uid = *gid = 0;
    else if (*uid == FILE_USER_OF_MACHINE)
        live_user(l, uid, gid);
}

const char *service_start_dir(struct service *s, const char *machine) {
    const struct live *l = map_get(&s->machines, machine);
    return l ? live_start_dir(l) : "/home/user";
}

bool file_replaced(const struct msg_read_data *first, const struct msg_read_data *now) {
    return now->ino != first->ino && (now->size != first->size || now->mtime_ns != first->mtime_ns);
}

/* Checks the request and returns the machine. A paused or stopped machine still has files. */
static struct live *files_prepare(struct service *s, const struct caller *who, const char *machine,
                                  uint16_t type, const char *path, uint64_t *ret_intent,
                                  const char **ret_verb, struct err *err) {
    size_t at = 0;
    while (verbs[at].type != type)
        at++;
    struct live *l =
        allow(who, verbs[at].scope, err) < 0 ? NULL : live_find(s, who, machine, LIVE_ANY, err);
    if (l && !l->machine && !live_is_asleep(l)) {
        live_state_error(l, err);
        return NULL;
    }
    struct buf detail DEFER(buf_done) = BUF(JOURNAL_DETAIL_MAX);
    struct jot j = JOT(&detail);
    jot_object(&j, NULL);
    jot_string(&j, "path", path ? path : "");
    jot_end(&j, '}');
    struct journal_record what = {.verb = verbs[at].verb,
                                  .machine = l ? l->row.id : NULL,
                                  .detail = j.failed ? NULL : detail.data};
    *ret_verb = verbs[at].verb;
    if (l && path && note_intent(s, who, &what, ret_intent, err) < 0)
        return NULL;
    return l;
}

struct file_call {
    struct live *live;
    struct caller who;
    const char *verb; /* verb of the journal; NULL: not recorded */
    const char *path; /* NULL: not in the journal; owned by the caller until the answer */
    uint64_t intent;
    guest_reply_fn *done;
    void *arg;
    uint16_t type;
    bool changes;
    bool is_piece;              /* no step follows */
    union file_message message; /* copy, while the request waits for a step */
};

static void answered(void *arg, const struct frame *frame, const struct err *err) {
    struct file_call *c = arg;
    struct err named;
    if (err && c->path) {
        named = *err;
        err_wrap(&named, "path '%.200s'", c->path);
        err = &named;
    }
    if (c->verb) {
        struct journal_record what = {.verb = c->verb, .machine = c->live->row.id};
        note_result(c->live->service, &c->who, &what, c->intent, err);
    }
    struct step_cause cause = {.kind = STEP_FILE, .what = c->path, .status = -1};
    if (c->changes && !c->is_piece && !err)
        steps_after(c->live, &cause);
    c->done(c->arg, frame, err);
    live_unref(c->live);
    free(c);
}

/* An older guest would close the connection. */
static bool guest_may_take(const struct guest *g, uint16_t type) {
    return (type != MSG_META && type != MSG_META_SET && type != MSG_FILE_ROOT) || guest_has_meta(g);
}

static void send_file(void *arg);

static void file_awake(void *arg, const struct err *err) {
    if (err)
        answered(arg, NULL, err);
    else
        send_file(arg);
}

static void send_file(void *arg) {
    struct file_call *c = arg;
    struct live *l = c->live;
    struct err err;
    if (asleep_wait(l, file_awake, c))
        return;
    int turn =
        c->changes ? barrier_enter(l, send_file, c, &err) : barrier_wait_root(l, send_file, c);
    if (turn > 0)
        return;
    if (turn == 0 && l->machine && !guest_may_take(l->machine->guest, c->type)) {
        err_set(&err, ERR_UNSUPPORTED,
                "the machine was started by an older version of Carrel, which knows no metadata of "
                "files");
        answered(c, NULL, &err);
        return;
    }
    if (turn == 0 && l->machine) {
        guest_request(l->machine->guest, (struct frame_head){.type = c->type}, &c->message, NULL, 0,
                      answered, c);
        return;
    }
    if (turn == 0)
        live_state_error(l, &err);
    answered(c, NULL, &err);
}

static void file_start(struct service *s, const struct caller *who, const char *machine,
                       uint16_t type, const void *msg, const char *path, bool is_piece,
                       guest_reply_fn *done, void *arg) {
    const char *verb;
    uint64_t intent = 0;
    struct err err;
    struct live *l = files_prepare(s, who, machine, type, path, &intent, &verb, &err);
    if (!l) {
        done(arg, NULL, &err);
        return;
    }
    struct file_call *c = xnew(struct file_call);
    *c = (struct file_call){l, *who, path ? verb : NULL, path, intent, done, arg, .type = type};
    c->is_piece = is_piece;
    size_t size = message_size(type, &c->changes);
    memcpy(&c->message, msg, size);
    file_user_settle(l, &c->message.path.uid, &c->message.path.gid);
    live_ref(l);
    idle_touch(&l->idle, loop_now_ms(s->loop));
    send_file(c);
}

void service_file(struct service *s, const struct caller *who, const char *machine, uint16_t type,
                  const void *msg, const char *path, guest_reply_fn *done, void *arg) {
    file_start(s, who, machine, type, msg, path, false, done, arg);
}

void service_file_piece(struct service *s, const struct caller *who, const char *machine,
                        uint16_t type, const void *msg, const char *path, guest_reply_fn *done,
                        void *arg) {
    file_start(s, who, machine, type, msg, path, true, done, arg);
}

struct watch_call {
    struct file_watch *watch; /* NULL: cancelled */
    struct msg_path path;
};

static void begin_watch(struct file_watch *w, const struct msg_path *path) {
    struct live *l = w->live;
    struct err err;
    if (!l->machine) {
        live_state_error(l, &err);
        w->inner.ended(w->inner.arg, &err);
        return;
    }
    w->begun = true;
    l->watched++;
    guest_watch(l->machine->guest, &w->inner, path);
}

static void watch_later(void *arg) {
    struct watch_call *c DEFER_FREE = arg;
    if (!c->watch)
        return;
    c->watch->waits = NULL;
    begin_watch(c->watch, &c->path);
}

int service_file_watch(struct service *s, const struct caller *who, const char *machine,
                       const struct msg_path *path, struct file_watch *w, struct err *err) {
    const char *verb;
    uint64_t intent;
    struct live *l = files_prepare(s, who, machine, MSG_WATCH, path->path.s, &intent, &verb, err);
    if (!l)
        return -1;
    w->inner.id = ++s->watch_ids ? s->watch_ids : ++s->watch_ids;
    w->live = l;
    w->who = *who;
    w->intent = intent;
    live_ref(l);
    l->open++;
    struct watch_call *c = xnew(struct watch_call);
    *c = (struct watch_call){w, *path};
    file_user_settle(l, &c->path.uid, &c->path.gid);
    w->waits = c;
    if (!barrier_wait(l, watch_later, c))
        watch_later(c);
    return 0;
}

void service_file_unwatch(struct file_watch *w, const struct err *why) {
    struct live *l = w->live;
    if (!l)
        return;
    struct journal_record what = verb_record("file.watch", l);
    note_result(l->service, &w->who, &what, w->intent, why);
    if (w->waits)
        w->waits->watch = NULL;
    if (w->begun && l->machine)
        guest_unwatch(l->machine->guest, &w->inner);
    l->open--;
    l->watched -= w->begun;
    w->live = NULL;
    live_unref(l);
}
