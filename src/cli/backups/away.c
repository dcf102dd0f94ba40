#include "cli/backups/away.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/beneath.h"
#include "base/fs/dir.h"
#include "base/hex.h"
#include "base/id.h"
#include "base/sha256.h"
#include "cli/layout.h"
#include "cli/progress.h"

#define ASIDE "incomplete" /* the file that is being written */
#define TEXTS "backups/"

enum {
    AWAY_NAME = 128,
    DIGITS = SHA256_HEX - 1,
    TEXT_MAX = 8 << 20, /* as in the daemon */
    WANTED_MAX = 6000,
    AWAY_BLOCK = 1 << 20,
};

bool away_is_dir(const char *word) {
    return strchr(word, '/') != NULL;
}

static int away_open(const char *dir, struct err *err) {
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? err_sys(err, "cannot open directory '%s'", dir) : fd;
}

static int away_damaged(struct err *err, const char *what, const char *why) {
    err_set(err, ERR_INVALID, "file '%s' of the backup is %s", what, why);
    return err_remedy(err, "copy it again with: carrel backup MACHINE --to DIR; other backups in "
                           "the directory may be complete");
}

static int away_read(int fd, struct buf *ret) {
    char block[16384];
    for (ssize_t n; (n = read(fd, block, sizeof(block))) != 0;)
        if (n < 0 ? errno != EINTR : !buf_add(ret, block, (size_t)n))
            return -1;
    return 0;
}

/* ---- hashes ---- */

static int hash_file(int fd, struct progress *p, uint64_t *bytes, char ret[SHA256_HEX]) {
    uint8_t *block DEFER_FREE = xmalloc(AWAY_BLOCK), hash[SHA256_BYTES];
    struct sha256 sum;
    sha256_init(&sum);
    for (;;) {
        ssize_t n = read(fd, block, AWAY_BLOCK);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        sha256_add(&sum, block, (size_t)n);
        *bytes += (uint64_t)n;
        if (p)
            progress_add(p, (uint64_t)n);
    }
    sha256_end(&sum, hash);
    hex_put(hash, SHA256_BYTES, ret);
    return 0;
}

/* path: folder and hash, such as "packs/4be1...". */
static int check_file(int dir, const char *path, struct progress *p, uint64_t *bytes,
                      struct err *err) {
    char hash[SHA256_HEX];
    struct err ignored;
    int fd DEFER_CLOSE = beneath_open_file(dir, path, &ignored);
    if (fd < 0)
        return away_damaged(err, path, "missing");
    int r = hash_file(fd, p, bytes, hash);
    if (r < 0)
        return err_num(err, r, "cannot read '%s' of the backup", path);
    return strcmp(hash, strchr(path, '/') + 1) == 0 ? 0 : away_damaged(err, path, "damaged");
}

/* ---- descriptions ---- */

static bool is_hash(const json_t *name) {
    return json_is_string(name) && json_string_length(name) == DIGITS &&
           hex_is(json_string_value(name), DIGITS);
}

/* JSON in one line, and its hash in another. NULL: damaged. */
static json_t *text_parse(const char *text, size_t len) {
    const char *newline = len ? memchr(text, '\n', len) : NULL;
    size_t n = newline ? (size_t)(newline - text) : 0;
    char hash[SHA256_HEX];
    sha256_hex(text, n, hash);
    if (!newline || len != n + 2 + DIGITS || memcmp(newline + 1, hash, DIGITS) != 0)
        return NULL;
    json_t *json = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL), *packs, *pack;
    size_t i;
    packs = json_object_get(json, "packs");
    bool good = is_hash(json_object_get(json, "manifest")) && json_is_array(packs) &&
                json_string_value(json_object_get(json, "id"));
    json_array_foreach(packs, i, pack) {
        good = good && is_hash(pack);
    }
    if (good)
        return json;
    json_decref(json);
    return NULL;
}

static void text_path(const char *id, char ret[AWAY_NAME]) {
    snprintf(ret, AWAY_NAME, TEXTS "%.*s.json", ID_SIZE, id);
}

static json_t *text_read(int dir, const char *id, struct err *err) {
    struct buf text DEFER(buf_done) = BUF(TEXT_MAX);
    char path[AWAY_NAME];
    text_path(id, path);
    int fd DEFER_CLOSE = beneath_open_file(dir, path, err);
    if (fd < 0)
        return NULL;
    json_t *json = away_read(fd, &text) < 0 ? NULL : text_parse(text.data, text.len);
    if (!json)
        away_damaged(err, path, "damaged");
    return json;
}

int away_list(const char *dir, json_t **ret, struct err *err) {
    int at DEFER_CLOSE = away_open(dir, err);
    DIR *all DEFER(dir_close) = at < 0 ? NULL : dir_list(at, "backups");
    struct dirent *e;
    *ret = NULL;
    if (at < 0)
        return -1;
    if (!all)
        return err_sys(err, "directory '%s' has no backups", dir);
    json_t *list DEFER(json_decrefp) = json_array();
    while ((e = readdir(all))) {
        char name[ID_SIZE];
        if (strlen(e->d_name) != ID_SIZE - 1 + strlen(".json") ||
            !id_valid(e->d_name, ID_SIZE - 1, 'k'))
            continue;
        snprintf(name, sizeof(name), "%.*s", ID_SIZE - 1, e->d_name);
        json_t *json = text_read(at, name, err);
        if (!json)
            return -1;
        size_t i = 0;
        while (i < json_array_size(list) && client_number(json_array_get(list, i), "created_ms") >=
                                                client_number(json, "created_ms"))
            i++;
        json_array_insert_new(list, i, json);
    }
    *ret = json_incref(list);
    return 0;
}

int away_find(const char *dir, const char *id, json_t **ret, struct err *err) {
    json_t *all DEFER(json_decrefp) = NULL;
    int at DEFER_CLOSE = away_open(dir, err);
    *ret = NULL;
    if (at < 0)
        return -1;
    if (id)
        return (*ret = text_read(at, id, err)) ? 0 : -1;
    if (away_list(dir, &all, err) < 0)
        return -1;
    if (!json_array_size(all)) {
        err_set(err, ERR_NOT_FOUND, "directory '%s' has no backups", dir);
        return err_remedy(err, "copy one there with: carrel backup MACHINE --to %s", dir);
    }
    *ret = json_incref(json_array_get(all, 0));
    return 0;
}

int away_verify(const char *dir, const json_t *backup, bool quiet, uint64_t *ret_bytes,
                struct err *err) {
    int at DEFER_CLOSE = away_open(dir, err);
    struct progress p = progress_begin(dir, 0, quiet);
    const json_t *packs = json_object_get(backup, "packs");
    char path[AWAY_NAME];
    snprintf(path, sizeof(path), "manifests/%s", client_text(backup, "manifest"));
    *ret_bytes = 0;
    if (at < 0 || check_file(at, path, &p, ret_bytes, err) < 0)
        return -1;
    for (size_t i = 0; i < json_array_size(packs); i++) {
        snprintf(path, sizeof(path), "packs/%s", json_string_value(json_array_get(packs, i)));
        if (check_file(at, path, &p, ret_bytes, err) < 0)
            return -1;
    }
    progress_end(&p);
    return 0;
}

/* ---- from the daemon into a directory ---- */

struct saving {
    struct layout_reader layout; /* first: its functions get a pointer to it */
    int text;                    /* memory that gets the description */
    uint64_t bytes;
};

static bool path_is_hashed(const char *path, const char *folder) {
    size_t n = strlen(folder);
    return strncmp(path, folder, n) == 0 && strlen(path + n) == DIGITS && hex_is(path + n, DIGITS);
}

static int saving_begin(struct layout_reader *r, struct err *err) {
    struct saving *s = (struct saving *)r;
    const char *path = r->entry->path;
    struct stat st;
    if (r->entry->kind == TAR_FILE && strncmp(path, TEXTS, strlen(TEXTS)) == 0) {
        if (ftruncate(s->text, 0) < 0 || lseek(s->text, 0, SEEK_SET) < 0)
            return err_sys(err, "cannot keep the description of the backup");
        r->file = fcntl(s->text, F_DUPFD_CLOEXEC, 3);
        return r->file < 0 ? err_sys(err, "cannot keep the description of the backup") : 0;
    }
    if (r->entry->kind != TAR_FILE ||
        (!path_is_hashed(path, "packs/") && !path_is_hashed(path, "manifests/")))
        return err_set(err, ERR_INVALID,
                       "the daemon sent '%.120s', which does not belong to a backup", path);
    if (fstatat(r->dir, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
        (uint64_t)st.st_size == r->entry->size)
        return 0;
    r->file = openat(r->dir, ASIDE, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    return r->file < 0 ? err_sys(err, "cannot write '%s' of the backup", path) : 0;
}

static int saving_end(struct layout_reader *r, struct err *err) {
    struct saving *s = (struct saving *)r;
    const char *path = r->entry->path;
    char hash[SHA256_HEX];
    if (r->file < 0 || strncmp(path, TEXTS, strlen(TEXTS)) == 0)
        return 0;
    int n = lseek(r->file, 0, SEEK_SET) < 0 ? -errno : hash_file(r->file, NULL, &s->bytes, hash);
    if (n < 0)
        return err_num(err, n, "cannot read '%s' of the backup", path);
    if (strcmp(hash, strchr(path, '/') + 1) != 0) {
        err_set(err, ERR_INVALID, "'%s' of the backup is damaged in the store", path);
        return err_remedy(err, "see: carrel backup verify BACKUP");
    }
    return fsync(r->file) < 0 || renameat(r->dir, ASIDE, r->dir, path) < 0
               ? err_sys(err, "cannot write '%s' of the backup", path)
               : 0;
}

static int saving_fetch(struct saving *s, struct client *c, const char *id, const char *packs,
                        bool quiet, struct err *err) {
    static const struct layout_kind kind = {
        .what = "backup", .begin = saving_begin, .end = saving_end};
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "GET", .target = target, .accept = "*/*"};
    struct progress p = progress_begin(id, 0, quiet);
    const struct http_head *head;
    const char *bytes;
    size_t n;
    int more = -1, dir = fcntl(s->layout.dir, F_DUPFD_CLOEXEC, 3);
    layout_done(&s->layout);
    layout_start(&s->layout, &kind, dir);
    if (client_target(target, err, "/v1/backups/%s/archive", id) < 0 ||
        client_query(target, "packs", packs, err) < 0 || client_send(c, c->http, &r, err) < 0 ||
        client_answer(c->http, &head, err) < 0)
        return -1;
    while ((more = http_client_read(c->http, &bytes, &n, err)) > 0) {
        if (layout_take(&s->layout, bytes, n, err) < 0)
            return -1;
        progress_add(&p, n);
    }
    progress_end(&p);
    return more < 0 ? -1 : layout_finish(&s->layout, err);
}

static int saving_text(const struct saving *s, struct buf *ret, json_t **ret_json,
                       struct err *err) {
    if (lseek(s->text, 0, SEEK_SET) < 0 || away_read(s->text, ret) < 0 ||
        !(*ret_json = text_parse(ret->data ? ret->data : "", ret->len)))
        return err_set(err, ERR_INTERNAL, "the daemon sent a damaged description of the backup");
    return 0;
}

/* Numbers of the packs that the directory does not have: "0-3,7", or "" if it has all. Returns
 * false if that is too long. */
static bool saving_wanted(int dir, const json_t *packs, char ret[WANTED_MAX]) {
    size_t len = 0, count = json_array_size(packs);
    ret[0] = '\0';
    for (size_t i = 0, first; i < count; i++) {
        for (first = i; i < count; i++) {
            char path[AWAY_NAME];
            snprintf(path, sizeof(path), "packs/%s", json_string_value(json_array_get(packs, i)));
            if (faccessat(dir, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
                break;
        }
        if (first == i)
            continue;
        int n = snprintf(ret + len, WANTED_MAX - len, "%s%zu-%zu", len ? "," : "", first, i - 1);
        if (n < 0 || (size_t)n >= WANTED_MAX - len)
            return false;
        len += (size_t)n;
    }
    return true;
}

/* The description gets its name after all other files are on the disk. */
static int saving_commit(const struct saving *s, const char *id, const struct buf *text,
                         struct err *err) {
    static const char *const folders[] = {"packs", "manifests", "backups", "."};
    char path[AWAY_NAME];
    int dir = s->layout.dir;
    text_path(id, path);
    for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++) {
        int fd DEFER_CLOSE = openat(dir, folders[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (i == 2) {
            int file DEFER_CLOSE =
                openat(dir, ASIDE, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
            if (file < 0 || write_all(file, text->data, text->len) < 0 || fsync(file) < 0 ||
                renameat(dir, ASIDE, dir, path) < 0)
                return err_sys(err, "cannot write '%s' of the backup", path);
        }
        if (fd < 0 || fsync(fd) < 0)
            return err_sys(err, "cannot write directory '%s' of the backup", folders[i]);
    }
    return 0;
}

static int saving_run(struct saving *s, struct client *c, const char *id, bool quiet,
                      struct err *err) {
    struct buf text DEFER(buf_done) = BUF(TEXT_MAX);
    json_t *json DEFER(json_decrefp) = NULL;
    char wanted[WANTED_MAX];
    if (saving_fetch(s, c, id, "none", quiet, err) < 0 || saving_text(s, &text, &json, err) < 0)
        return -1;
    bool fits = saving_wanted(s->layout.dir, json_object_get(json, "packs"), wanted);
    if ((!fits || *wanted) && saving_fetch(s, c, id, fits ? wanted : NULL, quiet, err) < 0)
        return -1;
    return saving_commit(s, id, &text, err);
}

static int saving_folders(int dir, const char *path, struct err *err) {
    static const char *const folders[] = {"packs", "manifests", "backups"};
    if (faccessat(dir, "backups", F_OK, 0) < 0 && !layout_is_empty(dir)) {
        err_set(err, ERR_EXISTS, "directory '%s' has files, but no backups", path);
        return err_remedy(err, "use a new directory, or one that has backups");
    }
    for (size_t i = sizeof(folders) / sizeof(*folders); i-- > 0;)
        if (mkdirat(dir, folders[i], 0700) < 0 && errno != EEXIST)
            return err_sys(err, "cannot create directory '%s/%s'", path, folders[i]);
    return 0;
}

int away_save(struct client *c, const char *id, const char *dir, bool quiet, uint64_t *ret_bytes,
              struct err *err) {
    if (mkdir(dir, 0700) < 0 && errno != EEXIST)
        return err_sys(err, "cannot create directory '%s'", dir);
    struct saving s = {.layout = {.dir = away_open(dir, err), .file = -1},
                       .text = memfd_create("backup", MFD_CLOEXEC)};
    int r = s.layout.dir < 0 ? -1 : saving_folders(s.layout.dir, dir, err);
    if (r == 0 && s.text < 0)
        r = err_sys(err, "cannot keep the description of the backup");
    if (r == 0)
        r = saving_run(&s, c, id, quiet, err);
    if (s.layout.dir >= 0)
        unlinkat(s.layout.dir, ASIDE, 0);
    layout_done(&s.layout);
    close_fd(&s.text);
    *ret_bytes = s.bytes;
    return r;
}

/* ---- from a directory to a daemon ---- */

struct sending {
    struct client *client;
    struct progress progress;
};

static int sending_put(void *arg, const void *bytes, size_t n, struct err *err) {
    struct sending *s = arg;
    progress_add(&s->progress, n);
    return n ? http_client_write(s->client->http, bytes, n, err) : 0;
}

static int sending_files(struct sending *s, int dir, const json_t *backup, struct err *err) {
    const json_t *packs = json_object_get(backup, "packs");
    char path[AWAY_NAME];
    for (size_t i = 0; i < json_array_size(packs); i++) {
        snprintf(path, sizeof(path), "packs/%s", json_string_value(json_array_get(packs, i)));
        if (layout_send_file(dir, path, path, "backup", sending_put, s, err) < 0)
            return -1;
    }
    snprintf(path, sizeof(path), "manifests/%s", client_text(backup, "manifest"));
    if (layout_send_file(dir, path, path, "backup", sending_put, s, err) < 0)
        return -1;
    text_path(client_text(backup, "id"), path);
    return layout_send_file(dir, path, path, "backup", sending_put, s, err) < 0
               ? -1
               : layout_send_end(sending_put, s, err);
}

int away_send(struct client *c, const char *dir, const json_t *backup, bool quiet, json_t **ret,
              struct err *err) {
    struct sending s = {c, progress_begin(dir, 0, quiet)};
    const struct client_request r = {.method = "POST", .target = "/v1/backups", .streamed = true};
    struct buf text DEFER(buf_done) = BUF(1 << 20);
    const struct http_head *head;
    int at DEFER_CLOSE = away_open(dir, err);
    if (at < 0 || client_send(c, c->http, &r, err) < 0 || sending_files(&s, at, backup, err) < 0)
        return -1;
    progress_end(&s.progress);
    if (http_client_finish(c->http, err) < 0 || client_answer(c->http, &head, err) < 0 ||
        http_client_collect(c->http, &text, err) < 0)
        return -1;
    *ret = json_loadb(text.data ? text.data : "", text.len, 0, NULL);
    return *ret ? 0 : err_set(err, ERR_INTERNAL, "the daemon's answer is not JSON");
}
