/*
 * Subscription logins: a token of an owner's account at a vendor, which the gateway uses instead of
 * an API key.
 *
 * The tokens of a login are the secret LOGIN_SECRET + VENDOR of their owner (store/secrets.h). They
 * leave this process only in requests to the URLs of the vendor in carrel.conf. Only this module
 * renews them. A refresh token works once, so the new tokens are on disk before they are used.
 */
#pragma once

#include "io/fetch.h"
#include "model/codec.h"
#include "store/conf.h"
#include "store/db.h"

#define LOGIN_SECRET "login."
enum { LOGIN_FIELDS_MAX = 16, LOGIN_TEXT_MAX = 16 << 10, LOGIN_ACCOUNT_SIZE = 128 };

/* A vendor whose logins are known. */
struct login_vendor {
    const char *name;
    const struct model_codec *codec;
    const char *placeholder; /* the token that machines send */
    const char
        *fields[LOGIN_FIELDS_MAX]; /* fields of requests that the vendor gets, ended by NULL */
};
/* NULL: there is no such vendor. */
const struct login_vendor *login_vendor_named(const char *name);
const struct login_vendor *login_vendor_at(size_t i); /* NULL: there are not so many */
/* The vendor whose placeholder a request carries as its bearer token; NULL: none. */
const struct login_vendor *login_vendor_of(const struct http_head *head);
/* Base URL of its models. */
const char *login_url(const struct conf *conf, const struct login_vendor *v);

/* ---- login_read.c: texts of the owner and of the vendor's server, which may be hostile ---- */

struct login_tokens {
    struct secret *access;
    struct secret *refresh; /* NULL: the login cannot be renewed */
    char account[LOGIN_ACCOUNT_SIZE];
    int64_t expires_s; /* end of the access token, in seconds since 1970; 0: unknown */
    bool is_renewing;  /* a renewal was begun, and its result is not known */
};
void login_tokens_done(struct login_tokens *t);

/* Reads what the owner gives: a token of `claude setup-token`, or the file auth.json of Codex. */
int login_read_given(const struct login_vendor *v, const char *text, size_t n,
                     struct login_tokens *ret, struct err *err);
/* Reads and writes the value of the secret. */
int login_read_kept(const struct login_vendor *v, const char *text, size_t n,
                    struct login_tokens *ret, struct err *err);
struct secret *login_keep(const struct login_vendor *v, const struct login_tokens *t);
/* Reads the answer to a renewal. Members that it leaves out stay as in `before`. */
int login_read_renewed(const struct login_tokens *before, const char *text, size_t n,
                       struct login_tokens *ret, struct err *err);
/* Whether an answer says that the refresh token will never work again. */
bool login_is_refused(int status, const char *text, size_t n);

/* ---- logins.c ---- */

struct logins;
struct login_wait;
struct logins_config {
    struct loop *loop;
    struct fetcher *fetcher;
    struct store *store;
    const struct conf *conf;
};
struct logins *logins_new(const struct logins_config *config);
/* No callback follows. A renewal in progress is abandoned. */
void logins_free(struct logins *l);

/* A token to use now. Valid during the callback only. */
struct login_ticket {
    const struct secret *access;
    const char *account;
    uint64_t version; /* another token has another version */
};
typedef void login_fn(void *arg, const struct login_ticket *ticket, const struct err *failed);

/*
 * Finds the token of an owner, and renews it first if it has expired, or if it is the one that the
 * vendor rejected (its version, or 0). Calls fn before it returns, or else sets *ret. Errors:
 * ERR_DENIED: the owner must log in again; others: a later call may succeed.
 */
void logins_ask(struct logins *l, const char *owner, const struct login_vendor *v,
                uint64_t rejected, login_fn *fn, void *arg, struct login_wait **ret);
void login_wait_cancel(struct login_wait *w); /* w may be NULL */

/* Forgets what is known of a login, because its secret was changed. Call it before the change. */
void logins_forget(struct logins *l, const char *owner, const struct login_vendor *v);
/* Why the owner must log in again; NULL: nothing is known against the login. */
const char *logins_complaint(const struct logins *l, const char *owner,
                             const struct login_vendor *v);
