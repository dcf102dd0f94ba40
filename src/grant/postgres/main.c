/*
 * carrel-postgres: creates and drops throw-away databases on an owner's server.
 *
 *   make   creates a role, and a database of the same name as a copy of a template; prints the
 *          address of the server, then one line per other database that the role may connect to
 *   drop   drops database and role, even with open connections; succeeds if they do not exist
 *   look   prints a line per object in the database; connects as the role of the database, whose
 *          name and password are given instead of the owner's
 *
 * The standard input has these words, each ended by a NUL: host, port, user, password, template,
 * sslmode, a file with more certificates than the system's (or an empty word), the name of database
 * and role; for make also the password of the role and its expiry in seconds since 1970 (0: never).
 * An error is a line on standard error. Exit status 2: the server was not reached; 3: the server
 * refused the password; in both cases the server is unchanged.
 *
 * The server may be slow or hostile, so this is a separate process with few rights and a time
 * limit. A lock on the server serializes make and drop of one name, because the server may still be
 * working for an earlier process that was killed.
 */
#include <grp.h>
#include <libpq-fe.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/native.h"

enum { INPUT_MAX = 8192, NOBODY = 65534, LIFE_S = 100, SQL_SIZE = 4096, ROLE_SESSIONS = 20 };

enum { UNREACHED = 2, UNWELCOME = 3 }; /* exit statuses */

enum { HOST, PORT, USER, PASSWORD, TEMPLATE, SSLMODE, MORE_CA, NAME, ROLE_PASSWORD, UNTIL, WORDS };

static int complain(const char *what, const char *why) {
    size_t n = strcspn(why, "\n");
    fprintf(stderr, "%s%s%.*s\n", what, *why ? ": " : "", (int)(n > 400 ? 400 : n), why);
    return 1;
}

/* Drops all rights: the process runs as nobody, and is killed when its parent ends. */
static bool confine(void) {
    const struct rlimit none = {0, 0}, memory = {1ul << 30, 1ul << 30};
    bool ok =
        geteuid() != 0 || (setgroups(0, NULL) == 0 && setresgid(NOBODY, NOBODY, NOBODY) == 0 &&
                           setresuid(NOBODY, NOBODY, NOBODY) == 0);
    alarm(LIFE_S);
    return ok && prctl(PR_SET_PDEATHSIG, 9) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_DUMPABLE, 0) == 0 && setrlimit(RLIMIT_FSIZE, &none) == 0 &&
           setrlimit(RLIMIT_CORE, &none) == 0 &&
           (INSTRUMENTED || setrlimit(RLIMIT_AS, &memory) == 0);
}

static bool main_read_words(char bytes[INPUT_MAX], const char *ret[WORDS]) {
    size_t n = fread(bytes, 1, INPUT_MAX - 1, stdin), at = 0;
    for (size_t i = 0; i < WORDS; i++) {
        ret[i] = at < n ? bytes + at : "";
        at += strnlen(bytes + at, n - (at < n ? at : n)) + 1;
    }
    bytes[n] = '\0';
    /* The name becomes part of SQL text. postgres_name() makes it from these letters only. */
    return ret[NAME][0] && !ret[NAME][strspn(ret[NAME], "abcdefghijklmnopqrstuvwxyz234567_")];
}

/* ---- talking to the server ---- */

static void result_free(PGresult **r) {
    PQclear(*r);
}

static void connection_free(PGconn **c) {
    PQfinish(*c);
}

/*
 * Other users of the database could define functions and operators that match better than those of
 * the system. With an empty search_path the server does not find them. The server also searches
 * temporary relations for a name, so our queries write each relation with its schema.
 */
#define OPTIONS "-c search_path= -c statement_timeout=60s -c client_min_messages=error"
/* Since version 17, event triggers may run at login. */
#define NO_TRIGGERS " -c event_triggers=off"

static PGconn *connect_by(const char *const w[WORDS], const char *database, const char *options,
                          const char *roots) {
    /* libpq fills an empty value from files and variables, so some name a file that is absent. */
    const char *const names[] = {"host",       "port",     "user",        "password",
                                 "dbname",     "sslmode",  "sslrootcert", "connect_timeout",
                                 "gssencmode", "passfile", "sslcert",     "application_name",
                                 "options",    NULL};
    const char *const values[] = {w[HOST],        w[PORT],  w[USER], w[PASSWORD], database,
                                  w[SSLMODE],     roots,    "10",    "disable",   "/nonexistent",
                                  "/nonexistent", "carrel", options, NULL};
    return PQconnectdbParams(names, values, 0);
}

/*
 * If the server must prove its identity (sslmode verify-...), tries the certificates of the system
 * first, then those of the daemon's configuration, like the gate.
 */
static PGconn *connect_with(const char *const w[WORDS], const char *database, const char *options) {
    static const char system[] = "/etc/ssl/certs/ca-certificates.crt";
    bool proves = strncmp(w[SSLMODE], "verify", 6) == 0;
    PGconn *c = connect_by(w, database, options, proves ? system : "/nonexistent");
    if (PQstatus(c) == CONNECTION_OK || !proves || !w[MORE_CA][0] ||
        !strstr(PQerrorMessage(c), "certificate"))
        return c;
    PQfinish(c);
    return connect_by(w, database, options, w[MORE_CA]);
}

static PGconn *connect_to(const char *const w[WORDS], const char *database) {
    return connect_with(w, database, OPTIONS);
}

/*
 * Connects to the database "postgres" if it exists, rather than to the template. Nobody may be
 * connected to the template while it is copied, and some templates refuse connections.
 */
static PGconn *connect_somewhere(const char *const w[WORDS]) {
    PGconn *c = connect_to(w, "postgres");
    if (PQstatus(c) == CONNECTION_OK || !strstr(PQerrorMessage(c), "does not exist"))
        return c;
    PQfinish(c);
    return connect_to(w, w[TEMPLATE]);
}

static int main_run(PGconn *c, const char *sql) {
    PGresult *r DEFER(result_free) = PQexec(c, sql);
    ExecStatusType status = PQresultStatus(r);
    return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK ? 0 : -1;
}

static int run_with(PGconn *c, const char *sql, const char *word) {
    PGresult *r DEFER(result_free) = PQexecParams(c, sql, 1, NULL, &word, NULL, NULL, 0);
    ExecStatusType status = PQresultStatus(r);
    return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK ? 0 : -1;
}

/* Locks the name until the server has finished the work of this connection. */
static int lock(PGconn *c, const char *name) {
    return run_with(c, "SELECT pg_catalog.pg_advisory_lock(pg_catalog.hashtextextended($1, 20))",
                    name);
}

/* ---- make ---- */

static void until_text(const char *seconds, char ret[64]) {
    time_t at = (time_t)strtoll(seconds, NULL, 10);
    struct tm tm;
    ret[0] = '\0';
    if (at > 0 && gmtime_r(&at, &tm))
        strftime(ret, 64, " VALID UNTIL '%Y-%m-%d %H:%M:%S+00'", &tm);
}

/* The server gets, and may log, only a hash of the password. */
static int make_role(PGconn *c, const char *const w[WORDS]) {
    char sql[SQL_SIZE], until[64];
    char *hidden = PQencryptPasswordConn(c, w[ROLE_PASSWORD], w[NAME], "scram-sha-256");
    char *quoted = hidden ? PQescapeLiteral(c, hidden, strlen(hidden)) : NULL;
    until_text(w[UNTIL], until);
    snprintf(sql, sizeof(sql),
             "CREATE ROLE %s LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS"
             " CONNECTION LIMIT %d PASSWORD %s%s",
             w[NAME], ROLE_SESSIONS, quoted ? quoted : "", until);
    int r = quoted ? main_run(c, sql) : -1;
    PQfreemem(hidden);
    PQfreemem(quoted);
    /* Without superuser rights, the owner can give a database only to a role it is a member of. */
    snprintf(sql, sizeof(sql), "GRANT %s TO CURRENT_USER", w[NAME]);
    return r < 0 ? -1 : main_run(c, sql);
}

static int make_database(PGconn *c, const char *const w[WORDS]) {
    char sql[SQL_SIZE];
    char *from = PQescapeIdentifier(c, w[TEMPLATE], strlen(w[TEMPLATE]));
    snprintf(sql, sizeof(sql), "CREATE DATABASE %s TEMPLATE %s OWNER %s CONNECTION LIMIT %d",
             w[NAME], from ? from : "", w[NAME], ROLE_SESSIONS);
    int r = from ? main_run(c, sql) : -1;
    PQfreemem(from);
    snprintf(sql, sizeof(sql), "REVOKE ALL ON DATABASE %s FROM PUBLIC", w[NAME]);
    return r < 0 ? -1 : main_run(c, sql);
}

#define OURS "n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'"

/* Both queries return statements to run in the copy. Objects of extensions are not changed. */
static const char triggers[] = "SELECT pg_catalog.format('ALTER EVENT TRIGGER %I DISABLE', evtname)"
                               " FROM pg_catalog.pg_event_trigger WHERE evtenabled <> 'D'";
static const char contents[] =
    "SELECT pg_catalog.format('ALTER %s OWNER TO %I', o.line, pg_catalog.current_database()) FROM ("
    "SELECT pg_catalog.format('SCHEMA %I', n.nspname) AS line FROM pg_catalog.pg_namespace n"
    " WHERE " OURS " UNION ALL"
    " SELECT pg_catalog.format('%s %s', CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END,"
    "  c.oid::pg_catalog.regclass) FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n"
    "  ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND " OURS
    "  AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d WHERE d.classid ="
    "  'pg_catalog.pg_class'::pg_catalog.regclass AND d.objid = c.oid AND d.deptype IN"
    "  ('e', 'a', 'i') AND (d.deptype = 'e' OR c.relkind = 'S'))"
    " UNION ALL"
    " SELECT pg_catalog.format('ROUTINE %s', p.oid::pg_catalog.regprocedure)"
    "  FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace"
    "  WHERE p.prokind <> 'a' AND " OURS " AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d"
    "  WHERE d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass AND d.objid = p.oid AND"
    "  d.deptype = 'e')) o";

/* Runs each statement that query `list` returns. may_refuse: skips those that the server denies. */
static int run_list(PGconn *c, const char *list, bool may_refuse) {
    PGresult *r DEFER(result_free) = PQexec(c, list);
    if (PQresultStatus(r) != PGRES_TUPLES_OK)
        return -1;
    for (int i = 0; i < PQntuples(r); i++) {
        PGresult *done DEFER(result_free) = PQexec(c, PQgetvalue(r, i, 0));
        const char *state = PQresultErrorField(done, PG_DIAG_SQLSTATE);
        bool refused = state && strcmp(state, "42501") == 0;
        if (PQresultStatus(done) != PGRES_COMMAND_OK && !(refused && may_refuse))
            return -1;
    }
    return 0;
}

/*
 * Returns the options for a connection to the copy. NULL: connecting would run code of the
 * template's author, and that cannot be prevented.
 */
static const char *options_for(PGconn *c, const char *name) {
    const char *super = PQparameterStatus(c, "is_superuser");
    if (PQserverVersion(c) < 170000)
        return OPTIONS;
    if (super && strcmp(super, "on") == 0)
        return OPTIONS NO_TRIGGERS;
    PGresult *r DEFER(result_free) = PQexecParams(
        c, "SELECT FROM pg_catalog.pg_database WHERE datname = $1 AND NOT dathasloginevt", 1, NULL,
        &name, NULL, NULL, 0);
    return PQresultStatus(r) == PGRES_TUPLES_OK && PQntuples(r) == 1 ? OPTIONS : NULL;
}

/*
 * In the copy, makes the new role the owner of schemas, relations and routines, as far as allowed.
 * Then the role can change them, and none of them runs with the rights of the server's user. Event
 * triggers would run with those rights now, so they are disabled first. (REASSIGN OWNED is not used
 * because it affects other databases, and a DO block is not used because plpgsql may be missing.)
 */
static int hand_contents(PGconn *from, const char *const w[WORDS]) {
    const char *options = options_for(from, w[NAME]);
    if (!options)
        return complain("the template database has an event trigger for logins: disable it", "");
    PGconn *c DEFER(connection_free) = connect_with(w, w[NAME], options);
    if (PQstatus(c) != CONNECTION_OK)
        return complain("cannot connect to the new database", PQerrorMessage(c));
    if (run_list(c, triggers, false) < 0)
        return complain("cannot disable event triggers in the new database", PQerrorMessage(c));
    if (run_list(c, contents, true) < 0)
        return complain("cannot make the new role owner of the new database", PQerrorMessage(c));
    return 0;
}

static int main_tell(PGconn *c, const char *name) {
    PGresult *r DEFER(result_free) =
        PQexecParams(c,
                     "SELECT datname FROM pg_catalog.pg_database WHERE datallowconn AND"
                     " datname <> $1 AND pg_catalog.has_database_privilege($1, oid, 'CONNECT')"
                     " ORDER BY datname LIMIT 32",
                     1, NULL, &name, NULL, NULL, 0);
    printf("%s\n", PQhostaddr(c));
    for (int i = 0; i < PQntuples(r); i++)
        printf("%s\n", PQgetvalue(r, i, 0));
    return fflush(stdout) ? 1 : 0;
}

static int main_make(PGconn *c, const char *const w[WORDS]) {
    if (lock(c, w[NAME]) < 0)
        return complain("cannot lock the name of the database on the server", PQerrorMessage(c));
    if (make_role(c, w) < 0)
        return complain("cannot create a role", PQerrorMessage(c));
    if (make_database(c, w) < 0)
        return complain("cannot create a database", PQerrorMessage(c));
    return hand_contents(c, w) != 0 ? 1 : main_tell(c, w[NAME]);
}

/* ---- look ---- */

/* Prints a line, with line breaks inside the text escaped: a name may contain one. */
static void print_line(const char *text) {
    for (; *text; text++)
        if (*text == '\n')
            fputs("\\n", stdout);
        else
            putchar(*text);
    putchar('\n');
}

/* Prints the first column of each row, a line per row. */
static int print_all(PGconn *c, const char *sql) {
    PGresult *r DEFER(result_free) = PQexec(c, sql);
    if (PQresultStatus(r) != PGRES_TUPLES_OK)
        return -1;
    for (int i = 0; i < PQntuples(r); i++)
        print_line(PQgetvalue(r, i, 0));
    return 0;
}

static const char relations[] =
    "SELECT CASE c.relkind WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view' WHEN 'f' THEN"
    " 'foreign table' WHEN 'S' THEN 'sequence' ELSE 'table' END ||"
    " pg_catalog.format(' %I.%I', n.nspname, c.relname) || CASE c.relkind WHEN 'S' THEN '' ELSE"
    " coalesce(' (' || (SELECT pg_catalog.string_agg(pg_catalog.format('%I %s', a.attname,"
    " pg_catalog.format_type(a.atttypid, a.atttypmod)) || CASE WHEN a.attnotnull"
    " THEN ' not null' ELSE '' END, ', ' ORDER BY a.attnum) FROM pg_catalog.pg_attribute a"
    " WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped) || ')', '') END"
    " FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
    " WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND " OURS " ORDER BY 1 LIMIT 1000";
static const char routines[] =
    "SELECT pg_catalog.format('routine %I.%I(%s) %s', n.nspname, p.proname,"
    " pg_catalog.pg_get_function_identity_arguments(p.oid), pg_catalog.md5(p.prosrc))"
    " FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace"
    " WHERE " OURS " ORDER BY 1 LIMIT 1000";
/* Counts the rows of tables, smallest first, up to 256 MiB in total; the others show their size. */
static const char counts[] =
    "SELECT CASE WHEN total <= 268435456 THEN"
    " pg_catalog.format('SELECT pg_catalog.format(''rows %%s %%s %%s'', %L, pg_catalog.count(*),"
    " pg_catalog.left(pg_catalog.md5(coalesce(pg_catalog.sum(pg_catalog.hashtextextended("
    "t::pg_catalog.text, 0)), 0)::pg_catalog.text), 8)) FROM %I.%I t', name, schema, relation)"
    " ELSE pg_catalog.format('SELECT pg_catalog.format(''large %%s %%s bytes'', %L, %L)', name,"
    " size) END FROM (SELECT n.nspname AS schema, c.relname AS relation,"
    " pg_catalog.format('%I.%I', n.nspname, c.relname) AS name,"
    " pg_catalog.pg_relation_size(c.oid) AS size, pg_catalog.sum(pg_catalog.pg_relation_size(c.oid)"
    ") OVER (ORDER BY pg_catalog.pg_relation_size(c.oid), c.oid) AS total"
    " FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
    " WHERE c.relkind = 'r' AND " OURS ") s ORDER BY name LIMIT 200";

/* Prints for each table the number of rows and a checksum, or the size. */
static int print_counts(PGconn *c) {
    PGresult *r DEFER(result_free) = PQexec(c, counts);
    if (PQresultStatus(r) != PGRES_TUPLES_OK)
        return -1;
    for (int i = 0; i < PQntuples(r); i++)
        if (print_all(c, PQgetvalue(r, i, 0)) < 0)
            return -1;
    return 0;
}

static int main_look(const char *const w[WORDS]) {
    PGconn *c DEFER(connection_free) = connect_to(w, w[NAME]);
    if (PQstatus(c) != CONNECTION_OK)
        return complain("cannot connect to the database", PQerrorMessage(c));
    if (main_run(c, "SET default_transaction_read_only TO on") < 0 || print_all(c, relations) < 0 ||
        print_all(c, routines) < 0 || print_counts(c) < 0)
        return complain("cannot read the database", PQerrorMessage(c));
    return fflush(stdout) ? 1 : 0;
}

/* ---- drop ---- */

static int main_drop(PGconn *c, const char *const w[WORDS]) {
    char sql[SQL_SIZE];
    if (lock(c, w[NAME]) < 0)
        return complain("cannot lock the name of the database on the server", PQerrorMessage(c));
    /* DROP DATABASE ... WITH (FORCE) needs PostgreSQL 13: on older servers, first terminate the
     * connections. */
    if (PQserverVersion(c) < 130000) {
        snprintf(sql, sizeof(sql), "ALTER ROLE %s NOLOGIN", w[NAME]);
        (void)main_run(c, sql);
        (void)run_with(c,
                       "SELECT pg_catalog.pg_terminate_backend(pid) FROM "
                       "pg_catalog.pg_stat_activity WHERE datname = $1",
                       w[NAME]);
    }
    snprintf(sql, sizeof(sql), "DROP DATABASE IF EXISTS %s%s", w[NAME],
             PQserverVersion(c) < 130000 ? "" : " WITH (FORCE)");
    if (main_run(c, sql) < 0)
        return complain("cannot drop a database", PQerrorMessage(c));
    snprintf(sql, sizeof(sql), "DROP ROLE IF EXISTS %s", w[NAME]);
    if (main_run(c, sql) < 0)
        return complain("cannot drop a role", PQerrorMessage(c));
    return 0;
}

int main(int argc, char **argv) {
    static char bytes[INPUT_MAX];
    const char *words[WORDS];
    bool makes = argc == 2 && strcmp(argv[1], "make") == 0;
    bool looks = argc == 2 && strcmp(argv[1], "look") == 0;
    if (!makes && !looks && (argc != 2 || strcmp(argv[1], "drop") != 0))
        return complain("usage: carrel-postgres make|drop|look", "");
    if (!confine())
        return complain("this kernel cannot confine carrel-postgres, so it does not connect", "");
    if (!main_read_words(bytes, words))
        return complain("the request on standard input has no valid database name", "");
    if (looks)
        return main_look(words);
    PGconn *c DEFER(connection_free) = connect_somewhere(words);
    if (PQstatus(c) != CONNECTION_OK && PQconnectionUsedPassword(c)) {
        complain("the database server refused the password", PQerrorMessage(c));
        return UNWELCOME;
    }
    if (PQstatus(c) != CONNECTION_OK) {
        complain("cannot connect to the server", PQerrorMessage(c));
        return UNREACHED;
    }
    return makes ? main_make(c, words) : main_drop(c, words);
}
