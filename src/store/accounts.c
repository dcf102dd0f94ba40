#include "store/accounts.h"

#include <string.h>

#include "base/amount.h"
#include "store/spending/spending.h"
#include "store/store.h"

struct hold_row {
    char id[ID_SIZE]; /* "h-..." */
    char account[ACCOUNT_ID_SIZE];
    char model[ACCOUNT_MODEL_SIZE];
    int64_t created_ms;
    uint64_t tokens;
    uint64_t micro;
};

#define HOLD_TEXT(m) #m, COL_TEXT, offsetof(struct hold_row, m), sizeof(((struct hold_row *)0)->m)
static const struct column hold_columns[] = {
    {HOLD_TEXT(id)},
    {HOLD_TEXT(account)},
    {HOLD_TEXT(model)},
    {"created_ms", COL_I64, offsetof(struct hold_row, created_ms), 0},
    {"tokens", COL_U64, offsetof(struct hold_row, tokens), 0},
    {"micro", COL_U64, offsetof(struct hold_row, micro), 0},
};
const struct table hold_table = {"holds", sizeof(struct hold_row), hold_columns,
                                 sizeof(hold_columns) / sizeof(*hold_columns)};

int store_account_get(struct store *s, const char *id, struct account_row *ret, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_ACCOUNT_GET, err) < 0)
        return -1;
    query_text(&q, 1, id);
    return query_one(&q, &account_table, ret, "account", id, err);
}

/* Counts the accounts from `id` up to its topmost parent, both included; 0: no such account. */
static int depth_of(struct store *s, const char *id, int64_t *ret, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_ACCOUNT_DEPTH, err) < 0)
        return -1;
    query_text(&q, 1, id);
    if (query_step(&q, err) < 0)
        return -1;
    *ret = sqlite3_column_int64(q.stmt, 0);
    return 0;
}

static int check_parent(struct store *s, const struct account_row *row, struct err *err) {
    int64_t depth = 0;
    if (row->parent[0] == '\0')
        return 0;
    if (depth_of(s, row->parent, &depth, err) < 0)
        return -1;
    if (depth == 0)
        return err_set(err, ERR_NOT_FOUND, "account '%s' does not exist", row->parent);
    if (depth < ACCOUNT_DEPTH_MAX)
        return 0;
    return err_set(err, ERR_LIMIT, "account '%s' would be nested more than %d levels deep", row->id,
                   ACCOUNT_DEPTH_MAX);
}

int store_account_put(struct store *s, const struct account_row *row, struct err *err) {
    QUERY;
    if (row->id[0] == '\0')
        return err_set(err, ERR_INVALID, "the id of the account is empty");
    if (check_parent(s, row, err) < 0 || query_start(&q, s, STMT_ACCOUNT_PUT, err) < 0 ||
        query_bind(&q, &account_table, row, err) < 0)
        return -1;
    return query_run(&q, NULL, err);
}

static void lower(uint64_t *least, uint64_t limit, uint64_t used) {
    uint64_t left = used < limit ? limit - used : 0;
    if (limit > 0 && left < *least)
        *least = left;
}

int store_account_left(struct store *s, const char *id, struct cost *ret, struct err *err) {
    QUERY;
    struct cost least = {UINT64_MAX, UINT64_MAX};
    bool any = false;
    int got;
    if (query_start(&q, s, STMT_ACCOUNT_LINE, err) < 0)
        return -1;
    query_text(&q, 1, id);
    while ((got = query_step(&q, err)) == 1) {
        struct account_row a;
        if (query_read(&q, &account_table, &a, err) < 0)
            return -1;
        lower(&least.tokens, a.limit_tokens, a.spent_tokens + a.held_tokens);
        lower(&least.micro, a.limit_micro, a.spent_micro + a.held_micro);
        any = true;
    }
    if (got < 0)
        return -1;
    if (!any)
        return err_set(err, ERR_NOT_FOUND, "account '%s' does not exist", id);
    *ret = least;
    return 0;
}

/* ---- Holds: reserving the cost of a call ---- */

static bool is_short(uint64_t limit, uint64_t used, uint64_t more) {
    return limit > 0 && (used > limit || more > limit - used);
}

/* One limit of an account that leaves no room for a call. */
struct shortage {
    enum amount_unit unit;
    uint64_t limit, used, spent, amount, least; /* used: spent or held */
};

/* The smallest of 1, 2 and 4 times a power of ten that is at least n: an amount to raise a limit
 * to. opencode repeats a call if the message contains 500, so 5 is not among them. */
static uint64_t round_amount(uint64_t n) {
    static const uint64_t steps[] = {1, 2, 4};
    for (uint64_t power = 1; power < STORE_NUMBER_MAX / 10; power *= 10)
        for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++)
            if (steps[i] * power >= n)
                return steps[i] * power;
    return n;
}

/* Says how the owner raises the limit of this account. */
static int remedy_for(const struct account_row *a, const struct shortage *s, struct err *err) {
    char wanted[AMOUNT_SIZE];
    bool is_money = s->unit == AMOUNT_MICROS;
    const char *name = strchr(a->id, ':');
    amount_show(s->unit, round_amount(2 * (s->used + s->amount)), wanted);
    if (strncmp(a->id, "machine:", 8) == 0)
        return err_remedy(err, "carrel models raise %s --%s %s", name + 1,
                          is_money ? "money" : "tokens", wanted);
    if (strncmp(a->id, "owner:", 6) == 0)
        return err_remedy(err, "raise owner_%s in carrel.conf", is_money ? "money" : "tokens");
    return err_remedy(err, "raise the budget, or ask for fewer tokens");
}

/* As amount_show(), but with commas between thousands: 5000000 also contains 500, see above. */
static void show_in_message(enum amount_unit unit, uint64_t n, char ret[AMOUNT_SIZE + 8]) {
    char digits[AMOUNT_SIZE];
    amount_show(unit, n, digits);
    size_t len = strcspn(digits, "."), at = 0;
    for (size_t i = 0; digits[i]; i++) {
        if (i && i < len && (len - i) % 3 == 0)
            ret[at++] = ',';
        ret[at++] = digits[i];
    }
    ret[at] = '\0';
}

/*
 * ERR_BUSY: the call, or its smallest form, fits once other calls are settled. ERR_LIMIT: it does
 * not fit whatever they cost.
 */
static int too_little(const struct account_row *a, const struct hold *h, const struct shortage *s,
                      struct err *err) {
    enum { SIZE = AMOUNT_SIZE + 8 };
    char limit[SIZE], spent[SIZE], amount[SIZE], of[ACCOUNT_ID_SIZE + 8] = "";
    bool fits_later = s->used > s->spent && !is_short(s->limit, s->spent, s->least);
    const char *unit = s->unit != AMOUNT_MICROS ? "tokens" : h->currency ? h->currency : "";
    show_in_message(s->unit, s->limit, limit);
    show_in_message(s->unit, s->spent, spent);
    show_in_message(s->unit, s->amount, amount);
    if (strncmp(a->id, "machine:", 8) != 0)
        snprintf(of, sizeof(of), " of %s", a->id);
    err_set(err, fits_later ? ERR_BUSY : ERR_LIMIT,
            "budget%s %s%s%s, spent %s, this call may take %s", of, limit, unit[0] ? " " : "", unit,
            spent, amount);
    return remedy_for(a, s, err);
}

static int check_limit(const struct account_row *a, const struct hold *h, const struct shortage *s,
                       struct err *err) {
    return is_short(s->limit, s->used, s->amount) ? too_little(a, h, s, err) : 0;
}

/* Sets *err, which is clear before, to ERR_BUSY only if no limit refuses the call altogether. */
static int check_account(const struct account_row *a, const struct hold *h, struct err *err) {
    uint64_t tokens = a->spent_tokens + a->held_tokens, micro = a->spent_micro + a->held_micro;
    const struct shortage in_tokens = {AMOUNT_ONES,     a->limit_tokens,  tokens,
                                       a->spent_tokens, h->amount.tokens, h->least.tokens};
    const struct shortage in_money = {AMOUNT_MICROS,  a->limit_micro,  micro,
                                      a->spent_micro, h->amount.micro, h->least.micro};
    if (a->limit_micro > 0 && !h->priced) {
        err_set(err, ERR_UNSUPPORTED,
                "the price of model '%s' is not known, so the money budget of account '%s' cannot "
                "be enforced",
                h->model, a->id);
        return err_remedy(err, "set the price of the model in carrel.conf ([models] model), or use "
                               "a budget in tokens");
    }
    if (tokens + h->amount.tokens > STORE_NUMBER_MAX || micro + h->amount.micro > STORE_NUMBER_MAX)
        return err_set(err, ERR_LIMIT, "the total cost of account '%s' is too large to store",
                       a->id);
    if (check_limit(a, h, &in_tokens, err) < 0 && err->code != ERR_BUSY)
        return -1;
    return check_limit(a, h, &in_money, err) < 0 || err->code == ERR_BUSY ? -1 : 0;
}

/* Counts the open holds of the account and of the accounts below it. */
static int open_holds(struct store *s, const char *account, int64_t *ret, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_HOLD_COUNT, err) < 0)
        return -1;
    query_text(&q, 1, account);
    if (query_step(&q, err) < 0)
        return -1;
    *ret = sqlite3_column_int64(q.stmt, 0);
    return 0;
}

/* An estimate may be too low, so few calls of one budget may be in flight. */
static int check_flights(struct store *s, const struct account_row *a, struct err *err) {
    int64_t open = 0;
    if (!a->limit_tokens && !a->limit_micro)
        return 0;
    if (open_holds(s, a->id, &open, err) < 0)
        return -1;
    return open < ACCOUNT_FLIGHTS_MAX
               ? 0
               : err_set(err, ERR_BUSY, "%d model calls of account '%s' are in progress",
                         ACCOUNT_FLIGHTS_MAX, a->id);
}

static int pass_on(const struct err *from, struct err *to) {
    if (to)
        *to = *from;
    return -1;
}

/* ERR_BUSY only if no account refuses the call for another reason. */
static int check_line(struct store *s, const struct hold *h, struct err *err) {
    QUERY;
    struct err busy = {0}, found = {0};
    bool any = false;
    int got;
    if (query_start(&q, s, STMT_ACCOUNT_LINE, err) < 0)
        return -1;
    query_text(&q, 1, h->account);
    while ((got = query_step(&q, err)) == 1) {
        struct account_row a;
        any = true;
        if (query_read(&q, &account_table, &a, err) < 0)
            return -1;
        found.code = 0;
        if (check_account(&a, h, &found) == 0 && check_flights(s, &a, &found) == 0)
            continue;
        if (found.code != ERR_BUSY)
            return pass_on(&found, err);
        busy = found;
    }
    if (got == 0 && !any)
        return err_set(err, ERR_NOT_FOUND, "account '%s' does not exist", h->account);
    return got == 0 && busy.code ? pass_on(&busy, err) : got;
}

/* Adds `c` to the held amounts of the account and of all its parents. */
static int add_held(struct store *s, const char *account, const struct cost *c, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_ACCOUNT_HOLD, err) < 0)
        return -1;
    query_text(&q, 1, account);
    query_u64(&q, 2, c->tokens);
    query_u64(&q, 3, c->micro);
    return query_run(&q, NULL, err);
}

static int add_hold(struct store *s, const struct hold_row *row, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_HOLD_ADD, err) < 0 || query_bind(&q, &hold_table, row, err) < 0)
        return -1;
    return query_run(&q, NULL, err);
}

static int make_row(const struct hold *h, struct hold_row *ret, struct err *err) {
    struct id id = id_new('h');
    *ret = (struct hold_row){
        .created_ms = h->now_ms, .tokens = h->amount.tokens, .micro = h->amount.micro};
    memcpy(ret->id, id.text, sizeof(ret->id));
    if (h->amount.tokens > STORE_NUMBER_MAX || h->amount.micro > STORE_NUMBER_MAX)
        return err_set(err, ERR_LIMIT, "the cost of the model call is out of range");
    if (strlen(h->account) >= sizeof(ret->account) || strlen(h->model) >= sizeof(ret->model))
        return err_set(err, ERR_LIMIT, "the name of the account or the model is too long");
    memcpy(ret->account, h->account, strlen(h->account));
    memcpy(ret->model, h->model, strlen(h->model));
    return 0;
}

int store_hold(struct store *s, const struct hold *hold, char ret_id[ID_SIZE], struct err *err) {
    struct hold_row row;
    if (make_row(hold, &row, err) < 0 || store_begin(s, err) < 0)
        return -1;
    if (check_line(s, hold, err) < 0 || add_held(s, hold->account, &hold->amount, err) < 0 ||
        add_hold(s, &row, err) < 0 || store_commit(s, err) < 0) {
        store_rollback(s);
        return -1;
    }
    memcpy(ret_id, row.id, ID_SIZE);
    return 0;
}

/* ---- Settling holds ---- */

static int get_hold(struct store *s, const char *id, struct hold_row *ret, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_HOLD_GET, err) < 0)
        return -1;
    query_text(&q, 1, id);
    return query_one(&q, &hold_table, ret, "open hold", id, err);
}

static int drop_hold(struct store *s, const char *id, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_HOLD_DROP, err) < 0)
        return -1;
    query_text(&q, 1, id);
    return query_run(&q, NULL, err);
}

uint64_t account_at_most(uint64_t n) {
    const uint64_t most = STORE_NUMBER_MAX / 1024;
    return n < most ? n : most;
}

static int spend(struct store *s, const struct hold_row *row, const struct cost *real,
                 struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_ACCOUNT_SPEND, err) < 0)
        return -1;
    query_text(&q, 1, row->account);
    query_u64(&q, 2, row->tokens);
    query_u64(&q, 3, row->micro);
    query_u64(&q, 4, account_at_most(real->tokens));
    query_u64(&q, 5, account_at_most(real->micro));
    return query_run(&q, NULL, err);
}

/* Turns hold `id` (a reservation) into spending. real NULL: the held amount counts as spent. */
static int accounts_settle(struct store *s, const char *id, const struct cost *real,
                           const struct cost_parts *parts, struct err *err) {
    struct hold_row row;
    if (store_begin(s, err) < 0)
        return -1;
    if (get_hold(s, id, &row, err) < 0)
        goto undo;
    struct cost held = {row.tokens, row.micro};
    if (!real)
        real = &held;
    if (spend(s, &row, real, err) < 0 || drop_hold(s, id, err) < 0 ||
        spending_add(s, row.account, row.model, row.created_ms, real, parts, err) < 0 ||
        store_commit(s, err) < 0)
        goto undo;
    return 0;
undo:
    store_rollback(s);
    return -1;
}

int store_hold_settle(struct store *s, const char *id, const struct cost *real,
                      const struct cost_parts *parts, struct err *err) {
    return accounts_settle(s, id, real, parts, err);
}

int store_hold_keep(struct store *s, const char *id, struct err *err) {
    return accounts_settle(s, id, NULL, NULL, err);
}

/* Returns 1 and the id of some hold (reservation) that is not settled; 0: none is left. */
static int any_hold(struct store *s, char ret_id[ID_SIZE], struct err *err) {
    QUERY;
    struct hold_row row;
    if (query_start(&q, s, STMT_HOLD_ANY, err) < 0)
        return -1;
    int got = query_step(&q, err);
    if (got == 1 && query_read(&q, &hold_table, &row, err) < 0)
        return -1;
    if (got == 1)
        memcpy(ret_id, row.id, ID_SIZE);
    return got;
}

int store_holds_charge(struct store *s, size_t *ret_count, struct err *err) {
    char id[ID_SIZE];
    size_t count = 0;
    int got;
    while ((got = any_hold(s, id, err)) == 1) {
        if (store_hold_keep(s, id, err) < 0)
            return -1;
        count++;
    }
    if (got == 0 && ret_count)
        *ret_count = count;
    return got;
}
