#include "service/grants/databases_inner.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/log.h"
#include "gate/secrets.h"
#include "grant/dsn.h"
#include "io/child.h"
#include "service/grants/grants.h"
#include "store/secrets.h"

enum { JOBS_MAX = 4, LIMIT_MS = 110000, LOOK_MS = 500, OUT_MAX = 16384, SAID_MAX = 1024 };
/* Exit statuses of carrel-postgres after which the server is unchanged. */
enum { UNREACHED = 2, UNWELCOME = 3 };

/*
 * How often dropping a database is retried. An unreachable server gets about a day to come back; a
 * refusal lasts until the owner changes something.
 */
enum { TRIES_AWAY = 2900, TRIES_REFUSED = 4 };

/* A database that is being created or dropped, or waits for that. */
struct job {
    struct job *next;
    struct databases *all;
    struct store *store;
    struct database_row row;
    bool makes, running;
    char password[128];
    int64_t expires_ms;
    struct child *child;
    databases_fn *done; /* called when the database was created; NULL: it is dropped */
    void *arg;
    bool failed;
    struct err err;
};

/* A database that could not be dropped. */
struct failure {
    char id[ID_SIZE];
    unsigned tries;
    bool given_up; /* no further tries until the daemon restarts or a secret gets a new value */
    uint64_t again_ms;
};

struct databases {
    struct service *service;
    struct job *jobs;
    unsigned running;
    struct map failures;
    uint64_t look_ms;
};

struct databases *databases_new(struct service *s) {
    struct databases *d = xnew(struct databases);
    d->service = s;
    return d;
}

static void job_free(struct job *j) {
    database_row_done(&j->row);
    explicit_bzero(j->password, sizeof(j->password));
    free(j);
}

/* The rows of unfinished databases stay in the store, and the next daemon drops the databases. */
void databases_free(struct databases *d) {
    struct failure *f;
    if (!d)
        return;
    for (struct job *j = d->jobs, *next; j; j = next) {
        next = j->next;
        child_drop(j->child);
        if (j->running && !j->child)
            j->all = NULL; /* databases_flushed() frees the job when its worker is done */
        else
            job_free(j);
    }
    for (size_t at = 0; (f = map_next(&d->failures, &at));)
        free(f);
    map_done(&d->failures);
    free(d);
}

/* ---- stored server URLs ---- */

static void secret_of(const char *id, char ret[STORE_NAME_SIZE]) {
    snprintf(ret, STORE_NAME_SIZE, DATABASE_SECRET "%s", id);
}

int databases_note(struct service *s, const struct database_row *row, const char *dsn,
                   struct err *err) {
    struct secret *value DEFER(secret_freep) = secret_new(dsn, strlen(dsn));
    char name[STORE_NAME_SIZE];
    secret_of(row->id, name);
    if (!value)
        return err_set(err, ERR_INVALID, "the URL of the database server is empty or too long");
    return store_secret_put(s->store, row->owner, name, value, row->created_ms, err) < 0
               ? -1
               : store_database_put(s->store, row, err);
}

static int reveal(struct service *s, const char *owner, const char *name, struct buf *ret,
                  struct err *err) {
    struct secret *value DEFER(secret_freep) = NULL;
    if (store_secret_get(s->store, owner, name, &value, err) < 0)
        return -1;
    return secret_reveal(value, ret)
               ? 0
               : err_set(err, ERR_INTERNAL, "the URL of the database server cannot be decrypted");
}

int databases_dsn(struct service *s, const char *owner, const char *id, struct buf *ret,
                  struct err *err) {
    char name[STORE_NAME_SIZE];
    secret_of(id, name);
    return reveal(s, owner, name, ret, err);
}

/* Finds the server URL: the stored text, or the present value of the secret that it names. */
static int find_dsn(struct service *s, const char *owner, const char *id, struct dsn *ret,
                    struct err *err) {
    struct buf text DEFER(secret_wipe) = BUF(SECRET_MAX + 1);
    struct buf named DEFER(secret_wipe) = BUF(SECRET_MAX + 1);
    if (databases_dsn(s, owner, id, &text, err) < 0)
        return -1;
    if (!secret_name_ok(text.data))
        return dsn_read(text.data, ret, err);
    return reveal(s, owner, text.data, &named, err) < 0 ? -1 : dsn_read(named.data, ret, err);
}

static void databases_journal(struct service *s, const struct database_row *row, const char *verb,
                              const char *why) {
    struct buf text DEFER(buf_done) = BUF(JOURNAL_DETAIL_MAX);
    struct jot j = JOT(&text);
    struct err err;
    jot_object(&j, NULL);
    jot_string(&j, "grant", row->id);
    jot_string(&j, "server", row->server);
    jot_string(&j, "database", row->name);
    if (why)
        jot_string(&j, "why", why);
    jot_end(&j, '}');
    const struct journal_record r = {.kind = JOURNAL_NOTE,
                                     .owner = row->owner,
                                     .verb = verb,
                                     .machine = row->machine,
                                     .reason = why,
                                     .detail = j.failed ? NULL : text.data};
    if (store_log(s->store, &r, NULL, &err) < 0)
        log_line(LOG_ERROR, "service", "write the journal: %s", err.text);
    event_tell(s, row->owner, row->machine, verb, r.detail);
}

/* ---- creating or dropping one database ---- */

static void start_jobs(struct databases *d);

static void job_unlink(struct job *j) {
    struct job **at = &j->all->jobs;
    while (*at != j)
        at = &(*at)->next;
    *at = j->next;
    j->all->running -= j->running;
}

/* Deletes the row and the encrypted URL of a database that was dropped or never created. */
static int databases_remove_row(struct service *s, const struct database_row *row,
                                struct err *err) {
    char name[STORE_NAME_SIZE];
    secret_of(row->id, name);
    if (store_begin(s->store, err) < 0)
        return -1;
    if (store_database_remove(s->store, row->id, err) == 0 &&
        (store_secret_remove(s->store, row->owner, name, err) == 0 || err->code == ERR_NOT_FOUND) &&
        store_commit(s->store, err) == 0)
        return 0;
    store_rollback(s->store);
    return -1;
}

static struct failure *failure_of(struct databases *d, const char *id) {
    struct failure *f = map_get(&d->failures, id);
    if (f)
        return f;
    f = xcalloc(1, sizeof(*f));
    memcpy(f->id, id, sizeof(f->id));
    map_put(&d->failures, f->id, f);
    return f;
}

static void databases_give_up(struct databases *d, const struct database_row *row,
                              struct failure *f, const char *why) {
    f->given_up = true;
    log_line(LOG_WARN, "service", "drop database '%s' on server %s: gave up after %u tries: %s",
             row->name, row->server, f->tries, why);
    databases_journal(d->service, row, "database.give_up", why);
}

/* Schedules another try to drop the database, up to a limit. Records the reason if it is new. */
static void put_off(struct databases *d, struct database_row *row, const struct err *why) {
    bool away = why->code == ERR_UNKNOWN || why->code == ERR_TIMEOUT;
    struct failure *f = failure_of(d, row->id);
    struct err err;
    f->again_ms = loop_now_ms(d->service->loop) + back_off_ms(f->tries++);
    if (f->tries >= (away ? TRIES_AWAY : TRIES_REFUSED))
        databases_give_up(d, row, f, why->text);
    if (row->why && strcmp(row->why, why->text) == 0)
        return;
    free(row->why);
    row->why = xstrdup(why->text);
    if (store_database_put(d->service->store, row, &err) < 0)
        log_line(LOG_ERROR, "service", "save why a database was not dropped: %s", err.text);
    log_line(LOG_WARN, "service", "drop database '%s' on server %s: %s", row->name, row->server,
             why->text);
    databases_journal(d->service, row, "database.stays", why->text);
}

static void dropped(struct databases *d, struct database_row *row, const struct err *failed) {
    struct err err;
    if (!failed && databases_remove_row(d->service, row, &err) < 0)
        failed = &err;
    if (failed) {
        put_off(d, row, failed);
        return;
    }
    free(map_take(&d->failures, row->id));
    databases_journal(d->service, row, "database.drop", NULL);
}

static void job_end(struct job *j, const char *said, const struct err *err) {
    struct databases *d = j->all;
    job_unlink(j);
    if (!j->makes)
        dropped(d, &j->row, err);
    else if (!err)
        databases_journal(d->service, &j->row, "database.make", NULL);
    if (j->done)
        j->done(j->arg, said, err);
    job_free(j);
    start_jobs(d);
}

static void child_ended(void *arg, const struct child_end *end) {
    struct job *j = arg;
    struct err err;
    char why[300];
    j->child = NULL;
    if (end->status == 0) {
        job_end(j, end->out, NULL);
        return;
    }
    snprintf(why, sizeof(why), "%.*s", (int)strcspn(end->said, "\n"), end->said);
    bool unchanged = end->status == UNREACHED || end->status == UNWELCOME;
    if (unchanged && j->makes && databases_remove_row(j->all->service, &j->row, &err) < 0)
        log_line(LOG_ERROR, "service", "delete the row of a database that was not created: %s",
                 err.text); /* databases_look() will try to drop the database */
    if (end->late || end->status < 0)
        err_set(&err, ERR_TIMEOUT, "database server %s did not answer in time", j->row.server);
    else
        err_set(&err, end->status == UNREACHED || j->makes ? ERR_UNKNOWN : ERR_DENIED,
                "database server %s: %s", j->row.server,
                why[0] ? why : "carrel-postgres ended without a result");
    job_end(j, NULL, &err);
}

static bool put_word(struct buf *to, const char *word) {
    return buf_add(to, word, strlen(word) + 1);
}

static int start_child(struct job *j, const struct dsn *dsn, struct err *err) {
    struct service *s = j->all->service;
    struct buf in DEFER(secret_wipe) = BUF(8192);
    char path[PLACE_SIZE + 32], until[24];
    const char *const argv[] = {"carrel-postgres", j->makes ? "make" : "drop", NULL};
    snprintf(path, sizeof(path), "%s/carrel-postgres", s->place->libexec);
    snprintf(until, sizeof(until), "%" PRId64, j->expires_ms / 1000);
    const char *const words[] = {dsn->host,   dsn->port,    dsn->user,        dsn->password,
                                 dsn->dbname, dsn->sslmode, s->conf->gate_ca, j->row.name,
                                 j->password, until};
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (!put_word(&in, words[i]))
            return err_set(err, ERR_LIMIT, "the URL of the database server is too long");
    const struct child_order order = {.path = path,
                                      .argv = argv,
                                      .input = in.data,
                                      .input_bytes = in.len,
                                      .out_max = OUT_MAX,
                                      .said_max = SAID_MAX,
                                      .limit_ms = LIMIT_MS};
    j->child = child_start(s->loop, &order, child_ended, j, err);
    return j->child ? 0 : -1;
}

static void run_job(struct job *j) {
    struct dsn dsn = {.host = ""};
    struct err err;
    int r = find_dsn(j->all->service, j->row.owner, j->row.id, &dsn, &err);
    if (r == 0)
        r = start_child(j, &dsn, &err);
    dsn_wipe(&dsn);
    if (r < 0)
        job_end(j, NULL, &err);
}

/*
 * Flushes the row to disk before the server is asked. Otherwise a crash could leave a database on
 * the server that no row names.
 */
static void databases_flush(void *arg) {
    struct job *j = arg;
    j->failed = store_flush(j->store, &j->err) < 0;
}

static void databases_flushed(void *arg) {
    struct job *j = arg;
    if (!j->all)
        job_free(j);
    else if (j->failed)
        job_end(j, NULL, &j->err);
    else
        run_job(j);
}

/* Starts waiting jobs in order, so that at most JOBS_MAX run at a time. */
static void start_jobs(struct databases *d) {
    for (struct job *j = d->jobs; j && d->running < JOBS_MAX; j = j->next) {
        if (j->running)
            continue;
        j->running = true;
        d->running++;
        loop_work(d->service->loop, databases_flush, databases_flushed, j);
    }
}

static void job_add(struct databases *d, struct job *j) {
    struct job **at = &d->jobs;
    while (*at)
        at = &(*at)->next;
    *at = j;
    j->all = d;
    j->store = d->service->store;
    start_jobs(d);
}

static struct job *job_new(void) {
    struct job *j = xnew(struct job);
    return j;
}

/* ---- requests ---- */

void databases_make(struct service *s, const struct database_order *o, databases_fn *done,
                    void *arg) {
    struct database_list list DEFER(database_list_done) = {0};
    struct err err;
    if (store_database_list(s->store, &list, &err) < 0) {
        done(arg, NULL, &err);
        return;
    }
    for (size_t i = 0; i < list.count; i++) {
        if (strcmp(list.rows[i].id, o->id) != 0)
            continue;
        struct job *j = job_new();
        j->row = list.rows[i];
        list.rows[i] = (struct database_row){.id = ""};
        j->makes = true;
        j->expires_ms = o->expires_ms;
        j->done = done;
        j->arg = arg;
        snprintf(j->password, sizeof(j->password), "%s", o->password);
        job_add(s->grants->databases, j);
        return;
    }
    err_set(&err, ERR_GONE, "the database of grant '%s' no longer exists", o->id);
    done(arg, NULL, &err);
}

static bool is_working_on(const struct databases *d, const char *id) {
    for (const struct job *j = d->jobs; j; j = j->next)
        if (strcmp(j->row.id, id) == 0)
            return true;
    return false;
}

static bool is_busy(const struct databases *d, const char *id, uint64_t now_ms) {
    const struct failure *f = map_get(&d->failures, id);
    if (is_working_on(d, id))
        return true;
    return f && (f->given_up || now_ms < f->again_ms);
}

void databases_look(struct service *s, uint64_t now_ms) {
    struct databases *d = s->grants->databases;
    struct database_list list DEFER(database_list_done) = {0};
    struct err err;
    if (now_ms < d->look_ms)
        return;
    d->look_ms = now_ms + LOOK_MS;
    if (store_database_orphans(s->store, &list, &err) < 0) {
        log_line(LOG_ERROR, "service", "list databases to drop: %s", err.text);
        return;
    }
    for (size_t i = 0; i < list.count; i++) {
        if (is_busy(d, list.rows[i].id, now_ms))
            continue;
        struct job *j = job_new();
        j->row = list.rows[i];
        list.rows[i] = (struct database_row){.id = ""};
        job_add(d, j);
    }
}

/* ---- databases that could not be dropped ---- */

static void put_left(const struct databases *d, const struct database_row *row, struct jot *j) {
    const struct failure *f = map_get(&d->failures, row->id);
    char what[DATABASE_NAME_SIZE + DSN_HOST_SIZE + 16];
    snprintf(what, sizeof(what), "%s on %s", row->name, row->server);
    jot_object(j, NULL);
    jot_string(j, "id", row->id);
    jot_string(j, "kind", "postgres");
    jot_string(j, "what", what);
    jot_string(j, "mode", f && f->given_up ? "given-up" : "dropping");
    jot_i64(j, "created_ms", row->created_ms);
    jot_object(j, "detail");
    jot_string(j, "database", row->name);
    jot_string(j, "why", row->why ? row->why : "");
    jot_end(j, '}');
    jot_end(j, '}');
}

size_t databases_put_left(struct service *s, const char *machine, struct jot *j) {
    struct database_list list DEFER(database_list_done) = {0};
    struct err err;
    size_t count = 0;
    if (store_database_orphans(s->store, &list, &err) < 0)
        log_line(LOG_ERROR, "service", "list databases to drop: %s", err.text);
    for (size_t i = 0; i < list.count; i++)
        if (strcmp(list.rows[i].machine, machine) == 0 && list.rows[i].why && list.rows[i].why[0]) {
            put_left(s->grants->databases, &list.rows[i], j);
            count++;
        }
    return count;
}

static const struct database_row *find_left(const struct database_list *list, const char *machine,
                                            const char *id) {
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->rows[i].id, id) == 0 && strcmp(list->rows[i].machine, machine) == 0)
            return &list->rows[i];
    return NULL;
}

int databases_forget(struct service *s, const struct caller *who, const char *machine,
                     const char *id, struct err *err) {
    struct database_list list DEFER(database_list_done) = {0};
    char detail[128];
    uint64_t intent;
    if (store_database_orphans(s->store, &list, err) < 0)
        return -1;
    const struct database_row *row = find_left(&list, machine, id);
    if (!row)
        return err_set(err, ERR_NOT_FOUND, "machine '%s' has no leftover database '%.20s'", machine,
                       id);
    if (!row->why || !row->why[0] || is_working_on(s->grants->databases, id))
        return err_set(err, ERR_BUSY, "database '%s' is being dropped", row->name);
    snprintf(detail, sizeof(detail), "{\"grant\":\"%s\",\"database\":\"%s\"}", row->id, row->name);
    const struct journal_record what = {
        .verb = "database.forget", .machine = machine, .detail = detail};
    if (note_intent(s, who, &what, &intent, err) < 0)
        return -1;
    int r = databases_remove_row(s, row, err);
    note_result(s, who, &what, intent, r < 0 ? err : NULL);
    if (r == 0)
        free(map_take(&s->grants->databases->failures, id));
    return r;
}

void databases_again(struct service *s) {
    struct failure *f;
    for (size_t at = 0; (f = map_next(&s->grants->databases->failures, &at));) {
        f->tries = 0;
        f->again_ms = 0;
        f->given_up = false;
    }
}

void service_database_counts(struct service *s, struct database_counts *ret) {
    struct database_list all DEFER(database_list_done) = {0};
    struct database_list over DEFER(database_list_done) = {0};
    struct err err;
    if (store_database_list(s->store, &all, &err) < 0 ||
        store_database_orphans(s->store, &over, &err) < 0)
        log_line(LOG_ERROR, "service", "count databases: %s", err.text);
    *ret = (struct database_counts){all.count - over.count, over.count};
}
