#include "store/machines.h"

#include <string.h>

#include "store/store.h"

static const char *const state_names[] = {"",        "creating", "running", "paused",
                                          "stopped", "ending",   "ended"};
static const char *const by_names[] = {"", "idle", "owner", "admin"};
static const char *const action_names[] = {"", "pause", "stop", "destroy", "release"};
/* The number of an action is one less, because rows of older stores have 0. */
static const char *const ttl_names[] = {"", "destroy", "pause"};
static const char *const policy_names[] = {"", "manual", "every", "risky"};
static const struct names states = {"state", state_names, MACHINE_STATE_LAST + 1};
static const struct names state_bys = {"cause", by_names, STATE_BY_LAST + 1};
static const struct names actions = {"idle action", action_names, IDLE_ACTION_LAST + 1};
static const struct names ttl_actions = {"action at the end of the ttl", ttl_names,
                                         TTL_ACTION_LAST + 2};
static const struct names policies = {"step policy", policy_names, STEP_POLICY_LAST + 1};

const char *machine_state_name(enum machine_state state) {
    return names_get(&states, (int)state);
}

const char *state_by_name(enum state_by by) {
    return names_get(&state_bys, (int)by);
}

const char *idle_action_name(enum idle_action action) {
    return names_get(&actions, (int)action);
}

const char *step_policy_name(enum step_policy policy) {
    return names_get(&policies, (int)policy);
}

const char *ttl_action_name(enum ttl_action action) {
    return names_get(&ttl_actions, (int)action + 1);
}

int machine_state_parse(const char *name, enum machine_state *ret, struct err *err) {
    int value = 0;
    if (names_parse(&states, name, &value, err) < 0)
        return -1;
    *ret = (enum machine_state)value;
    return 0;
}

int idle_action_parse(const char *name, enum idle_action *ret, struct err *err) {
    int value = 0;
    if (names_parse(&actions, name, &value, err) < 0)
        return -1;
    *ret = (enum idle_action)value;
    return 0;
}

int step_policy_parse(const char *name, enum step_policy *ret, struct err *err) {
    int value = 0;
    if (names_parse(&policies, name, &value, err) < 0)
        return -1;
    *ret = (enum step_policy)value;
    return 0;
}

int on_ttl_parse(const char *name, struct machine_row *row, struct err *err) {
    int value = 0;
    if (names_parse(&ttl_actions, name, &value, err) < 0)
        return -1;
    row->on_ttl = (uint32_t)value - 1;
    return 0;
}

void machine_row_done(struct machine_row *row) {
    row_done(&machine_table, row);
}

void machine_list_done(struct machine_list *list) {
    rows_free(&machine_table, list->rows, list->count);
    *list = (struct machine_list){0};
}

int store_machine_by_key(struct store *s, const char *owner, const char *key,
                         const uint8_t hash[SHA256_BYTES], char ret_id[ID_SIZE], struct err *err) {
    QUERY;
    ret_id[0] = '\0';
    if (key[0] == '\0')
        return 0;
    if (query_start(&q, s, STMT_MACHINE_BY_KEY, err) < 0)
        return -1;
    query_text(&q, 1, owner);
    query_text(&q, 2, key);
    return idempotency_check(&q, hash, key, ret_id, err);
}

static int made_before(struct store *s, const struct machine_row *row, char ret_existing[ID_SIZE],
                       struct err *err) {
    return store_machine_by_key(s, row->owner, row->key, row->request_hash, ret_existing, err);
}

static int explain_add(const struct machine_row *row, struct err *err) {
    if (!err)
        return -1;
    if (err->code == ERR_EXISTS && row->name[0]) {
        err_set(err, ERR_EXISTS, "machine '%s' already exists", row->name);
        err_remedy(err, "choose another name, or delete the machine: carrel rm %s", row->name);
    } else if (err->code == ERR_NOT_FOUND) {
        err_set(err, ERR_NOT_FOUND, "owner '%s' does not exist", row->owner);
    }
    return -1;
}

int store_machine_add(struct store *s, const struct machine_row *row, char ret_existing[ID_SIZE],
                      struct err *err) {
    QUERY;
    int before = made_before(s, row, ret_existing, err);
    if (before != 0)
        return before < 0 ? -1 : 0;
    if (query_start(&q, s, STMT_MACHINE_ADD, err) < 0 ||
        query_bind(&q, &machine_table, row, err) < 0)
        return -1;
    return query_run(&q, NULL, err) < 0 ? explain_add(row, err) : 0;
}

int store_machine_get(struct store *s, const char *id, struct machine_row *ret, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_MACHINE_GET, err) < 0)
        return -1;
    query_text(&q, 1, id);
    return query_one(&q, &machine_table, ret, "machine", id, err);
}

/*
 * Returns 1 if exactly one machine matches, 0 if none does. Live machines come first; an ended one
 * does not count beside a live one.
 */
static int only_one(struct query *q, const char *text, struct machine_row *ret, struct err *err) {
    struct machine_row other;
    int got = query_step(q, err);
    if (got <= 0)
        return got;
    if (query_read(q, &machine_table, ret, err) < 0)
        return -1;
    got = query_step(q, err);
    if (got == 1 && query_read(q, &machine_table, &other, err) < 0)
        got = -1;
    if (got == 1) {
        machine_row_done(&other);
        if (ret->state != MACHINE_ENDED && other.state == MACHINE_ENDED)
            return 1;
    }
    if (got == 0)
        return 1;
    machine_row_done(ret);
    if (got < 0)
        return -1;
    err_set(err, ERR_INVALID, "'%.80s' matches several machines", text);
    return err_remedy(err, "use the full id; list machines with carrel ls");
}

static int find_by_name(struct store *s, const char *owner, const char *name,
                        struct machine_row *ret, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_MACHINE_BY_NAME, err) < 0)
        return -1;
    query_text(&q, 1, owner);
    query_text(&q, 2, name);
    return only_one(&q, name, ret, err);
}

static int find_by_prefix(struct store *s, const char *owner, const char *prefix,
                          struct machine_row *ret, struct err *err) {
    QUERY;
    char end[ID_SIZE];
    size_t n = strlen(prefix);
    if (n < 3 || n >= ID_SIZE)
        return 0;
    if (query_start(&q, s, STMT_MACHINE_BY_PREFIX, err) < 0)
        return -1;
    /* All ids with the prefix sort before `end`. */
    memcpy(end, prefix, n + 1);
    end[n - 1]++;
    query_text(&q, 1, owner);
    query_text(&q, 2, prefix);
    query_text(&q, 3, end);
    return only_one(&q, prefix, ret, err);
}

/* A whole id means the machine with this id, even if another machine has it as its name. */
static int find_by_id(struct store *s, const char *owner, const char *id, struct machine_row *ret,
                      struct err *err) {
    if (store_machine_get(s, id, ret, err) < 0)
        return -1;
    if (!owner || strcmp(owner, ret->owner) == 0)
        return 0;
    machine_row_done(ret);
    return err_set(err, ERR_NOT_FOUND, "machine '%.80s' does not exist", id);
}

int store_machine_find(struct store *s, const char *owner, const char *text,
                       struct machine_row *ret, struct err *err) {
    if (id_valid(text, strlen(text), 'm'))
        return find_by_id(s, owner, text, ret, err);
    int found = find_by_name(s, owner, text, ret, err);
    if (found == 0)
        found = find_by_prefix(s, owner, text, ret, err);
    if (found == 0)
        return err_set(err, ERR_NOT_FOUND, "machine '%.80s' does not exist", text);
    return found < 0 ? -1 : 0;
}

static int read_rows(struct query *q, struct machine_list *ret, struct err *err) {
    struct machine_list list DEFER(machine_list_done) = {0};
    size_t room = 0;
    int got;
    while ((got = query_step(q, err)) == 1) {
        list.last = (uint64_t)sqlite3_column_int64(q->stmt, (int)machine_table.count);
        if (list.count == room) {
            room = room ? 2 * room : 16;
            struct machine_row *more = realloc(list.rows, room * sizeof(*more));
            if (!more)
                return err_set(err, ERR_LIMIT, "cannot list machines: out of memory");
            list.rows = more;
        }
        if (query_read(q, &machine_table, &list.rows[list.count], NULL) < 0)
            list.damaged++;
        else
            list.count++;
    }
    if (got < 0)
        return -1;
    *ret = list;
    list = (struct machine_list){0};
    return 0;
}

int store_machine_list(struct store *s, const struct machine_filter *f, struct machine_list *ret,
                       struct err *err) {
    QUERY;
    unsigned wanted = f->states ? f->states : MACHINE_STATES_ALL & ~(1u << MACHINE_ENDED);
    enum statement list = STMT_MACHINE_LIST;
    if (!(wanted & 1u << MACHINE_ENDED))
        list = f->owner ? STMT_MACHINE_LIST_OWNER : STMT_MACHINE_LIST_LIVE;
    if (query_start(&q, s, list, err) < 0)
        return -1;
    query_text(&q, 1, f->owner);
    query_text(&q, 2, f->name);
    query_text(&q, 3, f->kind);
    query_text(&q, 4, f->meta_key);
    query_text(&q, 5, f->meta_value ? f->meta_value : "");
    query_i64(&q, 6, wanted);
    query_u64(&q, 7, f->before ? f->before : STORE_NUMBER_MAX);
    query_u64(&q, 8, page_limit(f->limit));
    return read_rows(&q, ret, err);
}

static int run_on(struct query *q, const char *id, struct err *err) {
    size_t changed;
    if (query_run(q, &changed, err) < 0)
        return -1;
    return changed ? 0 : err_set(err, ERR_NOT_FOUND, "machine '%.80s' does not exist", id);
}

int store_machine_update(struct store *s, const struct machine_row *row, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_MACHINE_UPDATE, err) < 0 ||
        query_bind(&q, &machine_table, row, err) < 0)
        return -1;
    return run_on(&q, row->id, err) < 0 ? explain_add(row, err) : 0;
}

int store_machine_set_state(struct store *s, const char *id, enum machine_state state,
                            enum state_by by, struct err *err) {
    QUERY;
    if (!machine_state_name(state))
        return err_set(err, ERR_INVALID,
                       "bug in Carrel: machine '%s' cannot get the unknown state %d", id,
                       (int)state);
    if (query_start(&q, s, STMT_MACHINE_STATE, err) < 0)
        return -1;
    query_text(&q, 1, id);
    query_i64(&q, 2, state);
    query_i64(&q, 3, by);
    return run_on(&q, id, err);
}

int store_machine_set_running(struct store *s, const char *id, uint64_t incarnation,
                              struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_MACHINE_RUNNING, err) < 0)
        return -1;
    query_text(&q, 1, id);
    query_i64(&q, 2, (int64_t)incarnation);
    query_i64(&q, 3, MACHINE_RUNNING);
    query_i64(&q, 4, STATE_BY_OTHER);
    return run_on(&q, id, err);
}

int store_machine_unkey(struct store *s, const char *id, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_MACHINE_UNKEY, err) < 0)
        return -1;
    query_text(&q, 1, id);
    return run_on(&q, id, err);
}

int store_machine_set_tokens(struct store *s, const char *id, uint64_t generation,
                             struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_MACHINE_TOKENS, err) < 0)
        return -1;
    query_text(&q, 1, id);
    query_u64(&q, 2, generation);
    return run_on(&q, id, err);
}

int store_machine_end(struct store *s, const char *id, int64_t ended_ms, const char *reason,
                      struct err *err) {
    QUERY;
    char text[STORE_REASON_SIZE];
    snprintf(text, sizeof(text), "%s", reason);
    if (query_start(&q, s, STMT_MACHINE_END, err) < 0)
        return -1;
    query_text(&q, 1, id);
    query_i64(&q, 2, ended_ms);
    query_text(&q, 3, text);
    return run_on(&q, id, err);
}

int store_machine_old(struct store *s, int64_t ended_before_ms, size_t most, struct id_list *ret,
                      struct err *err) {
    QUERY;
    struct id_list list DEFER(id_list_done) = {.ids = calloc(page_limit(most), ID_SIZE)};
    int status;
    if (!list.ids)
        return err_set(err, ERR_LIMIT, "cannot list machines: out of memory");
    if (query_start(&q, s, STMT_MACHINE_OLD, err) < 0)
        return -1;
    query_i64(&q, 1, ended_before_ms);
    query_u64(&q, 2, page_limit(most));
    while ((status = query_step(&q, err)) == 1)
        snprintf(list.ids[list.count++], ID_SIZE, "%s",
                 (const char *)sqlite3_column_text(q.stmt, 0));
    if (status < 0)
        return -1;
    *ret = list;
    list.ids = NULL;
    return 0;
}

int store_machine_ids(struct store *s, struct id_list *ret, struct err *err) {
    QUERY;
    struct id_list list DEFER(id_list_done) = {0};
    size_t room = 0;
    int got;
    if (query_start(&q, s, STMT_MACHINE_IDS, err) < 0)
        return -1;
    while ((got = query_step(&q, err)) == 1) {
        const char *id = (const char *)sqlite3_column_text(q.stmt, 0);
        if (!id || !id_valid(id, strlen(id), 'm')) {
            err_set(err, ERR_INTERNAL, "a row of table 'machines' is damaged: it has no id");
            return err_remedy(err, "restore carrel.db from a backup");
        }
        if (list.count == room) {
            room = room ? 2 * room : 64;
            void *more = realloc(list.ids, room * ID_SIZE);
            if (!more)
                return err_set(err, ERR_LIMIT, "cannot list machines: out of memory");
            list.ids = more;
        }
        memcpy(list.ids[list.count++], id, ID_SIZE);
    }
    if (got < 0)
        return -1;
    *ret = list;
    list = (struct id_list){0};
    return 0;
}

void id_list_done(struct id_list *list) {
    free(list->ids);
    *list = (struct id_list){0};
}

int store_machine_trim(struct store *s, int64_t ended_before_ms, size_t most, size_t *ret_count,
                       struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_MACHINE_TRIM, err) < 0)
        return -1;
    query_i64(&q, 1, ended_before_ms);
    query_u64(&q, 2, most);
    return query_run(&q, ret_count, err);
}

/* Reads the disk space of an owner's images, volumes or backups. */
static int quota_disk(struct store *s, enum statement of, const char *owner, const char *token,
                      uint64_t *ret, struct err *err) {
    QUERY;
    if (query_start(&q, s, of, err) < 0)
        return -1;
    query_text(&q, 1, owner);
    query_text(&q, 2, token);
    if (query_step(&q, err) != 1)
        return -1;
    *ret = (uint64_t)sqlite3_column_int64(q.stmt, 0);
    return 0;
}

int store_quota_used(struct store *s, const char *owner, const char *token, struct quota *ret,
                     struct err *err) {
    QUERY;
    uint64_t images, volumes, backups;
    if (quota_disk(s, STMT_IMAGE_DISK, owner, token, &images, err) < 0 ||
        quota_disk(s, STMT_VOLUME_DISK, owner, token, &volumes, err) < 0 ||
        quota_disk(s, STMT_BACKUP_DISK, owner, token, &backups, err) < 0)
        return -1;
    images += backups;
    if (query_start(&q, s, token ? STMT_MACHINE_QUOTA_TOKEN : STMT_MACHINE_QUOTA, err) < 0)
        return -1;
    query_text(&q, 1, owner);
    if (token)
        query_text(&q, 2, token);
    if (query_step(&q, err) != 1)
        return -1;
    *ret = (struct quota){
        .machines = (uint64_t)sqlite3_column_int64(q.stmt, 0),
        .cpu_milli = (uint64_t)sqlite3_column_int64(q.stmt, 1),
        .mem_bytes = (uint64_t)sqlite3_column_int64(q.stmt, 2),
        .disk_bytes = (uint64_t)sqlite3_column_int64(q.stmt, 3) + images + volumes,
    };
    return 0;
}

int store_machine_counts(struct store *s, const char *owner, uint64_t counts[MACHINE_ENDED + 1],
                         struct err *err) {
    QUERY;
    int got;
    if (query_start(&q, s, owner ? STMT_MACHINE_COUNTS_OWNER : STMT_MACHINE_COUNTS, err) < 0)
        return -1;
    if (owner)
        query_text(&q, 1, owner);
    memset(counts, 0, (MACHINE_ENDED + 1) * sizeof(*counts));
    while ((got = query_step(&q, err)) == 1) {
        int64_t state = sqlite3_column_int64(q.stmt, 0);
        if (state > 0 && state <= MACHINE_ENDED)
            counts[state] = (uint64_t)sqlite3_column_int64(q.stmt, 1);
    }
    return got;
}
