/* The tools read, write and edit. They work through the guest, so the rights inside the machine
 * apply. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/hex.h"
#include "base/sha256.h"
#include "base/text/base64.h"
#include "base/wire/msg.h"
#include "service/files.h"
#include "tools/edit.h"
#include "tools/pull.h"
#include "tools/put.h"
#include "tools/requests.h"
#include "tools/toolbox.h"

enum { LINE_SHOWN = 2000 };

static int check_path(const char *path, struct err *err) {
    if (path[0] == '/')
        return 0;
    err_set(err, ERR_INVALID, "path '%.100s' is not absolute", path);
    return err_remedy(err, "start the path with /, such as /home/user/%.60s", path);
}

/* ---- read ---- */

static const struct {
    const char *magic;
    size_t n, at;
    const char *media;
} images[] = {
    {"\x89PNG\r\n\x1a\n", 8, 0, "image/png"},
    {"\xff\xd8\xff", 3, 0, "image/jpeg"},
    {"GIF8", 4, 0, "image/gif"},
    {"WEBP", 4, 8, "image/webp"},
};

struct reading {
    struct act *act;
    struct buf text; /* numbered lines, or an image's bytes */
    struct sha256 hash;
    uint64_t line, from, last; /* the current line, and the requested range */
    uint64_t size, shown;
    const char *media;
    bool binary, full;
    size_t in_line; /* bytes of the current line that were kept */
};

static const char *media_of(const uint8_t *p, size_t n) {
    for (size_t i = 0; i < sizeof(images) / sizeof(*images); i++)
        if (n >= images[i].at + images[i].n &&
            memcmp(p + images[i].at, images[i].magic, images[i].n) == 0)
            return images[i].media;
    return NULL;
}

/* Adds a part of a line; long lines are cut. */
static bool take_part(struct reading *r, const char *s, size_t n) {
    if (!r->in_line && !buf_addf(&r->text, "%6" PRIu64 "\t", r->line))
        return false;
    size_t room = r->in_line < LINE_SHOWN ? LINE_SHOWN - r->in_line : 0;
    bool fits = buf_add(&r->text, s, n < room ? n : room);
    if (fits && n > room && r->in_line <= LINE_SHOWN)
        fits = buf_addf(&r->text, " [line cut]");
    r->in_line += n + 1;
    return fits;
}

static bool take_lines(struct reading *r, const char *s, size_t n) {
    while (n && r->line <= r->last) {
        const char *end = memchr(s, '\n', n);
        size_t part = end ? (size_t)(end - s) : n;
        if (r->line >= r->from && !take_part(r, s, part))
            return false;
        if (end && r->line >= r->from && !buf_add(&r->text, "\n", 1))
            return false;
        if (end) {
            r->shown += r->line >= r->from;
            r->line++;
            r->in_line = 0;
        }
        s += part + (end != NULL);
        n -= part + (end != NULL);
    }
    return n == 0;
}

/* Builds the read request from the arguments. */
static int pull_file(struct act *a, const char *path, const char *user, void *arg,
                     pull_piece_fn *piece, pull_ended_fn *ended, struct err *err) {
    struct pull_from from = {.service = act_service(a),
                             .who = act_who(a),
                             .machine = a->machine,
                             .path = path,
                             .stop = &a->cancelled};
    if (check_path(path, err) < 0 || file_user(user, &from.uid, err) < 0)
        return -1;
    pull(&from, piece, ended, arg);
    return 0;
}

/* The hash covers all bytes that were read; it is returned only if the file was read to its end. */
static bool read_piece(void *arg, const uint8_t *bytes, size_t n) {
    struct reading *r = arg;
    if (!r->size) {
        r->media = media_of(bytes, n);
        r->text = BUF(r->media ? IMAGE_MAX : READ_BYTES);
    }
    r->size += n;
    sha256_add(&r->hash, bytes, n);
    if (r->media) {
        r->full = !buf_add(&r->text, bytes, n);
        return !r->full;
    }
    r->binary = memchr(bytes, 0, n) != NULL;
    if (r->binary)
        return false;
    r->full = !take_lines(r, (const char *)bytes, n);
    return !r->full;
}

/* Finds errors that are known only after the file was read. */
static int judge(struct reading *r, struct err *err) {
    const struct read_input *in = r->act->request;
    if (r->binary) {
        err_set(err, ERR_INVALID, "file '%.200s' is binary", in->path);
        return err_remedy(err, "look at the file with exec: file, xxd, strings");
    }
    if (r->media && r->full)
        return err_set(err, ERR_LIMIT, "file '%.200s' is an image of more than %d MiB", in->path,
                       IMAGE_MAX >> 20);
    if (in->from_line.is && !r->shown && !r->in_line && r->from > 1) {
        err_set(err, ERR_INVALID, "file '%.200s' has only %" PRIu64 " lines", in->path,
                r->line - 1);
        return err_remedy(err, "choose a smaller 'from_line'");
    }
    return 0;
}

static void read_told(struct reading *r, bool whole) {
    const struct read_input *in = r->act->request;
    char hash[SHA256_HEX];
    struct read_output out = {.machine = r->act->machine,
                              .path = in->path,
                              .content = r->media || !r->text.data ? "" : r->text.data,
                              .from_line = r->from,
                              .lines = r->shown + (r->in_line ? 1 : 0),
                              .size = r->size,
                              .media = r->media,
                              .more = !whole};
    sha256_end_hex(&r->hash, hash);
    if (whole)
        out.sha256 = hash;
    if (r->media)
        act_done_image(r->act, &out, r->text.data, r->text.len, r->media);
    else
        act_done(r->act, &out);
}

static void read_ended(void *arg, const struct err *err, bool whole) {
    struct reading *r = arg;
    struct err why;
    if (err || judge(r, &why) < 0)
        act_fail(r->act, err ? err : &why);
    else
        read_told(r, whole);
    buf_done(&r->text);
    free(r);
}

void tool_read(struct act *a) {
    const struct read_input *in = a->request;
    struct err err;
    struct reading *r = xnew(struct reading);
    *r = (struct reading){.act = a, .line = 1, .from = in->from_line.is ? in->from_line.value : 1};
    r->last = r->from + (in->lines.is ? in->lines.value : READ_LINES) - 1;
    r->text = BUF(READ_BYTES);
    sha256_init(&r->hash);
    if (pull_file(a, in->path, in->user, r, read_piece, read_ended, &err) < 0) {
        free(r);
        act_fail(a, &err);
    }
}

/* ---- write ---- */

/* A write or edit in progress. `condition` is the hash that the file must still have. */
struct putting {
    struct act *act;
    const char *path, *user;
    char condition[SHA256_HEX], mode[8];
    char *dir; /* parent directory */
    struct buf bytes, diff;
    uint64_t replaced;
};

static void putting_free(struct putting *p) {
    buf_done(&p->bytes);
    buf_done(&p->diff);
    free(p->dir);
    free(p);
}

static void put_failed(struct putting *p, const struct err *err) {
    struct act *a = p->act;
    putting_free(p);
    act_fail(a, err);
}

static void put_told(struct putting *p, const char *hash) {
    struct act *a = p->act;
    if (a->tool->start == tool_edit)
        act_done(a, &(struct edit_output){.machine = a->machine,
                                          .path = p->path,
                                          .sha256 = hash,
                                          .diff = p->diff.data ? p->diff.data : "",
                                          .replaced = p->replaced});
    else
        act_done(a,
                 &(struct write_output){
                     .machine = a->machine, .path = p->path, .sha256 = hash, .size = p->bytes.len});
    putting_free(p);
}

static void put_ended(void *arg, const struct err *err) {
    struct putting *p = arg;
    char hash[SHA256_HEX];
    if (err) {
        put_failed(p, err);
        return;
    }
    sha256_hex(p->bytes.data ? p->bytes.data : "", p->bytes.len, hash);
    put_told(p, hash);
}

static void put_go(struct act *a) {
    struct putting *p = a->user;
    const struct put_file file = {.path = p->path,
                                  .user = p->user,
                                  .condition = p->condition[0] ? p->condition : "any",
                                  .mode = p->mode[0] ? p->mode : "644",
                                  .bytes = p->bytes.data,
                                  .n = p->bytes.len};
    struct err err;
    if (a->cancelled) {
        err_set(&err, ERR_GONE, "the tool call was cancelled");
        put_failed(p, &err);
        return;
    }
    put_file(a, &file, put_ended, p);
}

/* Calls events.sure with the hash before the file is written: after a crash the hash of the file
 * shows whether the write was done. */
static void put_start(struct putting *p) {
    struct act *a = p->act;
    char hash[SHA256_HEX];
    a->user = p;
    if (!a->events.sure) {
        put_go(a);
        return;
    }
    sha256_hex(p->bytes.data ? p->bytes.data : "", p->bytes.len, hash);
    a->events.sure(a->events.arg, a, hash, put_go);
}

static void parents_made(void *arg, const struct frame *frame, const struct err *err) {
    (void)frame;
    if (err)
        put_failed(arg, err);
    else
        put_start(arg);
}

/* Creates the missing parent directories of the file before it is written. */
static void make_parents(struct putting *p, uint32_t uid) {
    const char *slash = strrchr(p->path, '/');
    size_t n = slash == p->path ? 1 : (size_t)(slash - p->path);
    p->dir = xstrndup(p->path, n);
    struct msg_path m = {.uid = uid,
                         .gid = uid,
                         .mode = 0755,
                         .flags = MSG_PARENTS,
                         .path = {.s = p->dir, .n = (uint32_t)n}};
    service_file(act_service(p->act), act_who(p->act), p->act->machine, MSG_MKDIR, &m, p->dir,
                 parents_made, p);
}

static int check_condition(const char *text, struct err *err) {
    if (!text || strcmp(text, "absent") == 0 || hex_is(text, SHA256_HEX - 1))
        return 0;
    err_set(err, ERR_INVALID,
            "argument 'if_hash' must be a SHA-256 in lower-case hex, or the word \"absent\"");
    return err_remedy(err, "the tool `read` returns the sha256 of a file that it reads to the end; "
                           "\"absent\" means: only if there is no such file");
}

static int check_mode(const char *mode, struct err *err) {
    size_t n = mode ? strlen(mode) : 0;
    if (!mode || (n >= 3 && n <= 4 && strspn(mode, "01234567") == n))
        return 0;
    return err_set(err, ERR_INVALID,
                   "argument 'mode' must be octal, such as 644 or 755, not '%.20s'", mode);
}

static int files_fill(struct putting *p, const struct write_input *in, struct err *err) {
    size_t n;
    if (!in->content == !in->content_base64) {
        err_set(err, ERR_INVALID, "give either argument 'content' or argument 'content_base64'");
        return -1;
    }
    if (in->content)
        return buf_add(&p->bytes, in->content, strlen(in->content))
                   ? 0
                   : err_set(err, ERR_LIMIT, "argument 'content' is too long");
    n = strlen(in->content_base64);
    p->bytes.data = xmalloc(n + 1);
    p->bytes.cap = n + 1;
    return base64_decode(in->content_base64, n, p->bytes.data, &p->bytes.len)
               ? 0
               : err_set(err, ERR_INVALID, "argument 'content_base64' is not base64");
}

static struct putting *putting_new(struct act *a, const char *path, const char *user) {
    struct putting *p = xnew(struct putting);
    *p = (struct putting){
        .act = a, .path = path, .user = user, .bytes = BUF(16 << 20), .diff = BUF(READ_BYTES)};
    return p;
}

/* ---- a call that may have been made before ---- */

struct looking {
    struct putting *put;
    struct sha256 hash;
    loop_fn *otherwise; /* called with `put` if the file differs */
};

static bool look_piece(void *arg, const uint8_t *bytes, size_t n) {
    struct looking *l = arg;
    sha256_add(&l->hash, bytes, n);
    return true;
}

static void looked(void *arg, const struct err *err, bool whole) {
    struct looking *l = arg;
    struct putting *p = l->put;
    loop_fn *otherwise = l->otherwise;
    char hash[SHA256_HEX];
    sha256_end_hex(&l->hash, hash);
    const char *expected = p->act->events.expected; /* NULL: the call was cancelled */
    bool there = !err && whole && expected && strcmp(hash, expected) == 0;
    free(l);
    if (there)
        put_told(p, hash);
    else
        otherwise(p);
}

/* If the file already has the intended hash, the write was done before the crash. */
static void put_unless_there(struct putting *p, uint32_t uid, loop_fn *otherwise) {
    struct act *a = p->act;
    if (!a->events.again || !a->events.expected) {
        otherwise(p);
        return;
    }
    struct looking *l = xnew(struct looking);
    *l = (struct looking){.put = p, .otherwise = otherwise};
    sha256_init(&l->hash);
    const struct pull_from from = {.service = act_service(a),
                                   .who = act_who(a),
                                   .machine = a->machine,
                                   .path = p->path,
                                   .uid = uid,
                                   .stop = &a->cancelled};
    pull(&from, look_piece, looked, l);
}

static void write_now(void *arg) {
    struct putting *p = arg;
    uint32_t uid = 0;
    struct err err;
    if (file_user(p->user, &uid, &err) < 0)
        put_failed(p, &err);
    else
        make_parents(p, uid);
}

void tool_write(struct act *a) {
    const struct write_input *in = a->request;
    struct putting *p = putting_new(a, in->path, in->user);
    struct err err;
    uint32_t uid;
    snprintf(p->condition, sizeof(p->condition), "%s", in->if_hash ? in->if_hash : "");
    snprintf(p->mode, sizeof(p->mode), "%s", in->mode ? in->mode : "");
    if (check_path(in->path, &err) < 0 || file_user(in->user, &uid, &err) < 0 ||
        check_condition(in->if_hash, &err) < 0 || check_mode(in->mode, &err) < 0 ||
        files_fill(p, in, &err) < 0)
        put_failed(p, &err);
    else
        put_unless_there(p, uid, write_now);
}

/* ---- edit ---- */

static bool edit_piece(void *arg, const uint8_t *bytes, size_t n) {
    struct putting *p = arg;
    return buf_add(&p->bytes, bytes, n);
}

/* Fails with the error and the places in the file that it concerns. */
static void edit_missed(struct putting *p, const struct err *err, const struct buf *hint) {
    struct act *a = p->act;
    putting_free(p);
    act_fail_with(a, err, hint->data);
}

static int edit_text(struct putting *p, struct buf *hint, struct err *err) {
    const struct edit_input *in = p->act->request;
    const struct edit_row *rows = in->edits.v;
    struct edit_step steps[EDITS_MAX];
    for (size_t i = 0; i < in->edits.count; i++) {
        steps[i] = (struct edit_step){rows[i].old_text, rows[i].new_text,
                                      rows[i].count.is ? rows[i].count.value : 1};
        p->replaced += steps[i].count;
    }
    sha256_hex(p->bytes.data, p->bytes.len, p->condition);
    if (in->if_hash && strcmp(in->if_hash, p->condition) != 0) {
        err_set(err, ERR_EXISTS, "file '%.150s' has changed: its sha256 is now %.64s", p->path,
                p->condition);
        return err_remedy(err, "read the file again");
    }
    if (memchr(p->bytes.data, 0, p->bytes.len))
        return err_set(err, ERR_INVALID, "file '%.200s' is binary", p->path);
    return edit_apply(&p->bytes, steps, in->edits.count, &p->diff, hint, err);
}

static void edit_read(void *arg, const struct err *err, bool whole) {
    struct putting *p = arg;
    struct buf hint DEFER(buf_done) = BUF(READ_BYTES);
    struct err why;
    if (!err && !whole)
        err = (err_set(&why, ERR_LIMIT,
                       "file '%.200s' is larger than %d MiB, too large for the tool edit", p->path,
                       EDIT_FILE_MAX >> 20),
               err_remedy(&why, "use exec with sed or a script"), &why);
    if (err) {
        put_failed(p, err);
        return;
    }
    if (!p->bytes.data && !buf_add(&p->bytes, "", 0))
        abort();
    if (edit_text(p, &hint, &why) < 0)
        edit_missed(p, &why, &hint);
    else
        put_start(p); /* writes only if the file still has the content that was read */
}

static void edit_now(void *arg) {
    struct putting *p = arg;
    struct err err;
    if (pull_file(p->act, p->path, p->user, p, edit_piece, edit_read, &err) < 0)
        put_failed(p, &err);
}

void tool_edit(struct act *a) {
    const struct edit_input *in = a->request;
    struct putting *p = putting_new(a, in->path, in->user);
    struct err err;
    uint32_t uid;
    p->bytes = BUF(EDIT_FILE_MAX);
    if (check_condition(in->if_hash, &err) < 0 || check_path(in->path, &err) < 0 ||
        file_user(in->user, &uid, &err) < 0)
        put_failed(p, &err);
    else
        put_unless_there(p, uid, edit_now);
}
