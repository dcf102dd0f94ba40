#include "guest/serve.h"

#include <sys/wait.h>

#include "base/err.h"
#include "guest/calls.h"
#include "guest/cmd.h"
#include "guest/conn.h"
#include "guest/files.h"
#include "guest/identity.h"
#include "guest/init.h"
#include "guest/meta.h"
#include "guest/pause.h"
#include "guest/sys.h"
#include "guest/tree.h"
#include "guest/warm.h"
#include "guest/watch.h"

static enum serve_result hello(struct guest *g, struct conn *c, const struct frame *f) {
    struct msg_hello m;
    SERVE_GET(hello, f, &m);
    if (m.version == 0 || m.version > MSG_VERSION) { /* the host is too new for this guest */
        struct frame_head head = {.type = MSG_ERROR, .tag = f->head.tag};
        guest_conn_send(
            c, &head,
            &(struct msg_error){.code = ERR_UNSUPPORTED,
                                .text = {"the guest does not support this protocol version", 48}});
        return SERVE_BROKEN;
    }
    c->greeted = true;
    c->takes_calls = m.features & MSG_FEATURE_CALLS;
    if (c->is_privileged)
        g->asked_ns = 0; /* a new spawner can be asked at once */
    uint32_t features = g->features | MSG_FEATURE_NAMES | MSG_FEATURE_CALLS | MSG_FEATURE_META;
    features |= c->serial ? MSG_FEATURE_LOG_READ : MSG_FEATURE_FDS | MSG_FEATURE_COPY;
    features |= c->is_privileged ? MSG_FEATURE_PRIVILEGED : 0;
    struct frame_head head = {.type = MSG_HELLO, .tag = f->head.tag};
    guest_conn_send(c, &head, &(struct msg_hello){MSG_VERSION, features, g->incarnation});
    calls_offer(g);
    return SERVE_DONE;
}

static enum serve_result ping(struct guest *g, struct conn *c, const struct frame *f) {
    (void)g;
    conn_ok(c, f, 0);
    return SERVE_DONE;
}

static enum serve_result shut_down(struct guest *g, struct conn *c, const struct frame *f) {
    (void)g, (void)c, (void)f;
    guest_end();
}

static enum serve_result deadline(struct guest *g, struct conn *c, const struct frame *f) {
    (void)g;
    struct msg_deadline m;
    SERVE_GET(deadline, f, &m);
    if (identity_set_deadline(m.in_ms) < 0)
        conn_fail(c, f, errno, "cannot set the deadline of the machine");
    else
        conn_ok(c, f, 0);
    return SERVE_DONE;
}

static enum serve_result linger(struct guest *g, struct conn *c, const struct frame *f) {
    g->lingers = true;
    conn_ok(c, f, 0);
    return SERVE_DONE;
}

static enum serve_result spares(struct guest *g, struct conn *c, const struct frame *f) {
    struct msg_spares m;
    SERVE_GET(spares, f, &m);
    uint32_t each = m.each;
    if ((each != 2 && each != 3) || m.count * each != (f->head.flags & FRAME_FDS_MASK))
        return SERVE_BROKEN;
    int *fd = c->fds;
    for (uint32_t i = 0; i < m.count; i++, fd += each) {
        tree_add(g, fd[0], fd[1], each == 3 ? fd[2] : -1);
        fd[0] = fd[1] = fd[each - 1] = -1;
    }
    g->asked_ns = 0;
    return SERVE_DONE;
}

/*
 * Switches to a new root. Refused while any process runs in the machine: it would stay in the old
 * root.
 */
static enum serve_result switch_root(struct guest *g, struct conn *c, const struct frame *f) {
    if ((f->head.flags & FRAME_FDS_MASK) != 1)
        return SERVE_BROKEN;
    cmd_reap(g);
    if (!g->is_childless)
        guest_conn_refuse(c, f, ERR_BUSY,
                          "cannot switch the root of the machine: processes are running in it");
    else if (fchdir(c->fds[0]) < 0 || chroot(".") < 0)
        conn_fail(c, f, errno, "cannot switch the root of the machine");
    else {
        conn_ok(c, f, 0);
        warm_begin(false);
    }
    return SERVE_DONE;
}

static const struct {
    enum serve_result (*run)(struct guest *, struct conn *, const struct frame *);
    bool is_privileged;
    bool is_bare;  /* the message has no payload */
    bool owns_fds; /* the message may carry descriptors; other messages may not */
} handlers[] = {
    [MSG_HELLO] = {hello},
    [MSG_PING] = {ping, .is_bare = true},
    [MSG_SHUTDOWN] = {shut_down, .is_bare = true},
    [MSG_EXEC] = {cmd_take_exec, .owns_fds = true},
    [MSG_STDIN] = {cmd_stdin},
    [MSG_CREDIT] = {cmd_credit},
    [MSG_EXIT_ACK] = {cmd_exit_ack, .is_bare = true},
    [MSG_SIGNAL] = {cmd_signal},
    [MSG_KILL] = {cmd_kill, .is_bare = true},
    [MSG_RESIZE] = {cmd_resize},
    [MSG_ATTACH] = {cmd_attach},
    [MSG_TABLE] = {cmd_table, .is_bare = true},
    [MSG_BUSY] = {cmd_busy, .is_bare = true},
    [MSG_LOG_WAIT] = {cmd_log_wait},
    [MSG_LOG_OPEN] = {cmd_log_open, .is_bare = true},
    [MSG_PAUSE] = {cmd_put_away, .owns_fds = true},
    [MSG_GO_ON] = {cmd_go_on, .is_bare = true},
    [MSG_LEAVE] = {cmd_leave, .is_bare = true},
    [MSG_STAT] = {files_stat},
    [MSG_LIST] = {files_list},
    [MSG_READ] = {files_read},
    [MSG_WRITE] = {files_write},
    [MSG_MKDIR] = {files_mkdir},
    [MSG_MOVE] = {files_move},
    [MSG_REMOVE] = {files_remove},
    [MSG_CHMOD] = {files_chmod},
    [MSG_CHOWN] = {files_chown},
    [MSG_SYMLINK] = {files_symlink},
    [MSG_WATCH] = {watch_add},
    [MSG_UNWATCH] = {watch_remove, .is_bare = true},
    [MSG_CALL_ANSWER] = {calls_answer},
    [MSG_CLONE_ID] = {identity_become, .is_privileged = true},
    [MSG_DEADLINE] = {deadline, .is_privileged = true},
    [MSG_SPARES] = {spares, .is_privileged = true, .owns_fds = true},
    [MSG_SWITCH_ROOT] = {switch_root, .is_bare = true, .owns_fds = true},
    [MSG_LINGER] = {linger, .is_privileged = true, .is_bare = true},
    [MSG_LOG_READ] = {cmd_log_read},
    [MSG_META] = {meta_get},
    [MSG_META_SET] = {meta_set},
    [MSG_FILE_ROOT] = {meta_root},
    [MSG_RESUMED] = {identity_resume, .is_privileged = true},
};

static bool is_well_formed(const struct conn *c, const struct frame *f) {
    uint16_t type = f->head.type;
    if (type >= sizeof(handlers) / sizeof(*handlers) || !handlers[type].run)
        return false;
    if ((type == MSG_HELLO) == c->greeted)
        return false;
    if (handlers[type].is_bare && f->head.bytes > 0)
        return false;
    return handlers[type].owns_fds || !(f->head.flags & FRAME_FDS_MASK);
}

enum serve_result serve_frame(struct guest *g, struct conn *c, const struct frame *f) {
    if (!is_well_formed(c, f))
        return SERVE_BROKEN;
    if (handlers[f->head.type].is_privileged && !c->is_privileged) {
        guest_conn_refuse(c, f, ERR_DENIED, "only the spawner may send this message to the guest");
        return SERVE_DONE;
    }
    return handlers[f->head.type].run(g, c, f);
}
