#include "model/free_calls.h"

#include <stdlib.h>

#include "base/alloc.h"

/* Accounts that are remembered before those that have rested are forgotten. */
enum { FREE_ACCOUNTS = 256 };

/* Thousandths of requests that an account has used and that were not added again yet. */
struct free_account {
    char *name;
    uint64_t used, at_ms;
};

static void free_account_rest(struct free_account *a, uint64_t now_ms) {
    uint64_t back = now_ms > a->at_ms ? (now_ms - a->at_ms) * FREE_CALLS_PER_S : 0;
    a->used = back < a->used ? a->used - back : 0;
    a->at_ms = now_ms;
}

static void free_account_free(struct free_account *a) {
    free(a->name);
    free(a);
}

/* Forgets accounts that may make all their requests again: a new entry says the same. */
static void free_calls_sweep(struct free_calls *c, uint64_t now_ms) {
    struct free_account *a;
    for (size_t at = 0; (a = map_next(&c->accounts, &at));) {
        free_account_rest(a, now_ms);
        if (a->used)
            continue;
        map_take(&c->accounts, a->name);
        free_account_free(a);
    }
}

bool free_calls_take(struct free_calls *c, const char *account, uint64_t now_ms) {
    struct free_account *a = map_get(&c->accounts, account);
    if (!a) {
        if (c->accounts.count >= FREE_ACCOUNTS)
            free_calls_sweep(c, now_ms);
        a = xnew(struct free_account);
        *a = (struct free_account){.name = xstrdup(account), .at_ms = now_ms};
        map_put(&c->accounts, a->name, a);
    }
    free_account_rest(a, now_ms);
    if (a->used + 1000 > FREE_CALLS_BURST * 1000)
        return false;
    a->used += 1000;
    return true;
}

void free_calls_done(struct free_calls *c) {
    struct free_account *a;
    for (size_t at = 0; (a = map_next(&c->accounts, &at));)
        free_account_free(a);
    map_done(&c->accounts);
}
