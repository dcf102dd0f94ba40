/*
 * Freezing: makes a change set of a directory or granted database of a machine. A tool in the
 * machine packs a directory into the archive; the changes in a granted directory are packed on the
 * host (pack.h). A granted SQLite database is read and compared
 * (grants/sqlite.c), and the archive holds it as one file. The metadata is written last.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/sha256.h"
#include "base/tar.h"
#include "service/exec/tool_run.h"
#include "service/grants/live.h"
#include "service/review/baselines.h"
#include "service/review/changeset_events.h"
#include "service/review/changeset_files_inner.h"
#include "service/review/changeset_rows.h"
#include "service/review/image_files.h"
#include "service/review/pack.h"
#include "service/taint.h"

/* Time limit for packing. The largest directory must be packed at about 2 MiB/s. */
enum { PACK_LIMIT_MS = 10 * 60 * 1000 };

struct freezing {
    struct service *service;
    struct caller who;
    struct tool_run *tool;
    char id[ID_SIZE], machine[ID_SIZE], name[STORE_NAME_SIZE], path[4096], slice[4096];
    char sha256[CHANGESET_HEX], base_sha256[CHANGESET_HEX], tainted[TAINT_SOURCE_SIZE];
    struct grant_row grant; /* the grant that the frozen files change; id empty: none */
    char *ref;
    char *told; /* diff of a database as JSON */
    int64_t machine_ms, created_ms;
    int fd, base;      /* fd: the archive; base: copy of the database as granted, or -1 */
    struct live *live; /* set while ask_image() waits for the image */
    int root, usr;     /* the files of the image, and its /usr; -1: unknown */
    char *image_files;
    bool wants_changes, changes_only; /* requested; only the changes are frozen */
    struct buf changed;               /* changes_only: the changed paths */
    uint64_t bytes, intent;
    bool unhashed; /* keep_all() computes the hash of the archive */
    struct err err;
    bool failed;
    service_changeset_fn *done;
    void *arg;
};

static struct journal_record freeze_record_of(const struct freezing *f) {
    return (struct journal_record){.verb = "review.freeze", .machine = f->machine};
}

static const char *or_null(const char *text) {
    return text && *text ? text : NULL;
}

static struct changeset_view view_of(const struct freezing *f) {
    return (struct changeset_view){.id = f->id,
                                   .owner = f->who.owner,
                                   .machine = f->machine,
                                   .machine_name = or_null(f->name),
                                   .path = f->path,
                                   .slice = f->slice,
                                   .grant = or_null(f->grant.id),
                                   .kind = or_null(f->grant.kind),
                                   .home = f->grant.what,
                                   .ref = f->ref,
                                   .base_sha256 = or_null(f->base_sha256),
                                   .sha256 = f->sha256,
                                   .tainted = or_null(f->tainted),
                                   .image_files = f->image_files,
                                   .bytes = f->bytes,
                                   .created_ms = (uint64_t)f->created_ms,
                                   .machine_ms = (uint64_t)f->machine_ms,
                                   .changes_only = f->changes_only};
}

static void freeze_finish(struct freezing *f) {
    struct journal_record what = freeze_record_of(f);
    struct buf detail DEFER(buf_done) = BUF(JOURNAL_DETAIL_MAX);
    const struct err *err = f->failed ? &f->err : NULL;
    const struct changeset_view view = view_of(f);
    changeset_detail(&view, &detail);
    what.detail = err ? NULL : detail.data;
    what.bytes = f->bytes;
    if (f->intent)
        note_result(f->service, &f->who, &what, f->intent, err);
    if (err)
        changeset_remove(f->service, f->id);
    else
        changeset_tell(f->service, &view, "changeset.frozen");
    f->done(f->arg, err ? NULL : &view, err);
    close_fd(&f->fd);
    close_fd(&f->base);
    close_fd(&f->root);
    close_fd(&f->usr);
    grant_row_done(&f->grant);
    free(f->ref);
    free(f->told);
    free(f->image_files);
    buf_done(&f->changed);
    free(f);
}

static void freeze_fail(struct freezing *f, const struct err *err) {
    f->failed = true;
    f->err = *err;
    freeze_finish(f);
}

/* ---- a database as an archive of one file ---- */

/* Hashes the whole file and returns its size. */
static int64_t hash_file(int fd, char ret[CHANGESET_HEX], struct err *err) {
    struct sha256 hash;
    char piece[65536];
    int64_t at = 0;
    ssize_t n;
    sha256_init(&hash);
    while ((n = pread(fd, piece, sizeof(piece), at)) > 0) {
        sha256_add(&hash, piece, (size_t)n);
        at += n;
    }
    sha256_end_hex(&hash, ret);
    return n < 0 ? err_sys(err, "cannot read a file of the change set") : at;
}

/*
 * Writes the tar header, with the file name of the owner's database, and returns its length. The
 * length is the same for every `size`, so that close_archive() can replace the header.
 */
static size_t freeze_put_head(const struct freezing *f, uint64_t size, uint8_t to[TAR_HEAD_MAX]) {
    struct tar_entry *e DEFER_FREE = xnew(struct tar_entry);
    const char *slash = strrchr(f->grant.what, '/');
    *e = (struct tar_entry){
        .kind = TAR_FILE, .mode = 0644, .size = size, .mtime = f->created_ms / 1000};
    snprintf(e->path, sizeof(e->path), "%s", slash ? slash + 1 : f->grant.what);
    return tar_put(to, e);
}

/*
 * Writes the header and the end of the archive. read_database() left space for the header, and the
 * database was written after it.
 */
static int close_archive(struct freezing *f, struct err *err) {
    static const char zeros[3 * TAR_BLOCK];
    uint8_t head[TAR_HEAD_MAX];
    struct stat st;
    size_t n = f->base < 0 ? 0 : freeze_put_head(f, 0, head);
    if (fstat(f->fd, &st) < 0 || (uint64_t)st.st_size < n)
        return err_set(err, ERR_INTERNAL, "the copy of the database is incomplete");
    uint64_t size = (uint64_t)st.st_size - n;
    if (n)
        freeze_put_head(f, size, head);
    int status = lseek(f->fd, 0, SEEK_END) < 0 ? -errno
                 : pwrite(f->fd, head, n, 0) != (ssize_t)n
                     ? -EIO
                     : write_all(f->fd, zeros, tar_padding(size) + 2 * TAR_BLOCK);
    if (status < 0)
        return err_num(err, status, "cannot write the archive of a change set");
    int64_t bytes = hash_file(f->fd, f->sha256, err);
    f->bytes = bytes < 0 ? 0 : (uint64_t)bytes;
    return bytes < 0 || (f->base >= 0 && hash_file(f->base, f->base_sha256, err) < 0) ? -1 : 0;
}

static int keep_database(struct freezing *f, struct err *err) {
    return close_archive(f, err) < 0 ? -1
                                     : changeset_write(f->service, f->id, CHANGESET_DATABASE,
                                                       f->told, strlen(f->told), err);
}

/* ---- on a worker ---- */

static int keep_all(struct freezing *f, struct err *err) {
    if (f->told && keep_database(f, err) < 0)
        return -1;
    if (f->unhashed && hash_file(f->fd, f->sha256, err) < 0)
        return -1;
    if (f->changes_only &&
        changeset_write(f->service, f->id, CHANGESET_CHANGED,
                        f->changed.data ? f->changed.data : "", f->changed.len, err) < 0)
        return -1;
    if (fsync(f->fd) < 0)
        return err_sys(err, "cannot sync the archive of a change set");
    if (f->root >= 0)
        f->image_files = image_files_find(f->fd, f->path, f->root, f->usr);
    const struct changeset_view view = view_of(f);
    return changeset_write_words(f->service, &view, err) < 0 ? -1
                                                             : store_flush(f->service->store, err);
}

static void freeze_keep(void *arg) {
    struct freezing *f = arg;
    f->failed = keep_all(f, &f->err) < 0;
}

static void freeze_kept(void *arg);

/* Reads the taint (the source of untrusted data) only now, after all files were packed. Runs on the
 * loop. */
static void keep_later(struct freezing *f) {
    service_taint_of(f->service, f->machine, f->tainted);
    loop_work(f->service->loop, freeze_keep, freeze_kept, f);
}

static void freeze_kept(void *arg) {
    struct freezing *f = arg;
    const struct changeset_view view = view_of(f);
    if (!f->failed)
        f->failed = changeset_row_add(f->service, &view, &f->err) < 0;
    freeze_finish(f);
}

/* ---- a directory ---- */

static void image_known(void *arg, int root, int usr, const struct err *err) {
    struct freezing *f = arg;
    (void)err; /* then all files count as made by the machine */
    f->root = root;
    f->usr = usr;
    live_unref(TAKE(f->live));
    keep_later(f);
}

/* A path without a grant may contain files of the image, which the machine did not make. */
static void ask_image(struct freezing *f) {
    struct err err;
    struct live *l = live_find(f->service, &f->who, f->machine, LIVE_UP, &err);
    if (f->grant.id[0] || !l || !l->machine) {
        keep_later(f);
        return;
    }
    f->live = l;
    live_ref(l);
    f->service->driver->view(l->machine, "", image_known, f);
}

static int keep_piece(struct freezing *f, const uint8_t *bytes, uint32_t n, struct err *err) {
    f->bytes += n;
    if (f->bytes > CHANGESET_BYTES_MAX)
        return err_set(err, ERR_LIMIT, "the files of the change set have more than %d MiB",
                       CHANGESET_BYTES_MAX >> 20);
    int status = write_all(f->fd, bytes, n);
    if (status < 0)
        return err_num(err, status, "cannot write the archive of a change set");
    return 0;
}

/* Stops packing at the size limit: a sparse file can be much larger than its disk space. */
static void packed(void *arg, const uint8_t *bytes, uint32_t n) {
    struct freezing *f = arg;
    struct err err;
    if (keep_piece(f, bytes, n, &err) < 0)
        tool_stop(f->tool, &err);
    else
        tool_consumed(f->tool, n);
}

static void pack_over(void *arg, int status, const char *answer, const char *said,
                      const struct err *err) {
    struct freezing *f = arg;
    struct err why;
    (void)answer;
    f->tool = NULL;
    if (err) {
        why = *err;
        err_wrap(&why, "cannot pack path '%.200s' of the machine", f->path);
    } else if (status != 0) {
        tool_said(said, &why);
    }
    if (err || status != 0) {
        freeze_fail(f, &why);
        return;
    }
    f->unhashed = true;
    ask_image(f);
}

static int pack_dir(struct freezing *f, struct err *err) {
    const char *const argv[] = {"tar", f->path, "all", NULL};
    const struct tool_events events = {
        .arg = f, .limit_ms = PACK_LIMIT_MS, .data = packed, .ended = pack_over};
    f->tool = service_tool(f->service, &f->who, f->machine, "file.tar", argv, "root", &events, err);
    if (!f->tool)
        return -1;
    tool_feed(f->tool, "", 0, true);
    return 0;
}

/* ---- changes in a granted directory ---- */

static void changes_packed(void *arg, struct packed *what, const struct err *err) {
    struct freezing *f = arg;
    struct err why;
    if (err) {
        why = *err;
        err_wrap(&why, "cannot pack the changes in path '%.200s' of the machine", f->path);
        freeze_fail(f, &why);
        return;
    }
    f->bytes = what->bytes;
    memcpy(f->sha256, what->sha256, sizeof(f->sha256));
    f->changed = what->list;
    what->list = BUF(0);
    keep_later(f);
}

/* Packs only the changes if the caller wants that and they are known; else the whole directory. */
static int pack_granted(struct freezing *f, struct err *err) {
    struct live *l = live_find(f->service, &f->who, f->machine, LIVE_UP, err);
    if (!l)
        return -1;
    f->changes_only = f->wants_changes && strcmp(f->path, f->slice) == 0;
    int begun = f->changes_only ? changes_pack(l, &f->grant, f->fd, changes_packed, f, err) : 0;
    if (begun)
        return begun < 0 ? -1 : 0;
    f->changes_only = false;
    return pack_dir(f, err);
}

/* ---- a database ---- */

static void compared(void *arg, const char *json, const struct err *err) {
    struct freezing *f = arg;
    if (err) {
        freeze_fail(f, err);
        return;
    }
    f->told = xstrdup(json);
    keep_later(f);
}

static int read_database(struct freezing *f, struct err *err) {
    uint8_t head[TAR_HEAD_MAX];
    f->base = sqlite_base(f->service, &f->grant, err);
    if (f->base < 0)
        return -1;
    if (lseek(f->fd, (off_t)freeze_put_head(f, 0, head), SEEK_SET) < 0)
        return err_sys(err, "cannot write the archive of a change set");
    sqlite_freeze(f->service, &f->who, &f->grant, f->fd, compared, f);
    return 0;
}

/* A PostgreSQL database stays on its server: only its diff is frozen. */
static int name_database(struct freezing *f, struct err *err) {
    struct live *l = live_find(f->service, &f->who, f->machine, LIVE_RUNNING, err);
    if (!l)
        return -1;
    postgres_tell(l, &f->grant, compared, f);
    return 0;
}

/* ---- kinds of grants ---- */

/*
 * Where the frozen path must be. A repository is frozen as a bundle, whose path differs from that
 * of the grant. A database must be frozen at the path of its grant.
 */
enum lies { ANYWHERE, THERE, ELSEWHERE };

static const struct way {
    const char *kind, *mode; /* kind and mode of the grant; mode NULL: any */
    enum lies lies; /* THERE: the frozen path is that of the grant; ELSEWHERE: it differs */
    int (*start)(struct freezing *f, struct err *err);
} ways[] = {
    {"dir", "cow", ANYWHERE, pack_granted},   {"volume", "cow", ANYWHERE, pack_granted},
    {"repo", NULL, ELSEWHERE, pack_dir},      {"sqlite", NULL, THERE, read_database},
    {"postgres", NULL, THERE, name_database},
};

static const struct way *way_of(const struct freezing *f, const struct grant_row *g) {
    enum lies lies = strcmp(f->path, f->slice) == 0 ? THERE : ELSEWHERE;
    for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++)
        if (strcmp(ways[i].kind, g->kind) == 0 &&
            (!ways[i].mode || strcmp(ways[i].mode, g->mode) == 0) &&
            (ways[i].lies == ANYWHERE || ways[i].lies == lies))
            return &ways[i];
    return NULL;
}

static char *ref_of(const struct grant_row *g) {
    json_t *detail = json_loads(g->detail ? g->detail : "{}", 0, NULL);
    const char *text = json_string_value(json_object_get(detail, "ref"));
    char *ref = text ? xstrdup(text) : NULL;
    json_decref(detail);
    return ref;
}

/* Finds a grant at the path f->slice that can be shipped. *ret is NULL if none exists. */
static int find_way(struct freezing *f, const struct way **ret, struct err *err) {
    struct grant_list list DEFER(grant_list_done) = {0};
    *ret = NULL;
    if (store_grant_list(f->service->store, f->machine, NULL, &list, err) < 0)
        return -1;
    for (size_t i = 0; i < list.count && !*ret; i++) {
        struct grant_row *row = &list.rows[i];
        if (!row->place || strcmp(row->place, f->slice) != 0 || !(*ret = way_of(f, row)))
            continue;
        f->grant = *row;
        f->ref = ref_of(row);
        *row = (struct grant_row){0};
    }
    return 0;
}

static int freeze_begin(struct freezing *f, struct err *err) {
    char path[CHANGESET_PATH];
    struct journal_record what = freeze_record_of(f);
    const struct way *way;
    if (find_way(f, &way, err) < 0)
        return -1;
    if (!way && f->path[0] != '/')
        return err_set(err, ERR_INVALID, "path '%.80s' to freeze is not absolute", f->path);
    if (changeset_make_dir(f->service, err) < 0)
        return -1;
    changeset_path(f->service, f->id, CHANGESET_BASE, path);
    baseline_keep(f->service, f->machine, f->slice, path);
    changeset_path(f->service, f->id, CHANGESET_ARCHIVE, path);
    f->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (f->fd < 0)
        return err_sys(err, "cannot create archive '%s' of a change set", path);
    if (note_intent(f->service, &f->who, &what, &f->intent, err) < 0)
        return -1;
    return way ? way->start(f, err) : pack_dir(f, err);
}

static struct freezing *freezing_new(const struct live *l, const struct caller *who,
                                     const char *path, const char *slice) {
    struct freezing *f = xnew(struct freezing);
    *f = (struct freezing){
        .service = l->service, .who = *who, .fd = -1, .base = -1, .root = -1, .usr = -1};
    memcpy(f->id, id_new('c').text, ID_SIZE);
    memcpy(f->machine, l->row.id, ID_SIZE);
    snprintf(f->name, sizeof(f->name), "%s", l->row.name);
    snprintf(f->path, sizeof(f->path), "%s", path);
    snprintf(f->slice, sizeof(f->slice), "%s", slice);
    f->machine_ms = l->row.created_ms;
    f->created_ms = wall_ms();
    snprintf(f->tainted, sizeof(f->tainted), "%s", gate_policy(l->gate)->tainted);
    return f;
}

void service_freeze(struct service *s, const struct caller *who, const char *machine,
                    const struct freeze_request *r, service_changeset_fn *done, void *arg) {
    const char *path = r->path ? r->path : "/outbox", *slice = r->slice ? r->slice : path;
    struct err err;
    struct live *l =
        allow(who, SCOPE_RUN, &err) < 0 ? NULL : live_find(s, who, machine, LIVE_UP, &err);
    if (l && (strlen(path) >= sizeof(((struct freezing *)0)->path) ||
              strlen(slice) >= sizeof(((struct freezing *)0)->slice))) {
        err_set(&err, ERR_INVALID, "path '%.80s' is too long", path);
        l = NULL;
    }
    if (!l) {
        done(arg, NULL, &err);
        return;
    }
    struct freezing *f = freezing_new(l, who, path, slice);
    f->wants_changes = r->changes_only;
    f->done = done;
    f->arg = arg;
    if (freeze_begin(f, &err) < 0)
        freeze_fail(f, &err);
}
