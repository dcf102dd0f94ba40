/*
 * Every SQL statement of the store, and the column of each member of a row struct.
 *
 * In a statement, $cols stands for the columns of the table and $marks for as many ?1, ?2, ...
 */
#include <string.h>

#include "store/accounts.h"
#include "store/events.h"
#include "store/execs.h"
#include "store/images.h"
#include "store/machines.h"
#include "store/owners.h"
#include "store/saved.h"
#include "store/steps.h"
#include "store/store.h"

#define TEXT(t, m) #m, COL_TEXT, offsetof(struct t, m), sizeof(((struct t *)0)->m)
#define NAME(t, m) #m, COL_NAME, offsetof(struct t, m), sizeof(((struct t *)0)->m)
#define U64(t, m) #m, COL_U64, offsetof(struct t, m), 0
#define U32(t, m) #m, COL_U32, offsetof(struct t, m), 0
#define I64(t, m) #m, COL_I64, offsetof(struct t, m), 0
#define ENUM(t, m, last) #m, COL_ENUM, offsetof(struct t, m), (last)
#define HEAP(t, m) #m, COL_HEAP, offsetof(struct t, m), 0
#define OBJECT(t, m) #m, COL_JSON, offsetof(struct t, m), 0
/* Rows of change sets: those of each wanted state are read from an index. */
#define IN_STATE(where, state)                                                                   \
    "SELECT * FROM (SELECT * FROM changesets WHERE " where " state = " state " AND ?1 >> " state \
    " & 1 AND number < ?2 ORDER BY number DESC LIMIT ?3)"
#define OR_STATE(where, state) " UNION ALL " IN_STATE(where, state)
#define CHANGESETS(where)                                                                \
    "SELECT $cols FROM (" IN_STATE(where, "1") OR_STATE(where, "2") OR_STATE(where, "3") \
        OR_STATE(where, "4") OR_STATE(where, "5")                                        \
            OR_STATE(where, "6") ") ORDER BY number DESC LIMIT ?3"
#define QUOTA(t, m) #m, COL_U64, offsetof(struct t, quota.m), 0

static const struct column machine_columns[] = {
    {TEXT(machine_row, id)},
    {TEXT(machine_row, owner)},
    {NAME(machine_row, token)},
    {NAME(machine_row, name)},
    {TEXT(machine_row, kind)},
    {TEXT(machine_row, image)},
    {ENUM(machine_row, state, MACHINE_STATE_LAST)},
    {I64(machine_row, created_ms)},
    {I64(machine_row, ended_ms)},
    {TEXT(machine_row, end_reason)},
    {U64(machine_row, mem_bytes)},
    {U64(machine_row, cpu_milli)},
    {U64(machine_row, pids)},
    {U64(machine_row, disk_bytes)},
    {U64(machine_row, ttl_ms)},
    {U64(machine_row, idle_ms)},
    {ENUM(machine_row, idle_action, IDLE_ACTION_LAST)},
    {ENUM(machine_row, steps, STEP_POLICY_LAST)},
    {"incarnation", COL_BITS, offsetof(struct machine_row, incarnation), 0},
    {"idem", COL_NAME, offsetof(struct machine_row, key), STORE_KEY_SIZE},
    {"request_hash", COL_HASH, offsetof(struct machine_row, request_hash), SHA256_BYTES},
    {OBJECT(machine_row, metadata)},
    {OBJECT(machine_row, env)},
    {"warnings", COL_HEAP, offsetof(struct machine_row, warnings), 0},
    {U32(machine_row, state_by)},
    {U64(machine_row, fuel)},
    {U64(machine_row, fuel_rate)},
    {TEXT(machine_row, allowed)},
    {U64(machine_row, token_generation)},
    {U32(machine_row, on_ttl)},
};

static const struct column image_columns[] = {
    {TEXT(image_row, owner)},     {TEXT(image_row, name)},      {TEXT(image_row, id)},
    {I64(image_row, created_ms)}, {U64(image_row, bytes)},      {U64(image_row, entries)},
    {TEXT(image_row, origin)},    {U64(image_row, disk_bytes)}, {NAME(image_row, token)},
};

static const struct column exec_columns[] = {
    {TEXT(exec_row, id)},
    {TEXT(exec_row, machine)},
    {TEXT(exec_row, owner)},
    {U32(exec_row, number)},
    {U32(exec_row, flags)},
    {ENUM(exec_row, state, EXEC_STATE_LAST)},
    {U32(exec_row, exit_code)},
    {U32(exec_row, signal)},
    {TEXT(exec_row, reason)},
    {I64(exec_row, created_ms)},
    {I64(exec_row, started_ms)},
    {I64(exec_row, ended_ms)},
    {U64(exec_row, timeout_ms)},
    {U64(exec_row, user_us)},
    {U64(exec_row, system_us)},
    {U64(exec_row, wall_us)},
    {U64(exec_row, max_rss_kb)},
    {U64(exec_row, out_bytes)},
    {U64(exec_row, err_bytes)},
    {TEXT(exec_row, user)},
    {TEXT(exec_row, out_log)},
    {TEXT(exec_row, err_log)},
    {"idem", COL_NAME, offsetof(struct exec_row, key), STORE_KEY_SIZE},
    {"request_hash", COL_HASH, offsetof(struct exec_row, request_hash), SHA256_BYTES},
    {OBJECT(exec_row, argv)},
    {HEAP(exec_row, cwd)},
    {NAME(exec_row, name)},
    {U64(exec_row, fuel)},
    {NAME(exec_row, stored)},
    {U32(exec_row, pid)}, /* the last three: STMT_EXEC_FINISH counts the columns */
};

static const struct column owner_columns[] = {
    {TEXT(owner_row, name)},        {"uid", COL_UID, offsetof(struct owner_row, uid), 0},
    {I64(owner_row, created_ms)},   {QUOTA(owner_row, machines)},
    {QUOTA(owner_row, cpu_milli)},  {QUOTA(owner_row, mem_bytes)},
    {QUOTA(owner_row, disk_bytes)}, {QUOTA(owner_row, lifetime_ms)},
};

static const struct column token_columns[] = {
    {TEXT(token_row, id)},         {TEXT(token_row, owner)},       {TEXT(token_row, note)},
    {U32(token_row, scopes)},      {QUOTA(token_row, machines)},   {QUOTA(token_row, cpu_milli)},
    {QUOTA(token_row, mem_bytes)}, {QUOTA(token_row, disk_bytes)}, {QUOTA(token_row, lifetime_ms)},
    {I64(token_row, created_ms)},  {I64(token_row, used_ms)},      {I64(token_row, revoked_ms)},
};

static const struct column event_columns[] = {
    {I64(event_row, id)},     {I64(event_row, time_ms)}, {TEXT(event_row, machine)},
    {TEXT(event_row, owner)}, {TEXT(event_row, type)},   {OBJECT(event_row, json)},
};

static const struct column step_columns[] = {
    {TEXT(step_row, id)},
    {TEXT(step_row, machine)},
    {U32(step_row, number)},
    {ENUM(step_row, kind, STEP_KIND_LAST)},
    {ENUM(step_row, state, STEP_STATE_LAST)},
    {I64(step_row, created_ms)},
    {NAME(step_row, exec)},
    {HEAP(step_row, what)},
    {I64(step_row, status)},
    {U64(step_row, files)},
    {U64(step_row, bytes)},
    {U32(step_row, counted)},
    {U32(step_row, durable)},
    {U32(step_row, layer)},
    {U32(step_row, has_point)},
    {HEAP(step_row, stack)},
    {TEXT(step_row, reason)},
    {NAME(step_row, name)},
};

static const struct column root_columns[] = {
    {TEXT(root_row, machine)},      {U32(root_row, layer)},      {HEAP(root_row, stack)},
    {NAME(root_row, from_machine)}, {NAME(root_row, from_step)},
};

static const struct column saved_columns[] = {
    {TEXT(saved_row, machine)}, {TEXT(saved_row, disk)},  {NAME(saved_row, step)},
    {HEAP(saved_row, source)},  {HEAP(saved_row, stack)}, {U32(saved_row, next)},
    {TEXT(saved_row, boot)},
};

static const struct column account_columns[] = {
    {TEXT(account_row, id)},         {NAME(account_row, parent)},
    {I64(account_row, created_ms)},  {U64(account_row, limit_tokens)},
    {U64(account_row, limit_micro)}, {U64(account_row, spent_tokens)},
    {U64(account_row, spent_micro)}, {U64(account_row, held_tokens)},
    {U64(account_row, held_micro)},  {U64(account_row, calls)},
};

#define TABLE(name, t, columns) \
    { name, sizeof(struct t), columns, sizeof(columns) / sizeof(*(columns)) }
const struct table machine_table = TABLE("machines", machine_row, machine_columns);
const struct table exec_table = TABLE("execs", exec_row, exec_columns);
const struct table owner_table = TABLE("owners", owner_row, owner_columns);
const struct table token_table = TABLE("tokens", token_row, token_columns);
const struct table account_table = TABLE("accounts", account_row, account_columns);
const struct table image_table = TABLE("images", image_row, image_columns);
const struct table event_table = TABLE("events", event_row, event_columns);
const struct table step_table = TABLE("steps", step_row, step_columns);
const struct table root_table = TABLE("roots", root_row, root_columns);
const struct table saved_table = TABLE("saved", saved_row, saved_columns);

/* Parameters: ?1 owner ?2 name ?3 kind ?4 metadata key ?5 its value ?6 states ?7 number ?8 limit */
#define MACHINE_FILTER                                                                   \
    " AND (?2 IS NULL OR name = ?2) AND (?3 IS NULL OR kind = ?3) AND (?6 >> state & 1)" \
    " AND (?4 IS NULL OR EXISTS (SELECT 1 FROM json_each(metadata) AS e"                 \
    " WHERE e.key = ?4 AND e.value = ?5))"                                               \
    " AND number < ?7 ORDER BY number DESC LIMIT ?8"

/* A stopped machine (state 4) uses no CPU and memory. */
#define QUOTA_SUMS                                                                  \
    "SELECT count(*), coalesce(sum(iif(state = 4, 0, cpu_milli)), 0),"              \
    " coalesce(sum(iif(state = 4, 0, mem_bytes)), 0), coalesce(sum(disk_bytes), 0)" \
    " FROM machines WHERE owner = ?1 AND state < 6"

/* Account ?1 and all its parents. The depth ends the recursion, even if the table has a cycle. */
#define LINE                                                                       \
    "WITH RECURSIVE line(id, depth) AS (SELECT ?1, 1 UNION ALL SELECT a.parent,"   \
    " depth + 1 FROM accounts a JOIN line ON a.id = line.id WHERE a.parent IS NOT" \
    " NULL AND depth < 32) "
#define IN_LINE " WHERE id IN (SELECT id FROM line)"

/* Sums since day ?2. total() never overflows. */
#define SPENT_SUMS                                                                      \
    " AS key, CAST(total(calls) AS INTEGER) AS calls, CAST(total(tokens) AS INTEGER)"   \
    " AS tokens, CAST(total(micro) AS INTEGER) AS micro, CAST(total(fresh) AS INTEGER)" \
    ", CAST(total(cache_read) AS INTEGER), CAST(total(cache_write) AS INTEGER),"        \
    " CAST(total(written) AS INTEGER) FROM spending WHERE day >= ?2"
#define SPENT_OF_OWNER SPENT_SUMS " AND owner = ?1"

static const struct {
    const char *sql;
    const struct table *table;
} statements[STMT_COUNT] = {
    [STMT_BEGIN] = {"BEGIN IMMEDIATE", NULL},
    [STMT_COMMIT] = {"COMMIT", NULL},
    [STMT_ROLLBACK] = {"ROLLBACK", NULL},

    [STMT_MACHINE_ADD] = {"INSERT INTO machines($cols, number) VALUES($marks,"
                          " (SELECT coalesce(max(number), 0) + 1 FROM machines))",
                          &machine_table},
    [STMT_MACHINE_BY_KEY] = {"SELECT id, request_hash FROM machines WHERE owner = ?1 AND idem = ?2",
                             NULL},
    [STMT_MACHINE_GET] = {"SELECT $cols FROM machines WHERE id = ?1", &machine_table},
    [STMT_MACHINE_BY_NAME] = {"SELECT $cols FROM machines WHERE name = ?2 AND state < 6"
                              " AND (?1 IS NULL OR owner = ?1) LIMIT 2",
                              &machine_table},
    [STMT_MACHINE_BY_PREFIX] = {"SELECT $cols FROM machines WHERE id >= ?2 AND id < ?3"
                                " AND (?1 IS NULL OR owner = ?1) ORDER BY state = 6 LIMIT 2",
                                &machine_table},
    [STMT_MACHINE_LIST] =
        {"SELECT $cols, number FROM machines WHERE (?1 IS NULL OR owner = ?1)" MACHINE_FILTER,
         &machine_table},
    [STMT_MACHINE_LIST_LIVE] = {"SELECT $cols, number FROM machines"
                                " WHERE state < 6 AND (?1 IS NULL OR owner = ?1)" MACHINE_FILTER,
                                &machine_table},
    [STMT_MACHINE_LIST_OWNER] =
        {"SELECT $cols, number FROM machines WHERE owner = ?1 AND state < 6" MACHINE_FILTER,
         &machine_table},
    [STMT_MACHINE_UPDATE] = {"UPDATE machines SET name = ?4, kind = ?5, state = ?7, ended_ms = ?9,"
                             " end_reason = ?10, mem_bytes = ?11, cpu_milli = ?12, pids = ?13,"
                             " disk_bytes = ?14, ttl_ms = ?15, idle_ms = ?16, idle_action = ?17,"
                             " steps = ?18, incarnation = ?19, metadata = ?22, env = ?23,"
                             " warnings = ?24, state_by = ?25, on_ttl = ?30"
                             " WHERE id = ?1",
                             &machine_table},
    [STMT_MACHINE_STATE] = {"UPDATE machines SET state = ?2, state_by = ?3 WHERE id = ?1", NULL},
    [STMT_MACHINE_RUNNING] = {"UPDATE machines SET incarnation = ?2, state = ?3, state_by = ?4"
                              " WHERE id = ?1",
                              NULL},
    [STMT_MACHINE_TOKENS] = {"UPDATE machines SET token_generation = ?2 WHERE id = ?1", NULL},
    [STMT_MACHINE_UNKEY] = {"UPDATE machines SET idem = NULL WHERE id = ?1", NULL},
    [STMT_MACHINE_END] = {"UPDATE machines SET state = 6, ended_ms = ?2, end_reason = ?3"
                          " WHERE id = ?1",
                          NULL},
    [STMT_MACHINE_IDS] = {"SELECT id FROM machines WHERE state < 6", NULL},
    [STMT_META_GET] = {"SELECT value FROM meta WHERE name = ?1", NULL},
    [STMT_META_ADD] = {"INSERT INTO meta(name, value) VALUES(?1, ?2)", NULL},
    [STMT_MACHINE_OLD] = {"SELECT id FROM machines WHERE state = 6 AND ended_ms < ?1"
                          " ORDER BY ended_ms LIMIT ?2",
                          NULL},
    [STMT_MACHINE_TRIM] = {"DELETE FROM machines WHERE id IN (SELECT id FROM machines"
                           " WHERE state = 6 AND ended_ms < ?1 ORDER BY ended_ms LIMIT ?2)",
                           NULL},
    [STMT_MACHINE_QUOTA] = {QUOTA_SUMS, NULL},
    [STMT_MACHINE_QUOTA_TOKEN] = {QUOTA_SUMS " AND token = ?2", NULL},
    [STMT_MACHINE_COUNTS] = {"SELECT state, count(*) FROM machines WHERE state < 6 GROUP BY state"
                             " UNION ALL SELECT 6, count(*) FROM machines WHERE state = 6",
                             NULL},
    [STMT_MACHINE_COUNTS_OWNER] = {"SELECT state, count(*) FROM machines"
                                   " WHERE owner = ?1 AND state < 6 GROUP BY state UNION ALL"
                                   " SELECT 6, count(*) FROM machines WHERE owner = ?1"
                                   " AND state = 6",
                                   NULL},

    [STMT_EXEC_ADD] = {"INSERT INTO execs($cols) VALUES($marks)", &exec_table},
    [STMT_EXEC_NUMBER] = {"SELECT coalesce(max(number), 0) FROM execs WHERE machine = ?1", NULL},
    [STMT_EXEC_BY_KEY] = {"SELECT id, request_hash FROM execs"
                          " WHERE owner = ?1 AND machine = ?2 AND idem = ?3",
                          NULL},
    [STMT_EXEC_GET] = {"SELECT $cols FROM execs WHERE id = ?1", &exec_table},
    [STMT_EXEC_BY_NUMBER] = {"SELECT $cols FROM execs WHERE machine = ?1 AND number = ?2",
                             &exec_table},
    [STMT_EXEC_BY_PID] = {"SELECT $cols FROM execs WHERE machine = ?1 AND pid = ?2"
                          " ORDER BY number DESC LIMIT 1",
                          &exec_table},
    [STMT_EXEC_LIST] = {"SELECT $cols FROM execs WHERE machine = ?1 AND (?2 IS NULL OR owner = ?2)"
                        " AND (?3 >> state & 1) AND number < ?4 AND (flags & ?6) = 0"
                        " ORDER BY number DESC LIMIT ?5",
                        &exec_table},
    [STMT_EXEC_STARTED] =
        {"UPDATE execs SET state = 2, started_ms = ?2, pid = ?3 WHERE id = ?1 AND state = 1", NULL},
    [STMT_EXEC_FINISH] =
        {"UPDATE execs SET state = ?6, exit_code = ?7, signal = ?8, reason = ?9,"
         " started_ms = max(started_ms, ?11), ended_ms = ?12, user_us = ?14, "
         "system_us = ?15, wall_us = ?16,"
         " max_rss_kb = ?17, out_bytes = ?18, err_bytes = ?19, fuel = ?28, stored = ?29, pid = ?30"
         " WHERE id = ?1 AND state < 3",
         &exec_table},
    [STMT_EXEC_STORE] = {"UPDATE execs SET stored = ?2 WHERE id = ?1 AND state < 3", NULL},
    [STMT_EXEC_LOSE] = {"UPDATE execs SET state = 4, ended_ms = ?2, reason = ?3"
                        " WHERE machine = ?1 AND state < 3",
                        NULL},

    /* Deletes the oldest ended commands beyond the newest ?2; at most ?3 at once. */
    [STMT_EXEC_TRIM] = {"DELETE FROM execs WHERE id IN (SELECT id FROM execs WHERE machine = ?1"
                        " AND state >= 3 AND number <= (SELECT number FROM execs WHERE machine = ?1"
                        " ORDER BY number DESC LIMIT 1 OFFSET ?2) ORDER BY number LIMIT ?3)",
                        NULL},

    [STMT_OWNER_PUT] = {"INSERT INTO owners($cols) VALUES($marks) ON CONFLICT(name) DO UPDATE SET"
                        " uid = excluded.uid, machines = excluded.machines,"
                        " cpu_milli = excluded.cpu_milli, mem_bytes = excluded.mem_bytes,"
                        " disk_bytes = excluded.disk_bytes, lifetime_ms = excluded.lifetime_ms",
                        &owner_table},
    [STMT_OWNER_GET] = {"SELECT $cols FROM owners WHERE name = ?1", &owner_table},
    [STMT_OWNER_BY_UID] = {"SELECT $cols FROM owners WHERE uid = ?1", &owner_table},
    [STMT_OWNER_LIST] = {"SELECT $cols FROM owners ORDER BY name LIMIT ?1", &owner_table},

    [STMT_TOKEN_ADD] = {"INSERT INTO tokens($cols, hash) VALUES($marks, ?13)", &token_table},
    [STMT_TOKEN_CHECK] = {"SELECT $cols FROM tokens WHERE hash = ?1 AND revoked_ms = 0",
                          &token_table},
    [STMT_TOKEN_USED] = {"UPDATE tokens SET used_ms = ?2 WHERE id = ?1", NULL},
    [STMT_TOKEN_GET] = {"SELECT $cols FROM tokens WHERE id = ?1", &token_table},
    [STMT_TOKEN_LIST] = {"SELECT $cols FROM tokens WHERE (?1 IS NULL OR owner = ?1)"
                         " ORDER BY created_ms DESC, id DESC LIMIT ?2",
                         &token_table},
    [STMT_TOKEN_REVOKE] = {"UPDATE tokens SET revoked_ms = ?2 WHERE id = ?1 AND revoked_ms = 0",
                           NULL},

    [STMT_EVENT_ADD] = {"INSERT INTO events(time_ms, machine, owner, type, json)"
                        " VALUES(?2, ?3, ?4, ?5, ?6)",
                        &event_table},
    [STMT_EVENT_LIST] = {"SELECT $cols FROM events WHERE id > ?1 AND (?2 IS NULL OR owner = ?2)"
                         " AND (?3 IS NULL OR machine = ?3) AND (?4 IS NULL OR type = ?4)"
                         " ORDER BY id LIMIT ?5",
                         &event_table},
    [STMT_EVENT_RANGE] = {"SELECT coalesce((SELECT min(id) FROM events), 0),"
                          " coalesce((SELECT max(id) FROM events), 0)",
                          NULL},
    /* Deletes a range of ids, at most 10,000. Times grow with ids, so a range is enough. */
    [STMT_EVENT_TRIM] =
        {"DELETE FROM events WHERE id < (SELECT max(id) FROM events)"
         " AND id < (SELECT min(id) FROM events) + 10000"
         " AND id < max((SELECT max(id) FROM events) - ?2 + 1, coalesce((SELECT id"
         " FROM events WHERE time_ms >= ?1 ORDER BY id LIMIT 1), 0x7fffffffffffffff))",
         NULL},

    [STMT_STEP_ADD] = {"INSERT INTO steps($cols) VALUES($marks)", &step_table},
    [STMT_STEP_NUMBER] = {"SELECT coalesce(max(number), 0) FROM steps WHERE machine = ?1", NULL},
    [STMT_STEP_UPDATE] = {"UPDATE steps SET kind = ?4, state = ?5, exec = ?7, what = ?8,"
                          " status = ?9, files = ?10, bytes = ?11, counted = ?12, durable = ?13,"
                          " layer = ?14, has_point = ?15, stack = ?16, reason = ?17, name = ?18"
                          " WHERE id = ?1",
                          &step_table},
    [STMT_STEP_FIND] = {"SELECT $cols FROM steps WHERE machine = ?1 AND state = 2 AND"
                        " (?3 OR id = ?2 OR (NOT ?4 AND name = ?2) OR exec = ?2 OR"
                        " CAST(number AS TEXT) = ?2)"
                        " ORDER BY number DESC LIMIT 1",
                        &step_table},
    [STMT_STEP_POINT] = {"SELECT $cols FROM steps WHERE machine = ?1 AND number < ?2"
                         " AND state = 2 AND has_point ORDER BY number DESC LIMIT 1",
                         &step_table},
    [STMT_STEP_LIST] = {"SELECT $cols FROM steps WHERE machine = ?1 AND number < ?2"
                        " AND state = iif(?3, 1, 2) ORDER BY number DESC LIMIT ?4",
                        &step_table},
    [STMT_STEP_OLDEST] = {"SELECT $cols FROM steps WHERE machine = ?1 AND name IS NULL"
                          " AND state = 2 ORDER BY number LIMIT ?2",
                          &step_table},
    [STMT_STEP_COUNT] = {"SELECT count(*), coalesce(sum(bytes), 0) FROM steps WHERE machine = ?1",
                         NULL},
    [STMT_STEP_NAME] = {"UPDATE steps SET name = nullif(?2, '') WHERE id = ?1", NULL},
    [STMT_STEP_DELETE] = {"DELETE FROM steps WHERE id = ?1", NULL},
    [STMT_ROOT_PUT] = {"INSERT INTO roots($cols) VALUES($marks) ON CONFLICT(machine) DO UPDATE SET"
                       " layer = excluded.layer, stack = excluded.stack",
                       &root_table},
    [STMT_ROOT_GET] = {"SELECT $cols FROM roots WHERE machine = ?1", &root_table},
    [STMT_STACKS_WITH] =
        {"SELECT r.stack FROM roots r JOIN machines m ON m.id = r.machine WHERE m.state < 6"
         " AND instr(r.stack, ?1) UNION SELECT s.stack FROM steps s JOIN machines m"
         " ON m.id = s.machine WHERE m.state < 6 AND instr(s.stack, ?1)",
         NULL},
    [STMT_STACKS_OF_OTHERS] =
        {"SELECT r.stack FROM roots r JOIN machines m ON m.id = r.machine WHERE m.state < 6"
         " AND r.machine != ?1 AND instr(r.stack, ?1) UNION SELECT s.stack FROM steps s"
         " JOIN machines m ON m.id = s.machine WHERE m.state < 6 AND s.machine != ?1"
         " AND instr(s.stack, ?1)",
         NULL},
    [STMT_STACKS_ALL] = {"SELECT r.machine, r.stack FROM roots r JOIN machines m"
                         " ON m.id = r.machine WHERE m.state < 6 UNION SELECT s.machine, s.stack"
                         " FROM steps s JOIN machines m ON m.id = s.machine WHERE m.state < 6",
                         NULL},
    [STMT_SAVED_PUT] = {"INSERT OR REPLACE INTO saved($cols) VALUES($marks)", &saved_table},
    [STMT_SAVED_GET] = {"SELECT $cols FROM saved WHERE machine = ?1", &saved_table},
    [STMT_SAVED_USED] = {"SELECT v.disk FROM saved v JOIN machines m ON m.id = v.machine"
                         " WHERE m.state < 6 UNION ALL SELECT r.stack FROM roots r"
                         " JOIN machines m ON m.id = r.machine WHERE m.state < 6"
                         " UNION ALL SELECT s.stack FROM steps s JOIN machines m"
                         " ON m.id = s.machine WHERE m.state < 6 AND s.stack != ''",
                         NULL},
    [STMT_STEP_DURABLE] = {"UPDATE steps SET durable = id = ?2 WHERE machine = ?1"
                           " AND durable != (id = ?2)",
                           NULL},
    [STMT_STEP_MOVE] = {"UPDATE steps SET stack = ?2, layer = 0 WHERE id = ?1", NULL},
    [STMT_STEPS_LOSE] = {"UPDATE steps SET has_point = 0, layer = 0, stack = '', durable = 0,"
                         " reason = ?3 WHERE machine = ?1 AND id != ?2 AND has_point = 1",
                         NULL},
    [STMT_STEPS_LOSE_BEGUN] = {"DELETE FROM steps WHERE machine = ?1 AND state = 1", NULL},
    [STMT_NETWORK_GET] = {"SELECT policy FROM networks WHERE machine = ?1", NULL},
    [STMT_NETWORK_SET] = {"INSERT INTO networks(machine, policy) VALUES(?1, ?2)"
                          " ON CONFLICT(machine) DO UPDATE SET policy = excluded.policy",
                          NULL},
    [STMT_NETWORK_AUTHORITY_GET] = {"SELECT authority FROM networks WHERE machine = ?1", NULL},
    [STMT_NETWORK_AUTHORITY_SET] = {"INSERT INTO networks(machine, policy, authority)"
                                    " VALUES(?1, '{\"rules\":[]}', ?2)"
                                    " ON CONFLICT(machine) DO UPDATE SET"
                                    " authority = excluded.authority",
                                    NULL},
    [STMT_NETWORK_NAME_PUT] = {"INSERT OR REPLACE INTO network_names(machine, number, name)"
                               " VALUES(?1, ?2, ?3)",
                               NULL},
    [STMT_NETWORK_NAMES] = {"SELECT number, name FROM network_names WHERE machine = ?1"
                            " ORDER BY rowid LIMIT 65536",
                            NULL},

    [STMT_ACCOUNT_PUT] = {"INSERT INTO accounts($cols) VALUES($marks) ON CONFLICT(id) DO UPDATE SET"
                          " limit_tokens = excluded.limit_tokens,"
                          " limit_micro = excluded.limit_micro",
                          &account_table},
    [STMT_ACCOUNT_GET] = {"SELECT $cols FROM accounts WHERE id = ?1", &account_table},
    [STMT_ACCOUNT_DEPTH] = {LINE "SELECT count(*) FROM accounts" IN_LINE, NULL},
    [STMT_ACCOUNT_LINE] = {LINE "SELECT $cols FROM accounts" IN_LINE, &account_table},
    [STMT_ACCOUNT_HOLD] = {LINE "UPDATE accounts SET held_tokens = held_tokens + ?2,"
                                " held_micro = held_micro + ?3" IN_LINE,
                           NULL},
    [STMT_ACCOUNT_SPEND] = {LINE "UPDATE accounts SET held_tokens = max(0, held_tokens - ?2),"
                                 " held_micro = max(0, held_micro - ?3),"
                                 " spent_tokens = spent_tokens + ?4,"
                                 " spent_micro = spent_micro + ?5, calls = calls + 1" IN_LINE,
                            NULL},
    [STMT_HOLD_ADD] = {"INSERT INTO holds($cols) VALUES($marks)", &hold_table},
    [STMT_HOLD_GET] = {"SELECT $cols FROM holds WHERE id = ?1", &hold_table},
    [STMT_HOLD_DROP] = {"DELETE FROM holds WHERE id = ?1", NULL},
    [STMT_HOLD_COUNT] = {"WITH RECURSIVE line(hold, id, depth) AS (SELECT id, account, 1 FROM holds"
                         " UNION ALL SELECT line.hold, a.parent, depth + 1 FROM accounts a"
                         " JOIN line ON a.id = line.id WHERE a.parent IS NOT NULL AND depth < 32)"
                         " SELECT count(*) FROM line WHERE id = ?1",
                         NULL},
    [STMT_HOLD_ANY] = {"SELECT $cols FROM holds LIMIT 1", &hold_table},

    [STMT_SPENDING_ADD] =
        {LINE "INSERT INTO spending(owner, day, machine, model, calls, tokens, micro, fresh,"
              " cache_read, cache_write, written) SELECT"
              " coalesce((SELECT substr(id, 7) FROM line WHERE substr(id, 1, 6) = 'owner:'), ''),"
              " ?2,"
              " coalesce((SELECT substr(id, 9) FROM line WHERE substr(id, 1, 8) = 'machine:'"
              " ORDER BY depth LIMIT 1), ''), ?3, 1, ?4, ?5, ?6, ?7, ?8, ?9 WHERE true"
              " ON CONFLICT(owner, day, machine, model) DO UPDATE SET calls = calls + 1,"
              " tokens = tokens + excluded.tokens, micro = micro + excluded.micro,"
              " fresh = fresh + excluded.fresh, cache_read = cache_read + excluded.cache_read,"
              " cache_write = cache_write + excluded.cache_write,"
              " written = written + excluded.written",
         NULL},
    [STMT_SPENDING_DROP] = {"DELETE FROM spending WHERE day < ?1", NULL},
    [STMT_SPENDING_BY_DAY] = {"SELECT strftime('%Y-%m-%d', day * 86400, 'unixepoch')" SPENT_OF_OWNER
                              " GROUP BY day ORDER BY day DESC LIMIT ?3",
                              NULL},
    [STMT_SPENDING_BY_MODEL] = {"SELECT model" SPENT_OF_OWNER
                                " GROUP BY model ORDER BY 4 DESC, 3 DESC, 1 LIMIT ?3",
                                NULL},
    [STMT_SPENDING_BY_MACHINE] = {"SELECT machine" SPENT_OF_OWNER
                                  " GROUP BY machine ORDER BY 4 DESC, 3 DESC, 1 LIMIT ?3",
                                  NULL},
    [STMT_SPENDING_BY_OWNER] = {"SELECT owner" SPENT_SUMS " AND (?1 IS NULL OR owner = ?1)"
                                " GROUP BY owner ORDER BY 4 DESC, 3 DESC, 1 LIMIT ?3",
                                NULL},

    [STMT_SECRET_PUT] = {"INSERT INTO secrets(owner, name, created_ms, changed_ms, used_ms, sealed)"
                         " VALUES(?1, ?2, ?3, ?3, 0, ?4) ON CONFLICT(owner, name) DO UPDATE SET"
                         " changed_ms = excluded.changed_ms, sealed = excluded.sealed",
                         NULL},
    [STMT_SECRET_VALUE] = {"SELECT sealed FROM secrets WHERE owner = ?1 AND name = ?2", NULL},
    [STMT_SECRET_USED] = {"UPDATE secrets SET used_ms = ?3 WHERE owner = ?1 AND name = ?2"
                          " AND used_ms < ?4",
                          NULL},
    [STMT_SECRET_COUNT] = {"SELECT count(*) FROM secrets WHERE owner = ?1", NULL},
    [STMT_SECRET_LIST] = {"SELECT $cols FROM secrets WHERE owner = ?1 ORDER BY name LIMIT ?2",
                          &secret_table},
    [STMT_SECRET_REMOVE] = {"DELETE FROM secrets WHERE owner = ?1 AND name = ?2", NULL},
    [STMT_EXPOSURE_PUT] = {"INSERT OR REPLACE INTO exposures(machine, port, hash)"
                           " VALUES(?1, ?2, ?3)",
                           NULL},
    [STMT_EXPOSURE_REMOVE] = {"DELETE FROM exposures WHERE machine = ?1 AND port = ?2", NULL},
    [STMT_EXPOSURES] = {"SELECT port, hash FROM exposures WHERE machine = ?1 ORDER BY port"
                        " LIMIT 64",
                        NULL},
    [STMT_PENDING_PUT] = {"INSERT OR REPLACE INTO pendings($cols) VALUES($marks)", &pending_table},
    [STMT_PENDING_REMOVE] = {"DELETE FROM pendings WHERE id = ?1", NULL},
    [STMT_PENDING_LIST] = {"SELECT $cols FROM pendings WHERE machine = ?1"
                           " ORDER BY since_ms, id LIMIT ?2",
                           &pending_table},
    [STMT_GRANT_PUT] = {"INSERT INTO grants($cols) VALUES($marks)"
                        " ON CONFLICT(machine, kind, what, place) DO UPDATE SET"
                        " mode = excluded.mode, detail = excluded.detail,"
                        " expires_ms = excluded.expires_ms",
                        &grant_table},
    [STMT_GRANT_LIST] = {"SELECT $cols FROM grants WHERE machine = ?1"
                         " AND (?2 IS NULL OR kind = ?2) ORDER BY created_ms, kind, what LIMIT ?3",
                         &grant_table},
    [STMT_GRANT_GET] = {"SELECT $cols FROM grants WHERE machine = ?1 AND id = ?2", &grant_table},
    [STMT_GRANT_REMOVE] = {"DELETE FROM grants WHERE id = ?1", NULL},
    [STMT_GRANT_DUE] = {"SELECT coalesce(min(expires_ms), 0) FROM grants WHERE machine = ?1"
                        " AND expires_ms > 0",
                        NULL},
    [STMT_GRANT_KINDS] = {"SELECT grants.kind, count(*) FROM grants JOIN machines ON"
                          " machine = machines.id WHERE state < ?1 GROUP BY 1",
                          NULL},
    [STMT_GRANT_LIVES] = {"SELECT 1 FROM grants JOIN machines ON machine = machines.id"
                          " WHERE grants.id = ?1 AND state < ?2",
                          NULL},
    [STMT_TAINT_PUT] = {"INSERT OR IGNORE INTO taints VALUES(?1, ?2, ?3, ?4, ?5)", NULL},
    [STMT_TAINT_EACH] = {"SELECT key, source FROM taints WHERE owner = ?1 AND kind = ?2"
                         " ORDER BY key",
                         NULL},
    [STMT_TAINT_TRIM] = {"DELETE FROM taints WHERE kind = ?1 AND since_ms < ?2", NULL},
    [STMT_DATABASE_PUT] = {"INSERT OR REPLACE INTO databases($cols) VALUES($marks)",
                           &database_table},
    [STMT_DATABASE_REMOVE] = {"DELETE FROM databases WHERE id = ?1", NULL},
    [STMT_DATABASE_LIST] = {"SELECT $cols FROM databases ORDER BY created_ms, id LIMIT ?1",
                            &database_table},
    [STMT_DATABASE_ORPHANS] = {"SELECT $cols FROM databases WHERE NOT EXISTS (SELECT 1 FROM grants"
                               " JOIN machines ON machines.id = grants.machine"
                               " WHERE grants.id = databases.id AND state < ?2)"
                               " ORDER BY created_ms, id LIMIT ?1",
                               &database_table},
    [STMT_VOLUME_ADD] = {"INSERT INTO volumes($cols) VALUES($marks)", &volume_table},
    [STMT_VOLUME_LIST] = {"SELECT $cols FROM volumes WHERE (?1 IS NULL OR owner = ?1)"
                          " AND (?2 IS NULL OR name = ?2) ORDER BY owner, name LIMIT ?3",
                          &volume_table},
    [STMT_VOLUME_REMOVE] = {"DELETE FROM volumes WHERE id = ?1", NULL},
    [STMT_VOLUME_EXISTS] = {"SELECT $cols FROM volumes WHERE id = ?1", &volume_table},
    [STMT_VOLUME_USES] = {"SELECT $cols FROM grants WHERE kind = 'volume'"
                          " AND (?2 IS NULL OR what = ?2) AND machine IN (SELECT id FROM machines"
                          " WHERE owner = ?1 AND state < 6) ORDER BY created_ms, id",
                          &grant_table},
    [STMT_VOLUME_DISK] = {"SELECT coalesce(sum(bytes), 0) FROM volumes WHERE owner = ?1"
                          " AND (?2 IS NULL OR token = ?2)",
                          NULL},
    [STMT_VOLUME_TOTALS] = {"SELECT count(*), coalesce(sum(bytes), 0) FROM volumes", NULL},
    [STMT_BACKUP_ADD] = {"INSERT INTO backups($cols) VALUES($marks)", &backup_table},
    [STMT_BACKUP_REMOVE] = {"DELETE FROM backups WHERE id = ?1", NULL},
    [STMT_BACKUP_LIST] = {"SELECT $cols FROM backups WHERE (?1 IS NULL OR owner = ?1)"
                          " AND (?2 IS NULL OR machine = ?2) AND (?3 IS NULL OR id = ?3)"
                          " ORDER BY created_ms DESC, id LIMIT ?4",
                          &backup_table},
    [STMT_BACKUP_LAST] = {"SELECT coalesce(max(created_ms), 0) FROM backups WHERE machine = ?1",
                          NULL},
    [STMT_BACKUP_DISK] = {"SELECT coalesce(sum(written), 0) FROM backups WHERE owner = ?1"
                          " AND (?2 IS NULL OR token = ?2)",
                          NULL},
    [STMT_TAINT_REMOVE] = {"DELETE FROM taints WHERE owner = ?1 AND kind = ?2 AND key = ?3", NULL},
    [STMT_TIMER_PUT] = {"INSERT OR REPLACE INTO timers($cols) VALUES($marks)", &timer_table},
    [STMT_TIMER_LIST] = {"SELECT $cols FROM timers WHERE (?1 IS NULL OR owner = ?1)"
                         " AND (?2 IS NULL OR machine = ?2) AND (?3 IS NULL OR id = ?3)"
                         " AND EXISTS (SELECT 1 FROM machines AS m"
                         " WHERE m.id = timers.machine AND m.state < 6)"
                         " ORDER BY next_ms, id LIMIT ?4",
                         &timer_table},
    [STMT_TIMER_DUE] = {"SELECT $cols FROM timers WHERE (next_ms > 0 AND next_ms <= ?1)"
                        " OR (?2 AND due_ms > 0) ORDER BY next_ms, id LIMIT 16",
                        &timer_table},
    [STMT_TIMER_NEXT] = {"SELECT coalesce(min(next_ms), 0) FROM timers WHERE next_ms > 0", NULL},
    [STMT_TIMER_REMOVE] = {"DELETE FROM timers WHERE id = ?1", NULL},
    [STMT_CHANGESET_NUMBER] = {"SELECT coalesce(max(number), 0) + 1 FROM changesets", NULL},
    [STMT_CHANGESET_ADD] = {"INSERT INTO changesets($cols) VALUES($marks)", &changeset_table},
    [STMT_CHANGESET_FIND] = {"SELECT $cols FROM changesets WHERE id = ?1", &changeset_table},
    [STMT_CHANGESET_LAST] = {"SELECT $cols FROM changesets WHERE machine = ?1 AND subject = ?2"
                             " AND state < 5 ORDER BY number DESC LIMIT 1",
                             &changeset_table},
    [STMT_CHANGESET_SET] = {"UPDATE changesets SET state = ?2, instead = ?3, changed_ms = ?4"
                            " WHERE id = ?1",
                            NULL},
    [STMT_CHANGESET_LIST] = {CHANGESETS(""), &changeset_table},
    [STMT_CHANGESET_LIST_OWNER] = {CHANGESETS("owner = ?4 AND "), &changeset_table},
    [STMT_CHANGESET_LIST_MACHINE] = {CHANGESETS("machine = ?5 AND (?4 IS NULL OR owner = ?4) AND "),
                                     &changeset_table},
    [STMT_CHANGESET_COUNT] = {"SELECT count(*) FROM changesets WHERE state < 6", NULL},
    [STMT_CHANGESETS_RETURN] = {"UPDATE changesets SET state = 2, changed_ms = ?2"
                                " WHERE machine = ?1 AND state = 1 AND created_ms <= ?2",
                                NULL},
    [STMT_CHANGESETS_FORGET] = {"DELETE FROM changesets WHERE number IN (SELECT number"
                                " FROM changesets WHERE state = 6 AND changed_ms < ?1 LIMIT ?2)",
                                NULL},
    [STMT_BUILD_PUT] = {"INSERT OR REPLACE INTO builds($cols) VALUES($marks)", &build_table},
    [STMT_BUILD_LIST] = {"SELECT $cols FROM builds WHERE (?1 IS NULL OR owner = ?1)"
                         " AND (?2 IS NULL OR id = ?2) ORDER BY started_ms DESC, id LIMIT ?3",
                         &build_table},
    [STMT_BUILD_DELETE] = {"DELETE FROM builds WHERE id = ?1", NULL},
    [STMT_BUILDS_LOSE] = {"UPDATE builds SET state = ?3, ended_ms = ?1, code = 'unknown',"
                          " error = ?2 WHERE state <= ?4",
                          NULL},
    [STMT_IMAGE_PUT] = {"INSERT OR REPLACE INTO images($cols) VALUES($marks)", &image_table},
    /* Finds images by name, id or the beginning of an id; a match by name comes first. */
    [STMT_IMAGE_FIND] = {"SELECT $cols FROM images WHERE (?1 IS NULL OR owner = ?1) AND (name = ?2"
                         " OR (length(?2) >= 6 AND substr(id, 1, length(?2)) = ?2))"
                         " ORDER BY name = ?2 DESC, id, name LIMIT ?3",
                         &image_table},
    [STMT_IMAGE_LIST] = {"SELECT $cols FROM images WHERE ?1 IS NULL OR owner = ?1"
                         " ORDER BY name, owner LIMIT ?2",
                         &image_table},
    [STMT_IMAGE_DELETE] = {"DELETE FROM images WHERE owner = ?1 AND name = ?2", NULL},
    [STMT_IMAGE_TOTALS] = {"SELECT (SELECT count(*) FROM images), count(*), coalesce(sum(bytes), 0)"
                           " FROM (SELECT max(bytes) AS bytes FROM images GROUP BY id)",
                           NULL},
    [STMT_IMAGE_DISK] =
        {"SELECT coalesce(sum(bytes), 0) FROM (SELECT max(disk_bytes) AS bytes"
         " FROM images WHERE owner = ?1 AND (?2 IS NULL OR token = ?2) GROUP BY id)",
         NULL},
    [STMT_IMAGE_USES] = {"SELECT (SELECT count(*) FROM images WHERE id = ?1)"
                         " + (SELECT count(*) FROM machines WHERE image = ?1 AND state < 6"
                         " AND image != 'host')",
                         NULL},
    [STMT_IMAGE_MACHINES] = {"SELECT count(*) FROM machines WHERE image = ?1 AND state < 6"
                             " AND image != 'host' AND (?2 IS NULL OR owner = ?2)",
                             NULL},
};

static bool put_list(const struct table *t, bool marks, struct buf *ret) {
    for (size_t i = 0; i < t->count; i++) {
        const char *comma = i ? ", " : "";
        if (marks ? !buf_addf(ret, "%s?%zu", comma, i + 1)
                  : !buf_addf(ret, "%s%s", comma, t->columns[i].name))
            return false;
    }
    return true;
}

bool statement_text(enum statement id, struct buf *ret) {
    const char *sql = statements[id].sql;
    while (*sql) {
        size_t plain = strcspn(sql, "$");
        if (!buf_add(ret, sql, plain))
            return false;
        sql += plain;
        if (*sql == '\0')
            break;
        bool marks = strncmp(sql, "$marks", 6) == 0;
        if (!put_list(statements[id].table, marks, ret))
            return false;
        sql += marks ? 6 : 5;
    }
    return true;
}
