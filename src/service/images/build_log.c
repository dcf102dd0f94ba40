/*
 * Logs of builds: a file of JSON objects, one per line, in the directory `builds` of the store. A
 * log has a largest size. Output beyond it is left out, except its end if the step fails.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/dir.h"
#include "base/log.h"
#include "base/text/base64.h"
#include "base/utf8.h"
#include "service/images/build_inner.h"

enum { LINE_MAX_BYTES = 512 << 10, OUTPUT_PIECE = 32 << 10 };

/* Opens the directory of logs. Returns -errno if that fails. */
static int logs_open(const struct service *s, bool create) {
    char path[PLACE_SIZE + 16];
    snprintf(path, sizeof(path), "%s/builds", s->place->home);
    if (create && mkdir(path, 0700) < 0 && errno != EEXIST)
        return -errno;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

int build_log_create(struct build *b, struct err *err) {
    int dir DEFER_CLOSE = logs_open(b->service, true);
    if (dir >= 0)
        b->log = openat(dir, b->row.id, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
    return dir < 0      ? err_num(err, dir, "cannot create the directory of build logs")
           : b->log < 0 ? err_sys(err, "cannot create the log of build '%s'", b->row.id)
                        : 0;
}

void build_log_delete(const struct service *s, const char *id) {
    int dir DEFER_CLOSE = logs_open(s, false);
    if (dir >= 0 && unlinkat(dir, id, 0) < 0 && errno != ENOENT)
        log_line(LOG_WARN, "service", "delete the log of a build: %s id=%s", strerror(errno), id);
}

void build_logs_sweep(struct service *s) {
    int dir DEFER_CLOSE = logs_open(s, false);
    DIR *d DEFER(dir_close) = dir < 0 ? NULL : dir_list(dir, ".");
    for (struct dirent *e; d && (e = readdir(d));) {
        struct build_row row DEFER(build_row_done) = {.state = 0};
        struct err err;
        if (is_dots(e->d_name) || store_build_find(s->store, NULL, e->d_name, &row, &err) == 0 ||
            err.code != ERR_NOT_FOUND)
            continue;
        build_log_delete(s, e->d_name);
    }
}

/* ---- writing ---- */

void build_log_changed(struct build *b) {
    for (struct build_log_reader *r = b->readers, *next; r; r = next) {
        next = r->next;
        r->changed(r->arg);
    }
}

/* The log is for people: a full disk does not end the build. */
static void log_write(struct build *b, const struct buf *line) {
    if (write_all(b->log, line->data, line->len) < 0)
        return;
    b->log_bytes += line->len;
    build_log_changed(b);
}

void build_log_step(struct build *b, const char *how, const char *what) {
    struct buf line DEFER(buf_done) = BUF(LINE_MAX_BYTES);
    struct jot j = JOT(&line);
    jot_object(&j, NULL);
    jot_string(&j, "type", "step");
    jot_u64(&j, "step", b->row.step);
    jot_u64(&j, "steps", b->row.steps);
    jot_string(&j, "how", how);
    jot_string(&j, "what", what);
    jot_end(&j, '}');
    b->unlogged = 0;
    b->tail.len = 0;
    if (!j.failed && buf_add(&line, "\n", 1))
        log_write(b, &line);
}

int service_build_label(struct service *s, const struct caller *who, const char *id,
                        const json_t *label, struct err *err) {
    struct buf line DEFER(buf_done) = BUF(LINE_MAX_BYTES);
    struct build *b = build_live(s, id);
    if (allow(who, SCOPE_RUN, err) < 0)
        return -1;
    if (!b || strcmp(b->row.owner, who->owner) != 0)
        return err_set(err, ERR_NOT_FOUND, "build '%.60s' does not exist", id);
    char *text DEFER_FREE = json_dumps(label, JSON_COMPACT);
    if (text && buf_addf(&line, "{\"type\":\"label\",\"label\":%s}\n", text))
        log_write(b, &line);
    return 0;
}

static void put_output(struct build *b, const char *bytes, size_t n) {
    struct buf line DEFER(buf_done) = BUF(LINE_MAX_BYTES);
    struct jot j = JOT(&line);
    jot_object(&j, NULL);
    jot_string(&j, "type", "output");
    if (utf8_valid((const unsigned char *)bytes, n) && !memchr(bytes, 0, n)) {
        jot_bytes(&j, "data", bytes, n);
    } else {
        char *text DEFER_FREE = xmalloc(BASE64_SIZE(n));
        base64_encode((const unsigned char *)bytes, n, text);
        jot_string(&j, "data_base64", text);
    }
    jot_end(&j, '}');
    if (!j.failed && buf_add(&line, "\n", 1))
        log_write(b, &line);
}

static void keep_tail(struct build *b, const char *bytes, size_t n) {
    b->unlogged += n;
    if (n > BUILD_TAIL) {
        bytes += n - BUILD_TAIL;
        n = BUILD_TAIL;
    }
    if (b->tail.len + n > 2 * BUILD_TAIL) /* not at BUILD_TAIL, because this moves the rest */
        buf_drop(&b->tail, b->tail.len + n - BUILD_TAIL);
    (void)!buf_add(&b->tail, bytes, n);
}

void build_log_output(struct build *b, const void *bytes, size_t n) {
    const char *at = bytes;
    for (size_t part; n; at += part, n -= part) {
        part = n < OUTPUT_PIECE ? n : OUTPUT_PIECE;
        if (b->unlogged || b->log_bytes + 6 * part > BUILD_LOG_MAX)
            keep_tail(b, at, part);
        else
            put_output(b, at, part);
    }
}

void build_log_tail(struct build *b) {
    struct buf line DEFER(buf_done) = BUF(256);
    if (!b->unlogged)
        return;
    if (b->tail.len > BUILD_TAIL)
        buf_drop(&b->tail, b->tail.len - BUILD_TAIL);
    if (buf_addf(&line, "{\"type\":\"gap\",\"bytes\":%llu}\n",
                 (unsigned long long)(b->unlogged - b->tail.len)))
        log_write(b, &line);
    for (size_t at = 0, part; at < b->tail.len; at += part) {
        part = b->tail.len - at < OUTPUT_PIECE ? b->tail.len - at : OUTPUT_PIECE;
        put_output(b, b->tail.data + at, part);
    }
    b->unlogged = 0;
    b->tail.len = 0;
}

/* ---- reading ---- */

int service_build_log(struct service *s, const struct caller *who, const char *id,
                      struct build_log_reader *reader, struct err *err) {
    struct build_row row DEFER(build_row_done) = {.state = 0};
    struct build *b = s->images->builds;
    if (allow(who, SCOPE_READ, err) < 0 || build_find(s, who, id, &row, err) < 0)
        return -1;
    int dir DEFER_CLOSE = logs_open(s, false);
    int fd = dir < 0 ? dir : openat(dir, row.id, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_num(err, dir < 0 ? dir : -errno, "cannot read the log of build '%s'", row.id);
    reader->fd = fd;
    reader->next = NULL;
    reader->at = NULL;
    while (b && strcmp(b->row.id, row.id) != 0)
        b = b->next;
    reader->ended = !b;
    if (!b)
        return 0;
    reader->next = b->readers;
    reader->at = &b->readers;
    if (reader->next)
        reader->next->at = &reader->next;
    b->readers = reader;
    return 0;
}

void build_log_close(struct build_log_reader *r) {
    if (r->at) {
        *r->at = r->next;
        if (r->next)
            r->next->at = r->at;
    }
    r->at = NULL;
    close_fd(&r->fd);
}
