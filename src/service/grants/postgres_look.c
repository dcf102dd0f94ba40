/*
 * Diff of a PostgreSQL database: a line per relation and routine, and for each table the number of
 * rows and a checksum, at the time of the grant and now.
 *
 * The queries run as the machine's own role, so that code of the machine in the database gets no
 * other rights.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/folder.h"
#include "base/log.h"
#include "base/text/textdiff.h"
#include "grant/dsn.h"
#include "io/child.h"
#include "service/grants/inner.h"

enum { TEXT_MAX = 1 << 20, SAID_MAX = 1024, LIMIT_MS = 110000, INPUT_MAX = 8192 };

/* ---- reading the present state ---- */

struct looking {
    postgres_looked_fn *done;
    void *arg;
};

static void ended(void *arg, const struct child_end *end) {
    struct looking *k = arg;
    struct err err;
    if (end->status == 0)
        k->done(k->arg, end->out ? end->out : "", end->cut, NULL);
    else {
        if (end->late)
            err_set(&err, ERR_TIMEOUT, "the inspection of the database timed out");
        else
            err_set(&err, ERR_UNKNOWN, "%.*s", (int)strcspn(end->said, "\n"),
                    *end->said ? end->said : "carrel-postgres ended without a result");
        k->done(k->arg, NULL, false, &err);
    }
    free(k);
}

static int postgres_look_start(struct live *l, const struct dsn *d, const char *name,
                               struct looking *k, struct err *err) {
    struct service *s = l->service;
    struct buf in DEFER(secret_wipe) = BUF(INPUT_MAX);
    char path[PLACE_SIZE + 32];
    const char *const argv[] = {"carrel-postgres", "look", NULL};
    const char *const words[] = {d->host,    d->port,          name, postgres_password(l), name,
                                 d->sslmode, s->conf->gate_ca, name};
    snprintf(path, sizeof(path), "%s/carrel-postgres", s->place->libexec);
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (!buf_add(&in, words[i], strlen(words[i]) + 1))
            return err_set(err, ERR_LIMIT, "the URL of the database server is too long");
    const struct child_order order = {.path = path,
                                      .argv = argv,
                                      .input = in.data,
                                      .input_bytes = in.len,
                                      .out_max = TEXT_MAX,
                                      .said_max = SAID_MAX,
                                      .limit_ms = LIMIT_MS};
    return child_start(s->loop, &order, ended, k, err) ? 0 : -1;
}

void postgres_look(struct live *l, const char *id, postgres_looked_fn *done, void *arg) {
    struct looking *k = xnew(struct looking);
    char name[DATABASE_NAME_SIZE];
    struct dsn dsn = {.host = ""};
    struct err err;
    *k = (struct looking){done, arg};
    postgres_name(id, name);
    int r = postgres_dsn(l, id, &dsn, &err);
    if (r == 0)
        r = postgres_look_start(l, &dsn, name, k, &err);
    dsn_wipe(&dsn);
    if (r == 0)
        return;
    free(k);
    done(arg, NULL, false, &err);
}

/* ---- saving the state at the time of the grant ---- */

struct keeping {
    struct service *service;
    char id[ID_SIZE];
    char *text;
    loop_fn *done;
    void *arg;
};

/* Deletes the file after a failed write: a diff from a partial state would show old rows as new. */
static int write_kept(const char *path, const char *text) {
    int fd DEFER_CLOSE = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    int status = fd < 0 ? -errno : write_all(fd, text, strlen(text));
    if (status == 0 && fsync(fd) < 0)
        status = -errno;
    if (status == 0)
        status = folder_sync_above(path);
    if (status < 0 && fd >= 0)
        unlink(path);
    return status;
}

static void keep_job(void *arg) {
    const struct keeping *k = arg;
    char path[PLACE_SIZE + 64];
    struct err err;
    int status = grant_copy_path(k->service, k->id, path, &err);
    if (status == 0) {
        status = write_kept(path, k->text);
        if (status < 0)
            err_num(&err, status, "cannot write file '%s'", path);
    }
    if (status < 0)
        log_line(LOG_WARN, "service", "save the state of a database for later diffs: %s", err.text);
}

static void keep_done(void *arg) {
    struct keeping *k = arg;
    k->done(k->arg);
    free(k->text);
    free(k);
}

void postgres_keep(struct live *l, const char *id, const char *text, loop_fn *done, void *arg) {
    struct keeping *k = xnew(struct keeping);
    *k = (struct keeping){.service = l->service, .text = xstrdup(text), .done = done, .arg = arg};
    snprintf(k->id, sizeof(k->id), "%s", id);
    loop_work(l->service->loop, keep_job, keep_done, k);
}

static void read_kept(struct service *s, const char *id, struct buf *ret) {
    char path[PLACE_SIZE + 64], piece[65536];
    struct err none;
    int fd DEFER_CLOSE = grant_copy_path(s, id, path, &none) < 0
                             ? -1
                             : open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    for (ssize_t n; fd >= 0 && (n = read(fd, piece, sizeof(piece))) > 0;)
        if (!buf_add(ret, piece, (size_t)n))
            return;
}

/* ---- the diff ---- */

struct telling {
    struct live *live;
    struct grant_row row;
    service_net_fn *done;
    void *arg;
};

/* Writes the added and removed lines, without the line numbers of the hunks. */
static void put_lines(struct jot *j, const char *hunks, size_t n) {
    struct buf text DEFER(buf_done) = BUF(4 * TEXT_MAX);
    for (const char *at = hunks, *end = hunks + n, *line; at < end; at = line) {
        line = memchr(at, '\n', (size_t)(end - at));
        line = line ? line + 1 : end;
        if ((*at == '+' || *at == '-') && !(buf_add(&text, at, 1) && buf_add(&text, " ", 1) &&
                                            buf_add(&text, at + 1, (size_t)(line - at - 1))))
            break;
    }
    jot_bool(j, "same", !text.len);
    jot_bytes(j, "diff", text.data ? text.data : "", text.len);
}

static void looked(void *arg, const char *now, bool cut, const struct err *failed) {
    struct telling *t = arg;
    struct buf text DEFER(buf_done) = BUF(8 * TEXT_MAX), before DEFER(buf_done) = BUF(TEXT_MAX);
    struct buf hunks DEFER(buf_done) = BUF(4 * TEXT_MAX);
    struct jot j = JOT(&text);
    struct textdiff_count count;
    char name[DATABASE_NAME_SIZE];
    postgres_name(t->row.id, name);
    read_kept(t->live->service, t->row.id, &before);
    grant_put_head(&j, &t->row);
    jot_string(&j, "database", name);
    if (failed) {
        jot_string(&j, "error", failed->text); /* the server is unreachable: show the rest */
    } else if (textdiff(&hunks, before.data ? before.data : "", before.len, now, strlen(now), 0,
                        &count)) {
        put_lines(&j, hunks.data ? hunks.data : "", hunks.len);
        jot_bool(&j, "cut", cut);
    }
    jot_end(&j, '}');
    t->done(t->arg, text.data, NULL);
    live_unref(t->live);
    grant_row_done(&t->row);
    free(t);
}

void postgres_tell(struct live *l, const struct grant_row *row, service_net_fn *done, void *arg) {
    struct telling *t = xnew(struct telling);
    *t = (struct telling){.live = l, .done = done, .arg = arg};
    grant_row_copy(row, &t->row);
    live_ref(l);
    postgres_look(l, t->row.id, looked, t);
}
