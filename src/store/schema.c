#include "store/schema.h"

#include <string.h>

#include "base/buf.h"
#include "base/defer.h"
#include "store/store.h"

/* States are the numbers of enum machine_state and exec_state: 6 is ended. */
const char *const schema_steps[] = {
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;"

    "CREATE TABLE owners (name TEXT PRIMARY KEY, uid INTEGER UNIQUE, created_ms INTEGER NOT NULL,"
    " machines INTEGER NOT NULL, cpu_milli INTEGER NOT NULL, mem_bytes INTEGER NOT NULL,"
    " disk_bytes INTEGER NOT NULL, lifetime_ms INTEGER NOT NULL) STRICT, WITHOUT ROWID;"

    "CREATE TABLE tokens (id TEXT PRIMARY KEY, owner TEXT NOT NULL REFERENCES owners(name),"
    " note TEXT NOT NULL, scopes INTEGER NOT NULL, machines INTEGER NOT NULL,"
    " cpu_milli INTEGER NOT NULL, mem_bytes INTEGER NOT NULL, disk_bytes INTEGER NOT NULL,"
    " lifetime_ms INTEGER NOT NULL, created_ms INTEGER NOT NULL, used_ms INTEGER NOT NULL,"
    " revoked_ms INTEGER NOT NULL, hash BLOB NOT NULL UNIQUE) STRICT, WITHOUT ROWID;"

    "CREATE TABLE machines (id TEXT PRIMARY KEY, owner TEXT NOT NULL REFERENCES owners(name),"
    " token TEXT, name TEXT, kind TEXT NOT NULL, image TEXT NOT NULL, state INTEGER NOT NULL,"
    " created_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL, end_reason TEXT NOT NULL,"
    " mem_bytes INTEGER NOT NULL, cpu_milli INTEGER NOT NULL, pids INTEGER NOT NULL,"
    " disk_bytes INTEGER NOT NULL, ttl_ms INTEGER NOT NULL, idle_ms INTEGER NOT NULL,"
    " idle_action INTEGER NOT NULL, steps INTEGER NOT NULL, incarnation INTEGER NOT NULL,"
    " idem TEXT, request_hash BLOB, metadata TEXT NOT NULL,"
    " env TEXT NOT NULL) STRICT, WITHOUT ROWID;"
    /* A name is free again once its machine has ended. */
    "CREATE UNIQUE INDEX machines_name ON machines(owner, name)"
    " WHERE name IS NOT NULL AND state < 6;"
    "CREATE UNIQUE INDEX machines_idem ON machines(owner, idem) WHERE idem IS NOT NULL;"
    "CREATE INDEX machines_created ON machines(created_ms, id);"
    /* With this index, lists of live machines and quotas need not read the rows. */
    "CREATE INDEX machines_live ON machines(owner, created_ms, id, token, state, cpu_milli,"
    " mem_bytes, disk_bytes) WHERE state < 6;"
    "CREATE INDEX machines_ended ON machines(ended_ms) WHERE state = 6;"

    /* The key keeps the commands of a machine together, in the order of their start. */
    "CREATE TABLE execs (id TEXT NOT NULL UNIQUE,"
    " machine TEXT NOT NULL REFERENCES machines(id) ON DELETE CASCADE, owner TEXT NOT NULL,"
    " number INTEGER NOT NULL, flags INTEGER NOT NULL, state INTEGER NOT NULL,"
    " exit_code INTEGER NOT NULL, signal INTEGER NOT NULL, reason TEXT NOT NULL,"
    " created_ms INTEGER NOT NULL, started_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL,"
    " timeout_ms INTEGER NOT NULL, user_us INTEGER NOT NULL, system_us INTEGER NOT NULL,"
    " wall_us INTEGER NOT NULL, max_rss_kb INTEGER NOT NULL, out_bytes INTEGER NOT NULL,"
    " err_bytes INTEGER NOT NULL, user TEXT NOT NULL, out_log TEXT NOT NULL,"
    " err_log TEXT NOT NULL, idem TEXT, request_hash BLOB,"
    " argv TEXT NOT NULL, cwd TEXT NOT NULL,"
    " PRIMARY KEY (machine, number)) STRICT, WITHOUT ROWID;"
    "CREATE UNIQUE INDEX execs_idem ON execs(owner, machine, idem) WHERE idem IS NOT NULL;"

    /* The newest row is never deleted, so the next rowid is always a new one. */
    "CREATE TABLE events (id INTEGER PRIMARY KEY, time_ms INTEGER NOT NULL, machine TEXT NOT NULL,"
    " owner TEXT NOT NULL, type TEXT NOT NULL, json TEXT NOT NULL) STRICT;",

    /* 2: steps (snapshots) of machines, and the layers of their roots. */
    "CREATE TABLE steps (id TEXT NOT NULL UNIQUE,"
    " machine TEXT NOT NULL REFERENCES machines(id) ON DELETE CASCADE, number INTEGER NOT NULL,"
    " kind INTEGER NOT NULL, state INTEGER NOT NULL, created_ms INTEGER NOT NULL, exec TEXT,"
    " what TEXT NOT NULL, status INTEGER NOT NULL, files INTEGER NOT NULL, bytes INTEGER NOT NULL,"
    " counted INTEGER NOT NULL, durable INTEGER NOT NULL, layer INTEGER NOT NULL,"
    " has_point INTEGER NOT NULL, stack TEXT NOT NULL, reason TEXT NOT NULL, name TEXT,"
    " PRIMARY KEY (machine, number)) STRICT, WITHOUT ROWID;"
    "CREATE UNIQUE INDEX steps_name ON steps(machine, name) WHERE name IS NOT NULL;"
    "CREATE INDEX steps_taking ON steps(machine) WHERE state = 1;"
    "CREATE TABLE roots (machine TEXT PRIMARY KEY REFERENCES machines(id) ON DELETE CASCADE,"
    " layer INTEGER NOT NULL, stack TEXT NOT NULL, from_machine TEXT, from_step TEXT)"
    " STRICT, WITHOUT ROWID;",

    /* 3: network policies of machines, and the host names that they asked for. */
    "CREATE TABLE networks (machine TEXT PRIMARY KEY REFERENCES machines(id) ON DELETE CASCADE,"
    " policy TEXT NOT NULL) STRICT, WITHOUT ROWID;"
    /* This table has a rowid, which grows, so that the newest name is known. */
    "CREATE TABLE network_names (machine TEXT NOT NULL REFERENCES machines(id) ON DELETE CASCADE,"
    " number INTEGER NOT NULL, name TEXT NOT NULL, UNIQUE (machine, number)) STRICT;",
    /* 4: budgets of model calls, and amounts that are reserved for calls in progress. */
    "CREATE TABLE accounts (id TEXT PRIMARY KEY, parent TEXT REFERENCES accounts(id),"
    " created_ms INTEGER NOT NULL, limit_tokens INTEGER NOT NULL, limit_micro INTEGER NOT NULL,"
    " spent_tokens INTEGER NOT NULL, spent_micro INTEGER NOT NULL, held_tokens INTEGER NOT NULL,"
    " held_micro INTEGER NOT NULL, calls INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE TABLE holds (id TEXT PRIMARY KEY, account TEXT NOT NULL REFERENCES accounts(id),"
    " model TEXT NOT NULL, created_ms INTEGER NOT NULL, tokens INTEGER NOT NULL,"
    " micro INTEGER NOT NULL) STRICT, WITHOUT ROWID;",

    /* 5: the certificate authority that a machine trusts. */
    "ALTER TABLE networks ADD COLUMN authority TEXT NOT NULL DEFAULT '';",

    /* 6: secrets of owners, and the machines that received placeholders for them. */
    "CREATE TABLE secrets (owner TEXT NOT NULL REFERENCES owners(name), name TEXT NOT NULL,"
    " created_ms INTEGER NOT NULL, changed_ms INTEGER NOT NULL, used_ms INTEGER NOT NULL,"
    " sealed BLOB NOT NULL, PRIMARY KEY (owner, name)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE secret_grants (machine TEXT NOT NULL REFERENCES machines(id) ON DELETE CASCADE,"
    " name TEXT NOT NULL, host TEXT NOT NULL, way TEXT NOT NULL, placeholder TEXT NOT NULL,"
    " created_ms INTEGER NOT NULL, PRIMARY KEY (machine, name, host)) STRICT, WITHOUT ROWID;",

    /* 7: requests that wait for an approval. */
    "CREATE TABLE pendings (id TEXT PRIMARY KEY,"
    " machine TEXT NOT NULL REFERENCES machines(id) ON DELETE CASCADE, host TEXT NOT NULL,"
    " port INTEGER NOT NULL, protocol TEXT NOT NULL, method TEXT NOT NULL, path TEXT NOT NULL,"
    " rule INTEGER NOT NULL, since_ms INTEGER NOT NULL, until_ms INTEGER NOT NULL,"
    " approved INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE INDEX pendings_machine ON pendings(machine);",

    /* 8: names of images. Their file trees are in the store, under their ids. */
    "CREATE TABLE images (owner TEXT NOT NULL, name TEXT NOT NULL, id TEXT NOT NULL,"
    " created_ms INTEGER NOT NULL, bytes INTEGER NOT NULL, entries INTEGER NOT NULL,"
    " origin TEXT NOT NULL, PRIMARY KEY (owner, name)) STRICT, WITHOUT ROWID;"
    "CREATE INDEX images_id ON images(id);"
    "CREATE INDEX machines_image ON machines(image) WHERE state < 6 AND image != 'host';",

    /* 9: exposed ports of machines. */
    "CREATE TABLE exposures (machine TEXT NOT NULL REFERENCES machines(id) ON DELETE CASCADE,"
    " port INTEGER NOT NULL, hash BLOB NOT NULL,"
    " PRIMARY KEY (machine, port)) STRICT, WITHOUT ROWID;",

    /* 10: one table for all kinds of grants; and warnings from the creation of a machine. */
    "CREATE TABLE grants (id TEXT PRIMARY KEY,"
    " machine TEXT NOT NULL REFERENCES machines(id) ON DELETE CASCADE, kind TEXT NOT NULL,"
    " what TEXT NOT NULL, place TEXT NOT NULL, mode TEXT NOT NULL, detail TEXT NOT NULL,"
    " created_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL,"
    " UNIQUE (machine, kind, what, place)) STRICT, WITHOUT ROWID;"
    /* Ids consist of a-z and 2-7, so other hex digits of a random number are replaced. */
    "INSERT INTO grants SELECT 'g-' || substr(replace(replace(replace(replace(lower(hex("
    "randomblob(6))), '0', 'q'), '1', 'r'), '8', 's'), '9', 't'), 1, 12), machine, 'secret', name,"
    " host, way, json_object('placeholder', placeholder), created_ms, 0 FROM secret_grants;"
    "DROP TABLE secret_grants;"
    "ALTER TABLE machines ADD COLUMN warnings TEXT NOT NULL DEFAULT '';",

    /* 11: durable steps of machines, which survive a restart of the host. */
    "CREATE TABLE saved (machine TEXT PRIMARY KEY REFERENCES machines(id) ON DELETE CASCADE,"
    " disk TEXT NOT NULL, step TEXT, source TEXT NOT NULL, stack TEXT NOT NULL,"
    " next INTEGER NOT NULL, boot TEXT NOT NULL) STRICT, WITHOUT ROWID;",

    /* 12: temporary databases on servers of owners, until they are dropped. */
    "CREATE TABLE databases (id TEXT PRIMARY KEY, owner TEXT NOT NULL REFERENCES owners(name),"
    " machine TEXT NOT NULL, server TEXT NOT NULL, name TEXT NOT NULL,"
    " created_ms INTEGER NOT NULL, why TEXT NOT NULL) STRICT, WITHOUT ROWID;",

    /* 13: images and directories that hold data from untrusted sources. */
    "CREATE TABLE taints (owner TEXT NOT NULL, kind TEXT NOT NULL, key TEXT NOT NULL,"
    " source TEXT NOT NULL, since_ms INTEGER NOT NULL,"
    " PRIMARY KEY (owner, kind, key)) STRICT, WITHOUT ROWID;",

    /* 14: images count for the disk quota of their owner and of the token that created them. */
    "ALTER TABLE images ADD COLUMN disk_bytes INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE images ADD COLUMN token TEXT;"
    "UPDATE images SET disk_bytes = bytes;",

    /* 15: machines are numbered in the order of creation, because clocks may go back. */
    "ALTER TABLE machines ADD COLUMN number INTEGER NOT NULL DEFAULT 0;"
    "UPDATE machines SET number = n FROM (SELECT id AS i, row_number() OVER"
    " (ORDER BY created_ms, id) AS n FROM machines) WHERE id = i;"
    "DROP INDEX machines_created;"
    "CREATE UNIQUE INDEX machines_number ON machines(number);"
    "DROP INDEX machines_live;"
    "CREATE INDEX machines_live ON machines(owner, number, id, token, state, cpu_milli,"
    " mem_bytes, disk_bytes) WHERE state < 6;",

    /* 16: who put a machine into its state (enum state_by; 0: not known). */
    "ALTER TABLE machines ADD COLUMN state_by INTEGER NOT NULL DEFAULT 0;",

    /* 17: names of commands, for shells that a user returns to. */
    "ALTER TABLE execs ADD COLUMN name TEXT;",

    /* 18: builds of images, until they are among the oldest of their owner. */
    "CREATE TABLE builds (id TEXT PRIMARY KEY, owner TEXT NOT NULL, token TEXT NOT NULL,"
    " name TEXT NOT NULL, state INTEGER NOT NULL, step INTEGER NOT NULL, steps INTEGER NOT NULL,"
    " made INTEGER NOT NULL, cached INTEGER NOT NULL, started_ms INTEGER NOT NULL,"
    " ended_ms INTEGER NOT NULL, image TEXT NOT NULL, code TEXT NOT NULL, error TEXT NOT NULL,"
    " remedy TEXT NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE INDEX builds_owner ON builds(owner, started_ms);",

    /* 19: limits of cell machines, and the fuel that their commands used. */
    "ALTER TABLE machines ADD COLUMN fuel INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE machines ADD COLUMN fuel_rate INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE execs ADD COLUMN fuel INTEGER NOT NULL DEFAULT 0;",

    /* 20: volumes, disks that outlive machines. Grants of kind `volume` say who has one. */
    "CREATE TABLE volumes (id TEXT PRIMARY KEY, owner TEXT NOT NULL, token TEXT,"
    " name TEXT NOT NULL, bytes INTEGER NOT NULL, created_ms INTEGER NOT NULL,"
    " origin TEXT NOT NULL, UNIQUE (owner, name)) STRICT, WITHOUT ROWID;",

    /* 21: what model calls cost. An empty machine: a run without a machine. */
    "CREATE TABLE spending (owner TEXT NOT NULL, day INTEGER NOT NULL, machine TEXT NOT NULL,"
    " model TEXT NOT NULL, calls INTEGER NOT NULL, tokens INTEGER NOT NULL,"
    " micro INTEGER NOT NULL, fresh INTEGER NOT NULL, cache_read INTEGER NOT NULL,"
    " cache_write INTEGER NOT NULL, written INTEGER NOT NULL,"
    " PRIMARY KEY (owner, day, machine, model)) STRICT, WITHOUT ROWID;"
    "CREATE INDEX spending_day ON spending(day);",

    /* 22: capabilities of programs in a cell machine. */
    "ALTER TABLE machines ADD COLUMN allowed TEXT NOT NULL DEFAULT '';",

    /* 23: commands of cell machines that are stored in files while their machine is paused. */
    "ALTER TABLE execs ADD COLUMN stored TEXT;",

    /* 24: process ids of commands, by which clients of E2B name them; 0: it was not reported. */
    "ALTER TABLE execs ADD COLUMN pid INTEGER NOT NULL DEFAULT 0;",

    /* 25: tokens of machines are made from the id and this number, which revokes them. */
    "ALTER TABLE machines ADD COLUMN token_generation INTEGER NOT NULL DEFAULT 0;",

    /* 26: what the end of a machine's ttl does (enum ttl_action). */
    "ALTER TABLE machines ADD COLUMN on_ttl INTEGER NOT NULL DEFAULT 0;",

    /* 27: commands that machines run at set times. */
    "CREATE TABLE timers (id TEXT PRIMARY KEY,"
    " machine TEXT NOT NULL REFERENCES machines(id) ON DELETE CASCADE, owner TEXT NOT NULL,"
    " token TEXT, argv TEXT NOT NULL, user TEXT NOT NULL, every_ms INTEGER NOT NULL,"
    " next_ms INTEGER NOT NULL, due_ms INTEGER NOT NULL, created_ms INTEGER NOT NULL,"
    " last_ms INTEGER NOT NULL, last_exec TEXT, runs INTEGER NOT NULL, missed INTEGER NOT NULL,"
    " error TEXT NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE INDEX timers_next ON timers(next_ms);"
    "CREATE INDEX timers_machine ON timers(machine);",

    /* 28: backups, which outlive their machines. */
    "CREATE TABLE backups (id TEXT PRIMARY KEY, owner TEXT NOT NULL, token TEXT NOT NULL,"
    " machine TEXT NOT NULL, name TEXT NOT NULL, created_ms INTEGER NOT NULL,"
    " manifest TEXT NOT NULL, entries INTEGER NOT NULL, bytes INTEGER NOT NULL,"
    " written INTEGER NOT NULL, details TEXT NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE INDEX backups_machine ON backups(machine, created_ms);",

    /* 29: timers whose command is a task of upkeep. */
    "ALTER TABLE timers ADD COLUMN task TEXT;",

    /* 30: change sets, and what became of them. States are those of enum changeset_state. */
    "CREATE TABLE changesets (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,"
    " owner TEXT NOT NULL, machine TEXT NOT NULL, subject TEXT NOT NULL, sha256 TEXT NOT NULL,"
    " state INTEGER NOT NULL, instead TEXT NOT NULL, created_ms INTEGER NOT NULL,"
    " changed_ms INTEGER NOT NULL, words TEXT NOT NULL) STRICT;"
    "CREATE INDEX changesets_owner ON changesets(owner, state, number);"
    "CREATE INDEX changesets_state ON changesets(state, number);"
    "CREATE INDEX changesets_machine ON changesets(machine, state, number);"
    "CREATE INDEX changesets_subject ON changesets(machine, subject, number) WHERE state < 5;",
};
const size_t schema_version = sizeof(schema_steps) / sizeof(*schema_steps);

int schema_version_of(sqlite3 *db, size_t *ret, struct err *err) {
    sqlite3_stmt *stmt;
    int rc = sqlite3_prepare_v2(db, "PRAGMA user_version", -1, &stmt, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(stmt);
    int64_t version = rc == SQLITE_ROW ? sqlite3_column_int64(stmt, 0) : -1;
    sqlite3_finalize(stmt);
    if (rc != SQLITE_ROW)
        return err_sqlite(err, db, rc, "cannot read the version of the database");
    if (version < 0) {
        err_set(err, ERR_UNSUPPORTED,
                "carrel.db, the database of the store, is damaged: its version is %lld",
                (long long)version);
        return err_remedy(err, "restore carrel.db from a backup");
    }
    *ret = (size_t)version;
    return 0;
}

static int version_set(sqlite3 *db, size_t version, struct err *err) {
    char sql[48];
    snprintf(sql, sizeof(sql), "PRAGMA user_version = %zu", version);
    int rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
    return rc == SQLITE_OK ? 0 : err_sqlite(err, db, rc, "cannot set the version of the database");
}

static int make_steps(sqlite3 *db, const char *const *steps, size_t from, size_t count,
                      struct err *err) {
    for (size_t i = from; i < count; i++) {
        int rc = sqlite3_exec(db, steps[i], NULL, NULL, NULL);
        if (rc != SQLITE_OK) {
            err_sqlite(err, db, rc, "cannot change the tables of the database");
            return err_wrap(err, "cannot upgrade the database from version %zu to %zu", i, i + 1);
        }
    }
    return version_set(db, count, err);
}

int schema_migrate(sqlite3 *db, const char *const *steps, size_t count, struct err *err) {
    size_t version = 0;
    int rc = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    if (rc != SQLITE_OK)
        return err_sqlite(err, db, rc, "cannot begin a transaction of the database");
    if (schema_version_of(db, &version, err) < 0)
        goto undo;
    if (version > count) {
        err_set(err, ERR_UNSUPPORTED,
                "the database has version %zu, but this Carrel only knows %zu", version, count);
        err_remedy(err, "run the newer Carrel that wrote it, or use another CARREL_HOME");
        goto undo;
    }
    if (version < count && make_steps(db, steps, version, count, err) < 0)
        goto undo;
    rc = sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        return 0;
    err_sqlite(err, db, rc, "cannot commit the upgrade of the database");
undo:
    if (!sqlite3_get_autocommit(db))
        sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    return -1;
}

/* Writes the whole schema of the database as one text. */
static int schema_as_text(sqlite3 *db, struct buf *ret, struct err *err) {
    sqlite3_stmt *stmt;
    int rc = sqlite3_prepare_v2(
        db, "SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_schema ORDER BY type, name",
        -1, &stmt, NULL);
    bool fits = true;
    while (rc == SQLITE_OK && fits && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        for (int i = 0; i < 4 && fits; i++)
            fits = buf_addf(ret, "%s\n", (const char *)sqlite3_column_text(stmt, i));
        rc = SQLITE_OK;
    }
    sqlite3_finalize(stmt);
    if (!fits)
        return err_set(err, ERR_INVALID, "the database has tables that are not Carrel's");
    return rc == SQLITE_DONE ? 0
                             : err_sqlite(err, db, rc, "cannot read the tables of the database");
}

static void db_closep(sqlite3 **db) {
    sqlite3_close(*db);
}

int schema_check(sqlite3 *db, const char *const *steps, size_t count, struct err *err) {
    enum { MOST = 256 << 10 };
    sqlite3 *model DEFER(db_closep) = NULL;
    struct buf found DEFER(buf_done) = BUF(MOST), wanted DEFER(buf_done) = BUF(MOST);
    int rc = sqlite3_open(":memory:", &model);
    if (rc != SQLITE_OK)
        return err_sqlite(err, model, rc, "cannot open a database in memory");
    if (schema_migrate(model, steps, count, err) < 0 || schema_as_text(model, &wanted, err) < 0 ||
        schema_as_text(db, &found, err) < 0)
        return -1;
    if (found.len == wanted.len && memcmp(found.data, wanted.data, found.len) == 0)
        return 0;
    err_set(err, ERR_INVALID, "the tables of the database are not those of version %zu", count);
    return err_remedy(err, "somebody changed them: restore the database from a backup");
}
