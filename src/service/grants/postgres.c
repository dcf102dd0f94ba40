/*
 * A PostgreSQL database per machine on a server of the owner. It is a copy of a template database
 * and belongs to a role that can use nothing else. The machine reaches it through the gate under
 * its own host name, and it is dropped with the grant (databases_inner.h). The machine has the
 * password of the role in its environment, but never the owner's URL.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/hex.h"
#include "base/log.h"
#include "base/secret.h"
#include "gate/secrets.h"
#include "grant/dsn.h"
#include "service/grants/databases_inner.h"
#include "service/grants/inner.h"
#include "service/net/live.h"
#include "store/secrets.h"

enum { PASSWORD_BYTES = 24, URL_SIZE = 512, SERVER_SIZE = DSN_HOST_SIZE + 8 };

static const char *const variables[] = {"PGHOST",     "PGPORT",    "PGUSER",      "PGPASSWORD",
                                        "PGDATABASE", "PGSSLMODE", "DATABASE_URL"};
enum { VARIABLES = sizeof(variables) / sizeof(*variables) };

void postgres_name(const char *id, char ret[DATABASE_NAME_SIZE]) {
    snprintf(ret, DATABASE_NAME_SIZE, "carrel_%s", id + 2);
}

static void host_of(const char *id, char ret[NAME_SIZE]) {
    snprintf(ret, NAME_SIZE, "%s." PG_HOSTS_BELOW, id);
}

/* ---- reading the request ---- */

/* Reads a URL, or the secret that is named instead of one. */
static int read_dsn(struct service *s, const char *owner, const char *text, struct dsn *ret,
                    struct err *err) {
    struct secret *value DEFER(secret_freep) = NULL;
    struct buf plain DEFER(secret_wipe) = BUF(SECRET_MAX + 1);
    if (!secret_name_ok(text))
        return dsn_read(text, ret, err);
    if (store_secret_get(s->store, owner, text, &value, err) < 0)
        return err->code == ERR_NOT_FOUND
                   ? err_remedy(err, "store the server URL: carrel secret set %s <FILE", text)
                   : -1;
    return secret_reveal(value, &plain)
               ? dsn_read(plain.data, ret, err)
               : err_set(err, ERR_INTERNAL, "the URL of the database server cannot be decrypted");
}

static void fill_row(const struct dsn *d, const char *text, struct grant_row *row) {
    char what[DSN_NAME_SIZE + SERVER_SIZE + 8], host[NAME_SIZE];
    snprintf(what, sizeof(what), "%s on %s:%s", d->dbname, d->host, d->port);
    host_of(row->id, host);
    row->what = xstrdup(what);
    row->place = xstrdup(host);
    row->detail = xstrdup(text); /* only until postgres_settle() stores it encrypted */
    snprintf(row->mode, sizeof(row->mode), "own");
}

static int postgres_read(struct service *s, const char *owner, const struct grant_request *r,
                         struct grant_row *row, struct err *err) {
    struct dsn dsn;
    const char *text = r->value ? r->value : r->what;
    if (read_dsn(s, owner, text, &dsn, err) < 0)
        return -1;
    fill_row(&dsn, text, row);
    dsn_wipe(&dsn);
    return 0;
}

/* ---- password and variables of the machine ---- */

static int make_password(char ret[2 * PASSWORD_BYTES + 1], struct err *err) {
    uint8_t bytes[PASSWORD_BYTES];
    if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
        return err_sys(err, "cannot generate a password for the database role");
    hex_put(bytes, PASSWORD_BYTES, ret);
    return 0;
}

static int postgres_set_variables(struct live *l, const struct grant_row *row, const struct dsn *d,
                                  const char *password, struct err *err) {
    char name[DATABASE_NAME_SIZE], url[URL_SIZE];
    postgres_name(row->id, name);
    snprintf(url, sizeof(url), "postgres://%s:%s@%s:%s/%s?sslmode=disable", name, password,
             row->place, d->port, name);
    /* The gate does TLS with the server (gate/pg.h); the machine talks to the gate on this host. */
    const char *const values[VARIABLES] = {row->place, d->port,   name, password,
                                           name,       "disable", url};
    struct env_change changes[VARIABLES];
    for (size_t i = 0; i < VARIABLES; i++)
        changes[i] = (struct env_change){variables[i], values[i]};
    return live_set_env(l, changes, VARIABLES, err);
}

static int only_one(struct live *l, const struct grant_row *row, struct err *err) {
    struct grant_list list DEFER(grant_list_done) = {0};
    if (store_grant_list(l->service->store, l->row.id, "postgres", &list, err) < 0)
        return -1;
    for (size_t i = 0; i < list.count; i++) {
        if (strcmp(list.rows[i].id, row->id) == 0)
            continue;
        err_set(err, ERR_EXISTS, "the machine already has a database: %s", list.rows[i].what);
        return err_remedy(err, "revoke that grant first: carrel grant revoke %s %s", l->row.id,
                          list.rows[i].id);
    }
    return 0;
}

static int write_down(struct live *l, const struct grant_row *row, const struct dsn *d,
                      const char *text, struct err *err) {
    char server[SERVER_SIZE];
    struct database_row db = {.server = server, .created_ms = wall_ms(), .why = (char *)""};
    snprintf(server, sizeof(server), "%s:%s", d->host, d->port);
    snprintf(db.id, sizeof(db.id), "%s", row->id);
    snprintf(db.owner, sizeof(db.owner), "%s", l->row.owner);
    snprintf(db.machine, sizeof(db.machine), "%s", l->row.id);
    postgres_name(row->id, db.name);
    return databases_note(l->service, &db, text, err);
}

static int postgres_settle(struct live *l, struct grant_row *row, struct err *err) {
    char *text DEFER_FREE = TAKE(row->detail);
    char password[2 * PASSWORD_BYTES + 1], name[DATABASE_NAME_SIZE];
    struct dsn dsn = {.host = ""};
    int r = read_dsn(l->service, l->row.owner, text, &dsn, err);
    if (r == 0 && (only_one(l, row, err) < 0 || make_password(password, err) < 0 ||
                   write_down(l, row, &dsn, text, err) < 0 ||
                   postgres_set_variables(l, row, &dsn, password, err) < 0))
        r = -1;
    postgres_name(row->id, name);
    if (r == 0)
        row->detail =
            xformat("{\"database\":\"%s\",\"port\":%s,\"server\":\"%s\",\"sslmode\":\"%s\"}", name,
                    dsn.port, dsn.host, dsn.sslmode);
    explicit_bzero(text, strlen(text));
    explicit_bzero(password, sizeof(password));
    dsn_wipe(&dsn);
    return r;
}

/* ---- network access to the database ---- */

static const char *postgres_text_of(const json_t *detail, const char *name) {
    const char *text = json_string_value(json_object_get(detail, name));
    return text ? text : "";
}

/* Tells the gate the database that each session must name in its first packet. */
static void set_database(struct live *l, const char *host, const json_t *detail) {
    struct pg_database d = {.tls = pg_tls_read(postgres_text_of(detail, "sslmode"))};
    snprintf(d.host, sizeof(d.host), "%s", host);
    snprintf(d.server, sizeof(d.server), "%s", postgres_text_of(detail, "server"));
    snprintf(d.name, sizeof(d.name), "%s", postgres_text_of(detail, "database"));
    gate_set_database(l->gate, &d);
}

static uint16_t port_of(const json_t *detail) {
    return (uint16_t)json_integer_value(json_object_get(detail, "port"));
}

/* Adds a network rule that allows only this server, even if it is in the owner's local network. */
static int add_rule(struct live *l, const char *host, uint16_t port, struct err *err) {
    struct policy_rule rule = {.action = POLICY_ALLOW, .local = true, .preset = "postgres"};
    char target[NAME_SIZE + 16];
    snprintf(target, sizeof(target), "tcp://%s:%u", host, port);
    if (policy_target_read(target, &rule, err) < 0)
        return -1;
    return policy_add(gate_policy(l->gate), &rule, err);
}

static void remove_rules(struct live *l) {
    struct policy *p = gate_policy(l->gate);
    for (size_t i = p->count; i-- > 0;)
        if (p->rules[i].host_kind == HOST_EXACT && name_is_below(p->rules[i].host, PG_HOSTS_BELOW))
            policy_remove(p, p->rules[i].id, NULL);
}

/* Returns `detail` with the lines `said`: the server address, then other databases of the role. */
static json_t *read_answer(const char *said, const char *detail) {
    json_t *json = json_loads(detail, 0, NULL), *others = json_array();
    const char *line = said;
    for (size_t at = 0; *line; at++) {
        size_t n = strcspn(line, "\n");
        json_t *word = json_stringn(line, n);
        if (at == 0)
            json_object_set_new(json, "address", word);
        else
            json_array_append_new(others, word);
        line += n + (line[n] == '\n');
    }
    if (json_array_size(others))
        json_object_set(json, "others", others);
    json_decref(others);
    return json;
}

static const char *address_of(const json_t *detail) {
    return json_string_value(json_object_get(detail, "address"));
}

/* Saves rule and server address in one transaction, so that a restart finds both or none. */
static int keep_way(struct live *l, const struct grant_row *row, struct err *err) {
    struct store *store = l->service->store;
    if (store_begin(store, err) < 0)
        return -1;
    if (net_keep(l, err) == 0 && store_grant_put(store, row, err) == 0 &&
        store_commit(store, err) == 0)
        return 0;
    store_rollback(store);
    return -1;
}

static int open_way(struct live *l, const char *id, const char *said, struct err *err) {
    struct grant_row row DEFER(grant_row_done) = {0};
    if (store_grant_get(l->service->store, l->row.id, id, &row, err) < 0)
        return -1;
    json_t *json = read_answer(said, row.detail);
    const char *address = address_of(json);
    free(row.detail);
    row.detail = json ? json_dumps(json, JSON_COMPACT) : NULL;
    int r = -1;
    if (!address || !row.detail)
        err_set(err, ERR_INTERNAL, "carrel-postgres did not print the address of the server");
    else if (gate_set_name(net_gate(l->service), row.place, address, err) == 0 &&
             add_rule(l, row.place, port_of(json), err) == 0 && keep_way(l, &row, err) == 0)
        r = 0;
    if (r == 0)
        set_database(l, row.place, json);
    json_decref(json);
    gate_changed(l->gate);
    return r;
}

void postgres_restore(struct live *l) {
    struct grant_list list DEFER(grant_list_done) = {0};
    struct err err;
    if (store_grant_list(l->service->store, l->row.id, "postgres", &list, &err) < 0)
        log_line(LOG_ERROR, "service", "list the databases of a machine: %s id=%s", err.text,
                 l->row.id);
    for (size_t i = 0; i < list.count; i++) {
        json_t *json = json_loads(list.rows[i].detail, 0, NULL);
        const char *address = address_of(json);
        l->grants->half |= !address;
        if (address && gate_set_name(net_gate(l->service), list.rows[i].place, address, &err) < 0)
            log_line(LOG_ERROR, "service", "set the host name of a database: %s id=%s", err.text,
                     l->row.id);
        set_database(l, list.rows[i].place, json);
        json_decref(json);
    }
}

static bool postgres_is_half(const struct grant_row *row) {
    json_t *json = json_loads(row->detail, 0, NULL);
    bool half = !address_of(json);
    json_decref(json);
    return half;
}

/* Closes the machine's connections to the database. Stored data is deleted later, with the row. */
static void close_way(struct live *l) {
    gate_set_database(l->gate, NULL);
    remove_rules(l);
    gate_changed(l->gate);
}

static int postgres_unsettle(struct live *l, const struct grant_row *row, struct err *err) {
    struct env_change changes[VARIABLES];
    (void)row;
    for (size_t i = 0; i < VARIABLES; i++)
        changes[i] = (struct env_change){variables[i], NULL};
    return net_keep(l, err) < 0 ? -1 : live_set_env(l, changes, VARIABLES, err);
}

/* ---- granting and revoking ---- */

struct giving {
    struct live *live;
    char id[ID_SIZE];
    service_done_fn *done;
    void *arg;
};

static void giving_end(struct giving *g, const struct err *err) {
    g->done(g->arg, err);
    live_unref(g->live);
    free(g);
}

static void postgres_told(void *arg, const struct err *err) {
    (void)err;
    giving_end(arg, NULL);
}

static void postgres_kept(void *arg) {
    struct giving *g = arg;
    net_tell(g->live, postgres_told, g);
}

/* Saves the content of the new database as the base of later diffs, if it could be read. */
static void looked(void *arg, const char *text, bool cut, const struct err *err) {
    struct giving *g = arg;
    (void)cut;
    if (err)
        log_line(LOG_WARN, "service", "inspect a new database: %s id=%s", err->text,
                 g->live->row.id);
    if (err)
        postgres_kept(g);
    else
        postgres_keep(g->live, g->id, text, postgres_kept, g);
}

static void made(void *arg, const char *said, const struct err *failed) {
    struct giving *g = arg;
    struct live *l = g->live;
    struct err err;
    if (failed) {
        err = *failed;
        err_wrap(&err, "cannot create a database");
        failed = &err;
    } else if (open_way(l, g->id, said, &err) < 0) {
        failed = &err;
    }
    if (!failed) {
        postgres_look(l, g->id, looked, g);
        return;
    }
    close_way(l);
    giving_end(g, failed);
}

const char *postgres_password(const struct live *l) {
    for (size_t i = 0; i + 1 < l->env.count; i += 2)
        if (strcmp(l->env.v[i], "PGPASSWORD") == 0)
            return l->env.v[i + 1];
    return "";
}

static void postgres_give(struct live *l, const struct grant_row *row, int fd,
                          service_done_fn *done, void *arg) {
    struct giving *g = xnew(struct giving);
    const struct database_order order = {
        .id = row->id, .password = postgres_password(l), .expires_ms = row->expires_ms};
    (void)fd;
    *g = (struct giving){.live = l, .done = done, .arg = arg};
    snprintf(g->id, sizeof(g->id), "%s", row->id);
    live_ref(l);
    databases_make(l->service, &order, made, g);
}

/* Closes the connections now. databases_look() drops the database once the grant is deleted. */
static void postgres_take(struct live *l, const struct grant_row *row, service_done_fn *done,
                          void *arg) {
    close_way(l);
    gate_unset_name(net_gate(l->service), row->place);
    done(arg, NULL);
}

int postgres_dsn(struct live *l, const char *id, struct dsn *ret, struct err *err) {
    struct buf text DEFER(secret_wipe) = BUF(SECRET_MAX + 1);
    return databases_dsn(l->service, l->row.owner, id, &text, err) < 0
               ? -1
               : read_dsn(l->service, l->row.owner, text.data, ret, err);
}

/* A fork gets its own copy of the same template, and no access to the database of its source. */
static int postgres_renew(struct live *l, const struct grant_row *of, struct grant_row *row,
                          struct err *err) {
    struct buf text DEFER(secret_wipe) = BUF(SECRET_MAX + 1);
    struct dsn dsn;
    if (databases_dsn(l->service, l->row.owner, of->id, &text, err) < 0 ||
        read_dsn(l->service, l->row.owner, text.data, &dsn, err) < 0)
        return -1;
    fill_row(&dsn, text.data, row);
    dsn_wipe(&dsn);
    close_way(l);
    return postgres_unsettle(l, of, err);
}

const struct grant_kind grant_postgres = {.name = "postgres",
                                          .delivered = true,
                                          .read = postgres_read,
                                          .settle = postgres_settle,
                                          .give = postgres_give,
                                          .take = postgres_take,
                                          .unsettle = postgres_unsettle,
                                          .is_half = postgres_is_half,
                                          .renew = postgres_renew};
