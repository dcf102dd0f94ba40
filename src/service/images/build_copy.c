/*
 * The step of a build that copies files: finds the destination in the machine, unpacks the archive
 * there with the guest's own tool, and gives the files their owner. Nothing is unpacked on the
 * host.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/tar.h"
#include "base/text/accounts.h"
#include "service/exec/tool_run.h"
#include "service/files.h"
#include "service/images/build_inner.h"

enum {
    FEED_PIECE = 64 << 10,
    /* Blocks of one entry: its header, and an extended header of each of the four types. */
    ENTRY_BLOCKS_MAX = 1 + 4 * (1 + TAR_META_MAX / TAR_BLOCK),
    ENTRIES_MAX = 32, /* read at a time */
};

static build_then_fn copy_parent, copy_owner, copy_make_dir, copy_unpack, copy_chown;

void build_copying_done(struct build_copying *c) {
    buf_done(&c->text);
    buf_done(&c->head);
}

static struct msg_path root_path(const char *path) {
    return (struct msg_path){.path = {path, (uint32_t)strlen(path)}};
}

/* ---- the destination ---- */

static bool frame_is_dir(const struct frame *frame) {
    struct msg_entry e;
    return frame && msg_get_entry(frame, &e) == 0 && S_ISDIR(e.mode);
}

/* Splits the destination into a directory and the name of the one file. */
static int place_as_file(struct build *b, struct err *err) {
    struct build_copying *c = &b->copying;
    const char *to = build_step_of(b)->to, *slash = strrchr(to, '/');
    snprintf(c->dir, sizeof(c->dir), "%.*s", slash > to ? (int)(slash - to) : 1, to);
    if (!slash[1] || strlen(slash + 1) >= sizeof(c->name))
        return err_set(err, ERR_INVALID, "'%.60s' is not a valid destination of a file", to);
    snprintf(c->name, sizeof(c->name), "%s", slash + 1);
    return 0;
}

static void place_as_dir(struct build *b, bool exists) {
    struct build_copying *c = &b->copying;
    size_t n = (size_t)snprintf(c->dir, sizeof(c->dir), "%s", build_step_of(b)->to);
    while (n > 1 && c->dir[n - 1] == '/')
        c->dir[--n] = '\0';
    c->exists = exists;
}

static void copy_found(void *arg, const struct frame *frame, const struct err *failed) {
    struct build *b = arg;
    const struct build_step *step = build_step_of(b);
    bool is_dir = frame_is_dir(frame), gone = failed && failed->code != ERR_NOT_FOUND;
    struct err err;
    if (gone && (b->cancelled || failed->code == ERR_GONE || failed->code == ERR_UNKNOWN)) {
        build_did(b, failed);
        return;
    }
    if (is_dir || step->into || step->to[strlen(step->to) - 1] == '/') {
        place_as_dir(b, is_dir);
        b->then = copy_owner;
    } else if (place_as_file(b, &err) < 0) {
        build_did(b, &err);
        return;
    }
    build_did(b, NULL);
}

static void copy_parent_found(void *arg, const struct frame *frame, const struct err *err) {
    struct build *b = arg;
    (void)err; /* a directory that cannot be read is created, which says why not */
    b->copying.exists = frame_is_dir(frame);
    build_did(b, NULL);
}

static void copy_parent(struct build *b) {
    const struct msg_path m = root_path(b->copying.dir);
    build_begin(b, copy_owner);
    service_file(b->service, &b->who, b->machine, MSG_STAT, &m, NULL, copy_parent_found, b);
}

void build_copy_step(struct build *b, build_then_fn *then) {
    const struct build_step *step = build_step_of(b);
    struct err err;
    build_copying_done(&b->copying);
    b->copying = (struct build_copying){.text = BUF(ACCOUNT_FILE_MAX),
                                        .head = BUF(TAR_HEAD_MAX),
                                        .from = &b->archives[step->archive.value],
                                        .then = then};
    if (step->as_file) {
        if (place_as_file(b, &err) < 0)
            build_fail(b, &err);
        else
            copy_parent(b);
        return;
    }
    const struct msg_path m = root_path(step->to);
    build_begin(b, copy_parent);
    service_file(b->service, &b->who, b->machine, MSG_STAT, &m, NULL, copy_found, b);
}

/* ---- the owner ---- */

static bool text_is_id(const char *text, uint32_t *ret) {
    char *end;
    if (!*text || strlen(text) > 5 || text[strspn(text, "0123456789")] != '\0')
        return false;
    *ret = (uint32_t)strtoul(text, &end, 10);
    return *ret < ACCOUNT_ID_MAX;
}

/* Copies the user or the group of USER[:GROUP]; "" if there is none. */
static int owner_word(const struct build *b, bool group, char ret[ACCOUNT_NAME_MAX + 2],
                      struct err *err) {
    const char *text = build_step_of(b)->chown;
    size_t n = strcspn(text, ":");
    const char *word = !group ? text : text[n] ? text + n + 1 : "";
    n = group ? strlen(word) : n;
    if (n > ACCOUNT_NAME_MAX)
        return err_set(err, ERR_INVALID, "--chown: '%.40s...' is too long", word);
    snprintf(ret, ACCOUNT_NAME_MAX + 2, "%.*s", (int)n, word);
    return 0;
}

static int owner_look_up(struct build *b, const char *name, struct err *err) {
    struct build_copying *c = &b->copying;
    const char *text = c->text.data ? c->text.data : "";
    struct account account;
    bool found = c->reads_group ? account_group_find(text, c->text.len, name, &c->gid)
                                : account_find(text, c->text.len, name, &account);
    if (!found)
        return err_set(err, ERR_NOT_FOUND, "--chown: %s '%.40s' does not exist in %s of the image",
                       c->reads_group ? "group" : "user", name,
                       c->reads_group ? "/etc/group" : "/etc/passwd");
    if (!c->reads_group)
        c->uid = c->gid = account.uid;
    return 0;
}

static void owner_read(struct build *b);

/* As in Docker, a group that is not given is the same number as the user. */
static void owner_next(struct build *b) {
    b->copying.text.len = 0;
    if (b->copying.reads_group) {
        copy_make_dir(b);
        return;
    }
    b->copying.reads_group = true;
    copy_owner(b);
}

static void owner_data(void *arg, const struct frame *frame, const struct err *failed) {
    struct build *b = arg;
    struct msg_read_data m;
    struct err err;
    char name[ACCOUNT_NAME_MAX + 2];
    if (failed) {
        err = *failed;
        err_wrap(&err, "cannot find the owner of --chown");
        build_did(b, &err);
        return;
    }
    bool ok = msg_get_read_data(frame, &m) == 0;
    size_t n = ok ? m.data.n : 0;
    if (ok && n && buf_add(&b->copying.text, m.data.p, n) && b->copying.text.len < m.size) {
        b->then = owner_read;
        build_did(b, NULL);
        return;
    }
    if (owner_word(b, b->copying.reads_group, name, &err) < 0 || owner_look_up(b, name, &err) < 0)
        build_did(b, &err);
    else
        build_did(b, NULL);
}

static void owner_read(struct build *b) {
    const char *path = b->copying.reads_group ? "/etc/group" : "/etc/passwd";
    const struct msg_read m = {
        .offset = b->copying.text.len, .bytes = FEED_PIECE, .path = {path, (uint32_t)strlen(path)}};
    build_begin(b, owner_next);
    service_file(b->service, &b->who, b->machine, MSG_READ, &m, NULL, owner_data, b);
}

static void copy_owner(struct build *b) {
    struct build_copying *c = &b->copying;
    char name[ACCOUNT_NAME_MAX + 2];
    struct err err;
    if (!build_step_of(b)->chown) {
        copy_make_dir(b);
        return;
    }
    if (owner_word(b, c->reads_group, name, &err) < 0) {
        build_fail(b, &err);
        return;
    }
    if (!*name && c->reads_group) {
        owner_next(b);
    } else if (text_is_id(name, c->reads_group ? &c->gid : &c->uid)) {
        c->gid = c->reads_group ? c->gid : c->uid;
        owner_next(b);
    } else {
        owner_read(b);
    }
}

static void owner_given(void *arg, const struct frame *frame, const struct err *err) {
    (void)frame;
    build_did(arg, err);
}

static void owner_give(struct build *b, build_then_fn *then) {
    struct build_copying *c = &b->copying;
    const struct msg_chown m = {.flags = MSG_NOFOLLOW,
                                .owner = c->uid,
                                .group = c->gid,
                                .path = {c->path, (uint32_t)strlen(c->path)}};
    build_begin(b, then);
    service_file(b->service, &b->who, b->machine, MSG_CHOWN, &m, NULL, owner_given, b);
}

/* ---- unpacking ---- */

static void dir_is_made(struct build *b) {
    snprintf(b->copying.path, sizeof(b->copying.path), "%s", b->copying.dir);
    if (build_step_of(b)->chown)
        owner_give(b, copy_unpack);
    else
        copy_unpack(b);
}

static void copy_make_dir(struct build *b) {
    struct msg_path m = root_path(b->copying.dir);
    if (b->copying.exists) {
        copy_unpack(b);
        return;
    }
    m.flags = MSG_PARENTS;
    m.mode = 0755;
    build_begin(b, dir_is_made);
    service_file(b->service, &b->who, b->machine, MSG_MKDIR, &m, b->copying.dir, owner_given, b);
}

/*
 * Reads the next entry of the archive from *at on. 1, 0 at the end, or -1: not an archive, or one
 * with more headers than an entry needs.
 */
static int archive_next(const struct build_archive *a, uint64_t *at, struct tar_entry *ret) {
    struct tar_reader *r DEFER_FREE = xnew(struct tar_reader);
    uint8_t block[TAR_BLOCK];
    for (int i = 0; i < ENTRY_BLOCKS_MAX; i++) {
        if (pread(a->fd, block, sizeof(block), (off_t)*at) != (ssize_t)sizeof(block))
            return -1;
        *at += sizeof(block);
        enum tar_step step = tar_next(r, block, ret);
        if (step == TAR_ENTRY)
            return 1;
        if (step != TAR_MORE)
            return step == TAR_END ? 0 : -1;
    }
    return -1;
}

static void copy_feed(void *arg) {
    struct build *b = arg;
    struct build_copying *c = &b->copying;
    char *piece DEFER_FREE = xmalloc(FEED_PIECE);
    while (c->tool && c->head_at < c->head.len) {
        size_t n = tool_feed(c->tool, c->head.data + c->head_at, c->head.len - c->head_at, false);
        c->head_at += n;
        if (!n)
            return;
    }
    while (c->tool) {
        ssize_t n = pread(c->from->fd, piece, FEED_PIECE, (off_t)c->at);
        size_t got = n > 0 ? (size_t)n : 0;
        bool last = c->at + got >= c->from->size || !got;
        size_t took = tool_feed(c->tool, piece, got, last);
        c->at += took;
        if (last || took < got)
            return;
    }
}

static void copy_unpacked(void *arg, int status, const char *answer, const char *said,
                          const struct err *failed) {
    struct build *b = arg;
    struct err err;
    (void)answer;
    b->copying.tool = NULL;
    b->copying.at = 0;
    if (!failed && status == MSG_TOOL_FAILED) {
        tool_said(said, &err);
        failed = &err;
    }
    build_did(b, failed);
}

/* Replaces the name in the header of the one file of the archive. */
static int copy_rename(struct build_copying *c, struct err *err) {
    struct tar_entry *e DEFER_FREE = xnew(struct tar_entry);
    uint8_t head[TAR_HEAD_MAX];
    if (archive_next(c->from, &c->at, e) != 1 || e->kind != TAR_FILE)
        return err_set(err, ERR_INVALID, "the archive of the step does not start with a file");
    snprintf(e->path, sizeof(e->path), "%s", c->name);
    (void)!buf_add(&c->head, head, tar_put(head, e));
    return 0;
}

static void copy_unpack(struct build *b) {
    struct build_copying *c = &b->copying;
    const char *const argv[] = {"untar", c->dir, NULL};
    const struct tool_events events = {.arg = b, .room = copy_feed, .ended = copy_unpacked};
    struct err err;
    if (c->name[0] && copy_rename(c, &err) < 0) {
        build_fail(b, &err);
        return;
    }
    build_begin(b, build_step_of(b)->chown ? copy_chown : c->then);
    c->tool =
        service_tool(b->service, &b->who, b->machine, "file.untar", argv, "root", &events, &err);
    if (!c->tool)
        build_did(b, &err);
    else
        copy_feed(b);
}

/* Gives each file and directory of the archive its owner, one at a time. */
static void copy_chown(struct build *b) {
    struct build_copying *c = &b->copying;
    struct tar_entry *e DEFER_FREE = xnew(struct tar_entry);
    struct err err;
    for (int i = 0; i < ENTRIES_MAX; i++) {
        int r = archive_next(c->from, &c->at, e);
        if (r < 0) {
            err_set(&err, ERR_INVALID, "the archive of the step is damaged");
            build_fail(b, &err);
            return;
        }
        if (r == 0) {
            c->then(b);
            return;
        }
        c->at += e->size + tar_padding(e->size);
        if (e->kind == TAR_SYMLINK)
            continue;
        const char *name = c->name[0] ? c->name : e->path;
        snprintf(c->path, sizeof(c->path), "%s%s%s", c->dir, c->dir[1] ? "/" : "", name);
        owner_give(b, copy_chown);
        return;
    }
    build_go(b, copy_chown);
}
