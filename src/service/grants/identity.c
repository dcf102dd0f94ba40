/*
 * Identities: an account for the agent in a machine. The agent's commits carry the name, and the
 * agent has its own SSH key. The owner adds the public key where the agent may log in, and removes
 * it there.
 *
 * A key belongs to an owner and a name and is stored as secret identity.NAME. Machines with the
 * same identity share it; deleting the secret makes the next machine get a new key.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/hex.h"
#include "grant/ssh_key.h"
#include "service/exec/plan.h"
#include "service/grants/inner.h"
#include "store/secrets.h"

enum { NAME_MAX_BYTES = 40, HEX = 2 * SSH_SEED + 1 };

static const char *const variables[] = {"GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME", "GIT_AUTHOR_EMAIL",
                                        "GIT_COMMITTER_EMAIL"};
enum { VARIABLES = sizeof(variables) / sizeof(*variables) };

static bool name_ok(const char *name) {
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");
    return n > 0 && !name[n] && n <= NAME_MAX_BYTES && name[0] != '-';
}

static bool mail_ok(const char *mail) {
    const char *at = strchr(mail, '@');
    return at && at != mail && at[1] && strlen(mail) < 200 && !strpbrk(mail, " <>\t\r\n");
}

static int identity_read(struct service *s, const char *owner, const struct grant_request *r,
                         struct grant_row *row, struct err *err) {
    char mail[NAME_MAX_BYTES + 32];
    (void)s, (void)owner;
    if (!name_ok(r->what)) {
        err_set(err, ERR_INVALID, "'%.60s' is not a valid identity name", r->what);
        return err_remedy(err, "use at most %d letters, digits, '_' and '-'", NAME_MAX_BYTES);
    }
    snprintf(mail, sizeof(mail), "%s@agents.invalid", r->what);
    if (r->at && !mail_ok(r->at))
        return err_set(err, ERR_INVALID, "'%.80s' is not an e-mail address", r->at);
    row->what = xstrdup(r->what);
    row->place = xstrdup(r->at ? r->at : mail);
    snprintf(row->mode, sizeof(row->mode), "ssh");
    return 0;
}

/* ---- the key ---- */

static int keep_key(struct live *l, const char *kept, const uint8_t seed[SSH_SEED],
                    struct err *err) {
    char hex[HEX];
    hex_put(seed, SSH_SEED, hex);
    struct secret *value DEFER(secret_freep) = secret_new(hex, HEX - 1);
    explicit_bzero(hex, sizeof(hex));
    return value ? store_secret_put(l->service->store, l->row.owner, kept, value, wall_ms(), err)
                 : err_set(err, ERR_INTERNAL, "the SSH key of the identity cannot be stored");
}

static int find_key(struct live *l, const char *name, uint8_t ret[SSH_SEED], struct err *err) {
    char kept[NAME_MAX_BYTES + 16];
    struct secret *value DEFER(secret_freep) = NULL;
    struct buf hex DEFER(secret_wipe) = BUF(SECRET_MAX + 1);
    snprintf(kept, sizeof(kept), "identity.%s", name);
    if (store_secret_get(l->service->store, l->row.owner, kept, &value, err) < 0) {
        if (err->code != ERR_NOT_FOUND)
            return -1;
        return ssh_key_new(ret, err) < 0 ? -1 : keep_key(l, kept, ret, err);
    }
    return secret_reveal(value, &hex) && hex.len == HEX - 1 && hex_read(hex.data, SSH_SEED, ret)
               ? 0
               : err_set(err, ERR_INVALID, "the stored SSH key of identity '%s' is invalid", name);
}

/* Sets git's variables for author and committer. NULL for name and mail unsets them. */
static int identity_set_variables(struct live *l, const char *name, const char *mail,
                                  struct err *err) {
    struct env_change changes[VARIABLES];
    for (size_t i = 0; i < VARIABLES; i++)
        changes[i] = (struct env_change){variables[i], i < 2 ? name : mail};
    return live_set_env(l, changes, VARIABLES, err);
}

/* Stores the public key in the row, where the owner can see it. */
static int identity_settle(struct live *l, struct grant_row *row, struct err *err) {
    uint8_t seed[SSH_SEED];
    struct buf public DEFER(buf_done) = BUF(SSH_FILE_MAX);
    int r = find_key(l, row->what, seed, err);
    if (r == 0)
        r = ssh_key_public(seed, row->place, &public, err);
    explicit_bzero(seed, sizeof(seed));
    if (r < 0 || identity_set_variables(l, row->what, row->place, err) < 0)
        return -1;
    json_t *detail = json_pack("{s:s}", "public_key", public.data);
    row->detail = detail ? json_dumps(detail, JSON_COMPACT) : NULL;
    json_decref(detail);
    return row->detail
               ? 0
               : err_set(err, ERR_INTERNAL, "the e-mail address of the SSH key is not UTF-8");
}

/* ---- in the machine ---- */

static void key_path(const struct live *l, char ret[PLAN_PATH_SIZE]) {
    const struct exec_defaults *image = live_defaults(l);
    snprintf(ret, PLAN_PATH_SIZE, "%s/.ssh/id_ed25519",
             image && image->home ? image->home : "/home/user");
}

static void identity_give(struct live *l, const struct grant_row *row, int fd,
                          service_done_fn *done, void *arg) {
    uint8_t seed[SSH_SEED];
    char path[PLAN_PATH_SIZE];
    struct buf file DEFER(secret_wipe) = BUF(SSH_FILE_MAX);
    struct err err;
    (void)fd;
    key_path(l, path);
    const struct handover to = {path, 0600};
    int r = find_key(l, row->what, seed, &err);
    if (r == 0)
        r = ssh_key_private(seed, row->place, &file, &err);
    explicit_bzero(seed, sizeof(seed));
    if (r < 0)
        done(arg, &err);
    else
        handover_text(l, file.data, &to, done, arg);
}

static void identity_take(struct live *l, const struct grant_row *row, service_done_fn *done,
                          void *arg) {
    char path[PLAN_PATH_SIZE];
    (void)row;
    key_path(l, path);
    handover_remove(l, path, done, arg);
}

static int identity_unsettle(struct live *l, const struct grant_row *row, struct err *err) {
    (void)row;
    return identity_set_variables(l, NULL, NULL, err);
}

const struct grant_kind grant_identity = {.name = "identity",
                                          .delivered = true,
                                          .inherited = true,
                                          .read = identity_read,
                                          .settle = identity_settle,
                                          .give = identity_give,
                                          .take = identity_take,
                                          .unsettle = identity_unsettle};
