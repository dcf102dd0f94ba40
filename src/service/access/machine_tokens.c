#include "service/access/machine_tokens.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hex.h"
#include "service/state.h"
#include "store/secrets.h"

static const char *const purposes[MACHINE_TOKEN_USES] = {
    [MACHINE_TOKEN_CONTROL] = "machine-control",
    [MACHINE_TOKEN_TRAFFIC] = "machine-traffic",
};

static int token_of(const struct live *l, enum machine_token_use use, char ret[MACHINE_TOKEN_SIZE],
                    struct err *err) {
    uint8_t hash[SHA256_BYTES];
    char text[ID_SIZE + 24];
    snprintf(text, sizeof(text), "%s %" PRIu64, l->row.id, l->row.token_generation);
    if (store_keyed_hash(l->service->store, purposes[use], text, hash, err) < 0)
        return -1;
    hex_put(hash, sizeof(hash), ret);
    return 0;
}

int service_machine_token(struct service *s, const struct caller *who, const char *ref,
                          enum machine_token_use use, char ret[MACHINE_TOKEN_SIZE],
                          struct err *err) {
    const struct live *l = who ? NULL : map_get(&s->machines, ref);
    if (who && allow(who, SCOPE_RUN, err) == 0)
        l = live_find(s, who, ref, LIVE_ANY, err);
    else if (!who && !l)
        err_set(err, ERR_NOT_FOUND, "machine '%.20s' does not exist", ref);
    return l ? token_of(l, use, ret, err) : -1;
}

bool machine_token_is(const char *token, const char *given, size_t len) {
    unsigned differs = len != MACHINE_TOKEN_SIZE - 1;
    for (size_t i = 0; i < MACHINE_TOKEN_SIZE - 1; i++)
        differs |= (unsigned char)token[i] ^ (unsigned char)given[i < len ? i : 0];
    return !differs;
}

int service_caller_by_machine_token(struct service *s, const char *id, enum machine_token_use use,
                                    const char *token, size_t len, const char *client,
                                    struct caller *ret, struct err *err) {
    char wanted[MACHINE_TOKEN_SIZE];
    const struct live *l = map_get(&s->machines, id);
    if (!l)
        return err_set(err, ERR_NOT_FOUND, "machine '%.20s' does not exist", id);
    if (token_of(l, use, wanted, err) < 0)
        return -1;
    if (!len || !machine_token_is(wanted, token, len))
        return err_set(err, ERR_DENIED, "the token of machine '%s' is wrong or was revoked", id);
    *ret = (struct caller){.scopes = SCOPE_READ | SCOPE_RUN};
    snprintf(ret->owner, sizeof(ret->owner), "%s", l->row.owner);
    snprintf(ret->client, sizeof(ret->client), "%s", client);
    return 0;
}

bool service_machine_by_token(struct service *s, enum machine_token_use use,
                              bool (*fits)(void *arg, const char *token), void *arg,
                              char ret_id[ID_SIZE]) {
    char token[MACHINE_TOKEN_SIZE];
    const struct live *l;
    for (size_t at = 0; (l = map_next(&s->machines, &at));)
        if (token_of(l, use, token, NULL) == 0 && fits(arg, token)) {
            memcpy(ret_id, l->row.id, ID_SIZE);
            return true;
        }
    return false;
}

int machine_tokens_revoke(struct service *s, const struct caller *who, const char *id,
                          struct err *err) {
    struct live *l = live_find(s, who, id, LIVE_ANY, err);
    if (!l || store_machine_set_tokens(s->store, l->row.id, l->row.token_generation + 1, err) < 0)
        return -1;
    l->row.token_generation++;
    return 0;
}
