#include "service/review/changesets.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/baseline.h"
#include "base/fs/dir.h"
#include "base/fs/folder.h"
#include "service/review/changeset_events.h"
#include "service/review/changeset_files_inner.h"
#include "service/review/changeset_rows.h"
#include "service/rights.h"
#include "service/taint.h"

enum { DATABASE_MAX = 8 << 20, PICK_PIECE = 256 << 10 };

#define PART ".part"
#define REVOKED ".revoked"

/* ---- files ---- */

void changeset_path(const struct service *s, const char *id, const char *ending,
                    char ret[CHANGESET_PATH]) {
    snprintf(ret, CHANGESET_PATH, "%s/changesets/%s%s", s->place->home, id, ending);
}

int changeset_make_dir(const struct service *s, struct err *err) {
    char path[CHANGESET_PATH];
    changeset_path(s, "", "", path);
    int status = folder_make(path);
    return status < 0 ? err_num(err, status, "cannot create directory '%s'", path) : 0;
}

int changeset_write(const struct service *s, const char *id, const char *ending, const char *text,
                    size_t n, struct err *err) {
    char path[CHANGESET_PATH], part[CHANGESET_PATH];
    changeset_path(s, id, ending, path);
    changeset_path(s, id, PART, part);
    int fd DEFER_CLOSE = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int status = fd < 0 ? -errno : write_all(fd, text, n);
    if (status < 0)
        return err_num(err, status, "cannot write file '%s' of a change set", path);
    if (fsync(fd) < 0 || rename(part, path) < 0)
        return err_sys(err, "cannot write file '%s' of a change set", path);
    status = folder_sync_above(path);
    return status < 0 ? err_num(err, status, "cannot sync the directory of file '%s'", path) : 0;
}

void changeset_remove(const struct service *s, const char *id) {
    static const char *const endings[] = {CHANGESET_META,     CHANGESET_ARCHIVE, CHANGESET_BASE,
                                          CHANGESET_DATABASE, CHANGESET_CHANGED, PART};
    char path[CHANGESET_PATH];
    for (size_t i = 0; i < sizeof(endings) / sizeof(*endings); i++) {
        changeset_path(s, id, endings[i], path);
        unlink(path);
    }
}

/*
 * Returns the time that decides whether a file is deleted: that of the metadata file of its change
 * set, or its own if the metadata file does not exist.
 */
static int64_t age_of(int dir, const char *name) {
    char words[ID_SIZE + sizeof(CHANGESET_META)];
    struct stat st;
    snprintf(words, sizeof(words), "%.*s" CHANGESET_META, (int)strcspn(name, "."), name);
    if (fstatat(dir, words, &st, AT_SYMLINK_NOFOLLOW) < 0 &&
        fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return INT64_MAX;
    return st.st_mtim.tv_sec;
}

static bool is_ours(const char *name) {
    size_t n = strcspn(name, ".");
    return id_valid(name, n, 'c') || id_valid(name, n, 'g');
}

/* Notes the change set whose metadata file is about to be deleted. False: the list is full. */
static bool drop_note(int dir, const char *name, struct changesets_dropped *ret) {
    size_t n = strcspn(name, ".");
    if (strcmp(name + n, CHANGESET_META) != 0)
        return true;
    if (ret->count == CHANGESETS_DROPPED_MAX)
        return false;
    int fd DEFER_CLOSE = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    json_t *words DEFER(json_decrefp) = fd < 0 ? NULL : json_loadfd(fd, 0, NULL);
    const char *owner = json_string_value(json_object_get(words, "owner"));
    const char *machine = json_string_value(json_object_get(words, "machine"));
    if (!owner || !machine || n >= ID_SIZE)
        return true;
    ret->rows = xrealloc(ret->rows, ret->count + 1, sizeof(*ret->rows));
    struct changeset_dropped *row = &ret->rows[ret->count++];
    *row = (struct changeset_dropped){0};
    memcpy(row->id, name, n);
    snprintf(row->machine, sizeof(row->machine), "%s", machine);
    snprintf(row->owner, sizeof(row->owner), "%s", owner);
    return true;
}

/* Deletes metadata files last, because age_of() needs them for the other files. */
void changesets_trim(const char *home, int64_t before_ms, struct changesets_dropped *ret) {
    char path[CHANGESET_PATH];
    snprintf(path, sizeof(path), "%s/changesets", home);
    DIR *dir DEFER(dir_close) = opendir(path);
    for (int last = 0; dir && last < 2; last++) {
        rewinddir(dir);
        for (struct dirent *e; (e = readdir(dir));)
            if (is_ours(e->d_name) && !strstr(e->d_name, CHANGESET_META) == !last &&
                age_of(dirfd(dir), e->d_name) < before_ms / 1000 &&
                drop_note(dirfd(dir), e->d_name, ret))
                unlinkat(dirfd(dir), e->d_name, 0);
    }
}

/* ---- revoked grants ---- */

int changesets_revoke(const struct service *s, const char *grant, struct err *err) {
    return changeset_make_dir(s, err) < 0 ? -1 : changeset_write(s, grant, REVOKED, "", 0, err);
}

static bool is_revoked(const struct service *s, const char *grant) {
    char path[CHANGESET_PATH];
    changeset_path(s, grant, REVOKED, path);
    return *grant && access(path, F_OK) == 0;
}

/* ---- metadata ---- */

#define AT(member) offsetof(struct changeset_view, member)
static const struct {
    const char *name;
    size_t offset;
} texts[] = {{"owner", AT(owner)},
             {"machine", AT(machine)},
             {"machine_name", AT(machine_name)},
             {"path", AT(path)},
             {"slice", AT(slice)},
             {"grant", AT(grant)},
             {"kind", AT(kind)},
             {"home", AT(home)},
             {"ref", AT(ref)},
             {"base_sha256", AT(base_sha256)},
             {"sha256", AT(sha256)},
             {"tainted", AT(tainted)},
             {"image_files", AT(image_files)}};
#undef AT
enum { TEXTS = sizeof(texts) / sizeof(*texts) };

static const char **text_at(struct changeset_view *v, size_t i) {
    return (const char **)(void *)((char *)v + texts[i].offset);
}

bool changeset_words(const struct changeset_view *v, struct buf *ret) {
    struct jot j = JOT(ret);
    struct changeset_view view = *v;
    jot_object(&j, NULL);
    for (size_t i = 0; i < TEXTS; i++)
        if (*text_at(&view, i))
            jot_string(&j, texts[i].name, *text_at(&view, i));
    jot_u64(&j, "bytes", v->bytes);
    jot_u64(&j, "created_ms", v->created_ms);
    jot_u64(&j, "machine_ms", v->machine_ms);
    jot_bool(&j, "changes_only", v->changes_only);
    jot_end(&j, '}');
    return !j.failed;
}

int changeset_write_words(const struct service *s, const struct changeset_view *v,
                          struct err *err) {
    struct buf text DEFER(buf_done) = BUF(CHANGESET_WORDS);
    return changeset_words(v, &text)
               ? changeset_write(s, v->id, CHANGESET_META, text.data, text.len, err)
               : err_set(err, ERR_LIMIT, "the metadata of the change set is too large to store");
}

static int changesets_read_words(const struct service *s, const struct caller *who, const char *id,
                                 json_t **ret, struct err *err) {
    char path[CHANGESET_PATH];
    if (!id_valid(id, strlen(id), 'c'))
        return err_set(err, ERR_NOT_FOUND, "change set '%.40s' does not exist", id);
    changeset_path(s, id, CHANGESET_META, path);
    json_t *words DEFER(json_decrefp) = json_load_file(path, 0, NULL);
    const char *owner = json_string_value(json_object_get(words, "owner"));
    if (!owner || !may_see(who, owner))
        return err_set(err, ERR_NOT_FOUND, "change set '%s' does not exist", id);
    *ret = TAKE(words);
    return 0;
}

static uint64_t number_in(const json_t *words, const char *name) {
    json_int_t n = json_integer_value(json_object_get(words, name));
    return n > 0 ? (uint64_t)n : 0;
}

static const char *text_in(const json_t *words, const char *name) {
    const char *text = json_string_value(json_object_get(words, name));
    return text ? text : "";
}

/* ---- reading ---- */

struct changeset_view changeset_view_of(const struct service *s, const char *id,
                                        const json_t *words) {
    struct changeset_view v = {.id = id,
                               .bytes = number_in(words, "bytes"),
                               .created_ms = number_in(words, "created_ms"),
                               .machine_ms = number_in(words, "machine_ms"),
                               .revoked = is_revoked(s, text_in(words, "grant")),
                               .changes_only =
                                   json_is_true(json_object_get(words, "changes_only"))};
    for (size_t i = 0; i < TEXTS; i++)
        *text_at(&v, i) = json_string_value(json_object_get(words, texts[i].name));
    return v;
}

static int open_part(struct service *s, const struct caller *who, const char *id,
                     const char *ending, json_t **ret_words, struct err *err) {
    char path[CHANGESET_PATH];
    if (allow(who, SCOPE_READ, err) < 0 || changesets_read_words(s, who, id, ret_words, err) < 0)
        return -1;
    changeset_path(s, id, ending, path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT && strcmp(ending, CHANGESET_BASE) == 0)
        fd = open("/dev/null", O_RDONLY | O_CLOEXEC); /* no baseline: answer with an empty one */
    return fd < 0 ? err_sys(err, "cannot open file '%s' of a change set", path) : fd;
}

static void tell_part(struct service *s, const struct caller *who, const char *id,
                      const char *ending, service_archive_fn *done, void *arg) {
    json_t *words DEFER(json_decrefp) = NULL;
    struct err err;
    int fd = open_part(s, who, id, ending, &words, &err);
    struct changeset_view view = changeset_view_of(s, id, words);
    struct changeset_row row DEFER(changeset_row_done) = {0};
    struct err none;
    if (fd >= 0 && store_changeset_find(s->store, id, &row, &none) == 0) {
        view.state = changeset_state_name(row.state);
        view.instead = row.instead[0] ? row.instead : NULL;
    }
    done(arg, fd < 0 ? NULL : &view, fd, fd < 0 ? &err : NULL);
}

void service_changeset_open(struct service *s, const struct caller *who, const char *id,
                            service_archive_fn *done, void *arg) {
    tell_part(s, who, id, CHANGESET_ARCHIVE, done, arg);
}

/* Reads the baseline of a change set that has only changes. */
struct picking {
    struct service *service;
    json_t *words;
    char id[ID_SIZE];
    int base, changed, fd; /* fd: the result */
    struct err err;
    service_archive_fn *done;
    void *arg;
};

static bool read_text_of(int fd, struct buf *ret) {
    char *piece DEFER_FREE = xmalloc(PICK_PIECE);
    ssize_t n;
    while ((n = read(fd, piece, PICK_PIECE)) > 0)
        if (!buf_add(ret, piece, (size_t)n))
            return false;
    return n == 0;
}

/* The baseline is read now, not when the change set was frozen: files that were shipped since have
 * new lines. Runs on a worker. */
static void pick_run(void *arg) {
    struct picking *p = arg;
    struct buf base DEFER(buf_done) = BUF(2 * (size_t)BASELINE_TEXT_MAX);
    struct buf changed DEFER(buf_done) = BUF(BASELINE_TEXT_MAX);
    struct buf picked DEFER(buf_done) = BUF(2 * (size_t)BASELINE_TEXT_MAX);
    int fd DEFER_CLOSE = memfd_create("baseline", MFD_CLOEXEC);
    if (fd < 0 || !read_text_of(p->base, &base) || !read_text_of(p->changed, &changed) ||
        !baseline_pick(base.data ? base.data : "", base.len, changed.data ? changed.data : "",
                       changed.len, &picked) ||
        write_all(fd, picked.data ? picked.data : "", picked.len) < 0 || lseek(fd, 0, SEEK_SET) < 0)
        err_set(&p->err, ERR_INTERNAL, "cannot read the baseline of change set '%s'", p->id);
    else
        p->fd = TAKE_FD(fd);
}

static void pick_over(void *arg) {
    struct picking *p = arg;
    const struct changeset_view view = changeset_view_of(p->service, p->id, p->words);
    p->done(p->arg, p->fd < 0 ? NULL : &view, p->fd, p->fd < 0 ? &p->err : NULL);
    json_decref(p->words);
    close_fd(&p->base);
    close_fd(&p->changed);
    free(p);
}

static int open_changed(const struct service *s, const char *id, struct err *err) {
    char path[CHANGESET_PATH];
    changeset_path(s, id, CHANGESET_CHANGED, path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? err_sys(err, "cannot open file '%s' of a change set", path) : fd;
}

void service_changeset_base(struct service *s, const struct caller *who, const char *id,
                            service_archive_fn *done, void *arg) {
    json_t *words DEFER(json_decrefp) = NULL;
    struct err err;
    int base DEFER_CLOSE = open_part(s, who, id, CHANGESET_BASE, &words, &err);
    const struct changeset_view view = changeset_view_of(s, id, words);
    int changed DEFER_CLOSE = base >= 0 && view.changes_only ? open_changed(s, id, &err) : -1;
    if (base < 0 || (view.changes_only && changed < 0)) {
        done(arg, NULL, -1, &err);
        return;
    }
    if (!view.changes_only) {
        done(arg, &view, TAKE_FD(base), NULL);
        return;
    }
    struct picking *p = xnew(struct picking);
    *p = (struct picking){.service = s, .done = done, .arg = arg, .fd = -1};
    p->words = TAKE(words);
    p->base = TAKE_FD(base);
    p->changed = TAKE_FD(changed);
    snprintf(p->id, sizeof(p->id), "%s", id);
    loop_work(s->loop, pick_run, pick_over, p);
}

void service_changeset_database(struct service *s, const struct caller *who, const char *id,
                                service_net_fn *done, void *arg) {
    json_t *words DEFER(json_decrefp) = NULL;
    struct buf text DEFER(buf_done) = BUF(DATABASE_MAX + 1);
    char piece[65536];
    struct err err;
    ssize_t n;
    int fd DEFER_CLOSE = open_part(s, who, id, CHANGESET_DATABASE, &words, &err);
    if (fd < 0 && words)
        err_set(&err, ERR_NOT_FOUND, "change set '%s' has no database diff", id);
    while (fd >= 0 && (n = read(fd, piece, sizeof(piece))) > 0)
        if (!buf_add(&text, piece, (size_t)n))
            break;
    done(arg, fd < 0 ? NULL : text.data ? text.data : "{}", fd < 0 ? &err : NULL);
}

/* ---- shipping ---- */

struct shipping {
    struct service *service;
    struct caller who;
    json_t *words;
    const char *event; /* what watchers are told when it is over, or NULL */
    char id[ID_SIZE], sha256[CHANGESET_HEX];
    uint64_t record;
    char *now; /* baseline lines of the shipped or restored files, or NULL */
    struct err err;
    bool failed;
    service_ship_fn *done;
    void *arg;
};

/* Adds the shipped or restored files to the baseline, so that later changes of them are found. */
static int add_base(const struct shipping *f, struct err *err) {
    struct baseline check DEFER(baseline_done) = {0};
    char path[CHANGESET_PATH];
    changeset_path(f->service, f->id, CHANGESET_BASE, path);
    if (baseline_read(f->now, strlen(f->now), &check, err) < 0)
        return err_wrap(err, "field 'now'");
    int fd DEFER_CLOSE = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd < 0 || write_all(fd, f->now, strlen(f->now)) < 0 || fdatasync(fd) < 0)
        return err_sys(err, "cannot write file '%s' of a change set", path);
    return 0;
}

static void ship_flush(void *arg) {
    struct shipping *f = arg;
    f->failed = f->now && add_base(f, &f->err) < 0;
    if (!f->failed)
        f->failed = store_flush(f->service->store, &f->err) < 0;
}

static void ship_flushed(void *arg) {
    struct shipping *f = arg;
    const struct ship_view view = {f->id, f->sha256, f->record};
    const struct changeset_view set = changeset_view_of(f->service, f->id, f->words);
    if (!f->failed && f->event)
        changeset_tell(f->service, &set, f->event);
    f->done(f->arg, f->failed ? NULL : &view, f->failed ? &f->err : NULL);
    json_decref(f->words);
    free(f->now);
    free(f);
}

static bool changesets_is_over(const struct ship_request *r) {
    return strcmp(r->action, "shipped") == 0 || strcmp(r->action, "undone") == 0;
}

static int note_ship(struct shipping *f, const struct ship_request *r, const json_t *words,
                     struct err *err) {
    struct buf text DEFER(buf_done) = BUF(CHANGESET_WORDS);
    struct jot j = JOT(&text);
    char verb[32];
    bool after = changesets_is_over(r);
    snprintf(verb, sizeof(verb), "review.%s", r->action[0] == 's' ? "ship" : "undo");
    jot_object(&j, NULL);
    jot_string(&j, "changeset", f->id);
    jot_string(&j, "archive", text_in(words, "sha256"));
    jot_string(&j, "files_sha256", f->sha256);
    jot_u64(&j, "files", r->files.value);
    jot_string(&j, "target", r->target);
    jot_end(&j, '}');
    struct journal_record what = {
        .verb = verb, .machine = text_in(words, "machine"), .detail = j.failed ? NULL : text.data};
    f->record = r->intent.value;
    if (!after)
        return note_intent(f->service, &f->who, &what, &f->record, err);
    note_result(f->service, &f->who, &what, r->intent.value, NULL);
    changeset_row_decide(f->service, f->id,
                         r->action[0] == 's' ? CHANGESET_SHIPPED : CHANGESET_UNDONE);
    return 0;
}

void service_ship(struct service *s, const struct caller *who, const char *id,
                  const struct ship_request *r, service_ship_fn *done, void *arg) {
    json_t *words DEFER(json_decrefp) = NULL;
    struct shipping *f = xnew(struct shipping);
    struct err err;
    *f = (struct shipping){.service = s, .who = *who, .done = done, .arg = arg};
    snprintf(f->id, sizeof(f->id), "%s", id);
    snprintf(f->sha256, sizeof(f->sha256), "%s", r->sha256);
    int status = authorise(who, RIGHT_SHIP, &err);
    if (status == 0 && (strlen(r->sha256) != CHANGESET_HEX - 1 || strlen(r->target) > 1000))
        status =
            err_set(&err, ERR_INVALID,
                    "field 'sha256' must be 64 hex digits, and field 'target' at most 1000 bytes");
    if (status < 0 || changesets_read_words(s, who, id, &words, &err) < 0 ||
        taint_shipped(s, who->owner, text_in(words, "tainted"), r->target, &err) < 0 ||
        note_ship(f, r, words, &err) < 0) {
        free(f);
        done(arg, NULL, &err);
        return;
    }
    if (r->now && changesets_is_over(r))
        f->now = xstrdup(r->now);
    if (changesets_is_over(r))
        f->event = r->action[0] == 's' ? "changeset.shipped" : "changeset.undone";
    f->words = TAKE(words);
    loop_work(s->loop, ship_flush, ship_flushed, f);
}
