#include "service/changesets.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/baseline.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "service/baselines.h"
#include "service/state.h"
#include "service/tool_run.h"

enum { PATH_SIZE = PLACE_SIZE + 64, WORDS_SIZE = 65536, HEX_SIZE = 2 * SHA256_BYTES + 1 };

#define BASE ".base"

static void free_json(json_t **json) {
    json_decref(*json);
}

static void path_of(const struct service *s, const char *id, const char *ending,
                    char ret[PATH_SIZE]) {
    snprintf(ret, PATH_SIZE, "%s/changesets/%s%s", s->place->home, id, ending);
}

static int make_dir(const struct service *s, struct err *err) {
    char path[PATH_SIZE];
    path_of(s, "", "", path);
    return mkdir(path, 0700) < 0 && errno != EEXIST ? err_sys(err, "make '%s'", path) : 0;
}

void changesets_trim(const char *home, int64_t before_ms) {
    char path[PATH_SIZE];
    struct stat st;
    snprintf(path, sizeof(path), "%s/changesets", home);
    DIR *dir = opendir(path);
    if (!dir)
        return;
    for (struct dirent *e; (e = readdir(dir));)
        if (strncmp(e->d_name, "c-", 2) == 0 &&
            fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            st.st_mtim.tv_sec < before_ms / 1000)
            unlinkat(dirfd(dir), e->d_name, 0);
    closedir(dir);
}

/* ---- freezing ---- */

struct freezing {
    struct service *service;
    struct caller who;
    struct tool_run *tool;
    char id[ID_SIZE], machine[ID_SIZE], path[4096], slice[4096], sha256[HEX_SIZE];
    char tainted[NAME_SIZE];
    int64_t machine_ms;
    int fd;
    uint64_t bytes, intent;
    struct sha256 hash;
    struct err err;
    bool failed;
    service_changeset_fn *done;
    void *arg;
};

static struct journal_record record_of(const struct freezing *f) {
    return (struct journal_record){.verb = "review.freeze", .machine = f->machine};
}

static void finish(struct freezing *f) {
    struct journal_record what = record_of(f);
    char path[PATH_SIZE], detail[160];
    const struct err *err = f->failed ? &f->err : NULL;
    snprintf(detail, sizeof(detail), "{\"changeset\":\"%s\",\"sha256\":\"%s\"}", f->id, f->sha256);
    what.detail = err ? NULL : detail;
    what.bytes = f->bytes;
    note_result(f->service, &f->who, &what, f->intent, err);
    const struct changeset_view view = {.id = f->id,
                                        .owner = f->who.owner,
                                        .machine = f->machine,
                                        .path = f->path,
                                        .slice = f->slice,
                                        .sha256 = f->sha256,
                                        .tainted = f->tainted[0] ? f->tainted : NULL,
                                        .bytes = f->bytes,
                                        .created_ms = (uint64_t)now_ms(),
                                        .machine_ms = (uint64_t)f->machine_ms};
    if (err) {
        path_of(f->service, f->id, ".tar", path);
        unlink(path);
        path_of(f->service, f->id, BASE, path);
        unlink(path);
    }
    f->done(f->arg, err ? NULL : &view, err);
    close_fd(&f->fd);
    free(f);
}

/* Its words: written last, so that an archive with them is whole. */
static int write_words(const struct freezing *f, struct err *err) {
    struct buf text DEFER(buf_done) = BUF(WORDS_SIZE);
    struct jot j = JOT(&text);
    char path[PATH_SIZE], part[PATH_SIZE];
    path_of(f->service, f->id, ".json", path);
    path_of(f->service, f->id, ".part", part);
    jot_object(&j, NULL);
    jot_string(&j, "owner", f->who.owner);
    jot_string(&j, "machine", f->machine);
    jot_string(&j, "path", f->path);
    jot_string(&j, "slice", f->slice);
    jot_string(&j, "sha256", f->sha256);
    if (f->tainted[0])
        jot_string(&j, "tainted", f->tainted);
    jot_u64(&j, "bytes", f->bytes);
    jot_i64(&j, "created_ms", now_ms());
    jot_i64(&j, "machine_ms", f->machine_ms);
    jot_end(&j, '}');
    int fd DEFER_CLOSE = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (j.failed || fd < 0 || write_all(fd, text.data, text.len) < 0 || fsync(fd) < 0 ||
        rename(part, path) < 0)
        return err_sys(err, "write '%s'", path);
    return 0;
}

static void keep(void *arg) {
    struct freezing *f = arg;
    if (!f->failed && fsync(f->fd) < 0)
        f->failed = err_sys(&f->err, "flush a change set") < 0;
    if (!f->failed)
        f->failed = write_words(f, &f->err) < 0;
    if (!f->failed)
        f->failed = store_flush(f->service->store, &f->err) < 0;
}

static void kept(void *arg) {
    finish(arg);
}

static void packed(void *arg, const uint8_t *bytes, uint32_t n) {
    struct freezing *f = arg;
    f->bytes += n;
    if (!f->failed && f->bytes > CHANGESET_BYTES_MAX)
        f->failed = err_set(&f->err, ERR_LIMIT, "'%s' holds more than %d MiB", f->path,
                            CHANGESET_BYTES_MAX >> 20) < 0;
    sha256_add(&f->hash, bytes, n);
    int status = f->failed ? 0 : write_all(f->fd, bytes, n);
    if (status < 0)
        f->failed = err_num(&f->err, status, "write a change set") < 0;
    tool_consumed(f->tool, n);
}

static void pack_over(void *arg, int status, const char *answer, const char *said,
                      const struct err *err) {
    struct freezing *f = arg;
    uint8_t hash[SHA256_BYTES];
    (void)answer;
    f->tool = NULL;
    if (!f->failed && err) {
        f->err = *err;
        f->failed = true;
    } else if (!f->failed && status != 0) {
        tool_said(said, &f->err);
        f->failed = true;
    }
    sha256_end(&f->hash, hash);
    journal_hex(hash, sizeof(hash), f->sha256);
    loop_work(f->service->loop, keep, kept, f);
}

static int begin(struct freezing *f, struct err *err) {
    char path[PATH_SIZE], base[PATH_SIZE];
    struct journal_record what = record_of(f);
    const char *const argv[] = {"tar", f->path, NULL};
    const struct tool_events events = {.arg = f, .data = packed, .ended = pack_over};
    path_of(f->service, f->id, ".tar", path);
    if (make_dir(f->service, err) < 0)
        return -1;
    path_of(f->service, f->id, BASE, base);
    baseline_keep(f->service, f->machine, f->slice, base);
    f->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (f->fd < 0)
        return err_sys(err, "make '%s'", path);
    if (note_intent(f->service, &f->who, &what, &f->intent, err) < 0)
        return -1;
    f->tool = service_tool(f->service, &f->who, f->machine, "file.tar", argv, "root", &events, err);
    if (!f->tool)
        return -1;
    tool_feed(f->tool, "", 0, true);
    return 0;
}

static bool is_place(const char *path) {
    return path[0] == '/' && strlen(path) < sizeof(((struct freezing *)0)->path);
}

void service_freeze(struct service *s, const struct caller *who, const char *machine,
                    const struct freeze_request *r, service_changeset_fn *done, void *arg) {
    const char *path = r->path ? r->path : "/outbox", *slice = r->slice ? r->slice : path;
    struct err err;
    struct live *l =
        allow(who, SCOPE_RUN, &err) < 0 ? NULL : live_find(s, who, machine, LIVE_RUNNING, &err);
    if (l && (!is_place(path) || !is_place(slice))) {
        err_set(&err, ERR_INVALID, "'%.80s' is no absolute path", is_place(path) ? slice : path);
        l = NULL;
    }
    if (!l) {
        done(arg, NULL, &err);
        return;
    }
    struct freezing *f = calloc(1, sizeof(*f));
    if (!f)
        abort();
    *f = (struct freezing){.service = s, .who = *who, .fd = -1, .done = done, .arg = arg};
    memcpy(f->id, id_new('c').text, ID_SIZE);
    memcpy(f->machine, l->row.id, ID_SIZE);
    snprintf(f->path, sizeof(f->path), "%s", path);
    snprintf(f->slice, sizeof(f->slice), "%s", slice);
    f->machine_ms = l->row.created_ms;
    snprintf(f->tainted, sizeof(f->tainted), "%s", gate_policy(l->gate)->tainted);
    sha256_init(&f->hash);
    if (begin(f, &err) < 0) {
        f->err = err;
        f->failed = true;
        finish(f);
    }
}

/* ---- looking ---- */

static int read_words(const struct service *s, const struct caller *who, const char *id,
                      json_t **ret, struct err *err) {
    char path[PATH_SIZE];
    if (!id_valid(id, strlen(id), 'c'))
        return err_set(err, ERR_NOT_FOUND, "there is no change set '%.40s'", id);
    path_of(s, id, ".json", path);
    json_t *words DEFER(free_json) = json_load_file(path, 0, NULL);
    const char *owner = json_string_value(json_object_get(words, "owner"));
    if (!owner || !may_see(who, owner))
        return err_set(err, ERR_NOT_FOUND, "there is no change set '%s'", id);
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

static void open_part(struct service *s, const struct caller *who, const char *id,
                      const char *ending, service_archive_fn *done, void *arg) {
    json_t *words DEFER(free_json) = NULL;
    char path[PATH_SIZE];
    struct err err;
    if (allow(who, SCOPE_READ, &err) < 0 || read_words(s, who, id, &words, &err) < 0) {
        done(arg, NULL, -1, &err);
        return;
    }
    path_of(s, id, ending, path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT && strcmp(ending, BASE) == 0)
        fd = open("/dev/null", O_RDONLY | O_CLOEXEC); /* nothing is known */
    if (fd < 0)
        err_sys(&err, "open '%s'", path);
    const struct changeset_view view = {.id = id,
                                        .owner = text_in(words, "owner"),
                                        .machine = text_in(words, "machine"),
                                        .path = text_in(words, "path"),
                                        .slice = text_in(words, "slice"),
                                        .sha256 = text_in(words, "sha256"),
                                        .tainted =
                                            json_string_value(json_object_get(words, "tainted")),
                                        .bytes = number_in(words, "bytes"),
                                        .created_ms = number_in(words, "created_ms"),
                                        .machine_ms = number_in(words, "machine_ms")};
    done(arg, fd < 0 ? NULL : &view, fd, fd < 0 ? &err : NULL);
}

void service_changeset_open(struct service *s, const struct caller *who, const char *id,
                            service_archive_fn *done, void *arg) {
    open_part(s, who, id, ".tar", done, arg);
}

void service_changeset_base(struct service *s, const struct caller *who, const char *id,
                            service_archive_fn *done, void *arg) {
    open_part(s, who, id, BASE, done, arg);
}

/* ---- what goes out ---- */

struct shipping {
    struct service *service;
    struct caller who;
    char id[ID_SIZE], sha256[HEX_SIZE];
    uint64_t record;
    char *now; /* of what moved, or NULL */
    struct err err;
    bool failed;
    service_ship_fn *done;
    void *arg;
};

/* What was shipped, or put back, is what the next change is measured by. */
static int add_base(const struct shipping *f, struct err *err) {
    struct baseline check DEFER(baseline_done) = {0};
    char path[PATH_SIZE];
    path_of(f->service, f->id, BASE, path);
    if (baseline_read(f->now, strlen(f->now), &check, err) < 0)
        return -1;
    int fd DEFER_CLOSE = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd < 0 || write_all(fd, f->now, strlen(f->now)) < 0 || fdatasync(fd) < 0)
        return err_sys(err, "write '%s'", path);
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
    f->done(f->arg, f->failed ? NULL : &view, f->failed ? &f->err : NULL);
    free(f->now);
    free(f);
}

static bool is_over(const struct ship_request *r) {
    return strcmp(r->action, "shipped") == 0 || strcmp(r->action, "undone") == 0;
}

static int note_ship(struct shipping *f, const struct ship_request *r, const json_t *words,
                     struct err *err) {
    struct buf text DEFER(buf_done) = BUF(WORDS_SIZE);
    struct jot j = JOT(&text);
    char verb[32];
    bool after = is_over(r);
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
    return 0;
}

void service_ship(struct service *s, const struct caller *who, const char *id,
                  const struct ship_request *r, service_ship_fn *done, void *arg) {
    json_t *words DEFER(free_json) = NULL;
    struct shipping *f = calloc(1, sizeof(*f));
    struct err err;
    if (!f)
        abort();
    *f = (struct shipping){.service = s, .who = *who, .done = done, .arg = arg};
    snprintf(f->id, sizeof(f->id), "%s", id);
    snprintf(f->sha256, sizeof(f->sha256), "%s", r->sha256);
    int status = allow(who, SCOPE_RUN, &err);
    if (status == 0 && !who->local && !(who->scopes & SCOPE_ADMIN)) {
        err_set(&err, ERR_DENIED, "only the owner lets something out");
        status = err_remedy(&err, "use the command line on this host");
    }
    if (status == 0 && (strlen(r->sha256) != HEX_SIZE - 1 || strlen(r->target) > 1000))
        status = err_set(&err, ERR_INVALID, "'sha256' or 'target' is not what it must be");
    if (status < 0 || read_words(s, who, id, &words, &err) < 0 ||
        note_ship(f, r, words, &err) < 0) {
        free(f);
        done(arg, NULL, &err);
        return;
    }
    if (r->now && is_over(r))
        f->now = strdup(r->now);
    loop_work(s->loop, ship_flush, ship_flushed, f);
}
