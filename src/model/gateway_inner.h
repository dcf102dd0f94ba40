/* Shared by the files of the gateway: one request that is forwarded to a provider. */
#pragma once

#include <jansson.h>

#include "base/text/needles.h"
#include "model/codec.h"
#include "model/free_calls.h"
#include "model/gateway.h"
#include "model/paid.h"
#include "model/usage_strip.h"

enum {
    GATEWAY_ANSWER_MAX = 32 << 20,
    GATEWAY_FIELD_SIZE = 4096, /* bytes of a field about versions of an API */
    GATEWAY_TARGETS_MAX = 4,   /* models that one call tries */
};

struct gateway {
    struct gateway_config config;
    struct forward *forwards; /* list of requests in progress */
    struct free_calls free_calls;
};

enum gateway_kind {
    GATEWAY_CALL,  /* an answer of a model */
    GATEWAY_COUNT, /* counts tokens; free of charge */
    GATEWAY_EMBED, /* embeddings, which have no output */
    GATEWAY_LIST,  /* models of a login; free of charge */
};

/* Fields of an answer that the client needs. */
#define GATEWAY_PASSED                                                                   \
    {                                                                                    \
        "content-type", "retry-after", "retry-after-ms", "x-should-retry", "request-id", \
            "x-request-id"                                                               \
    }
enum { GATEWAY_PASSED_COUNT = 6 };

struct forward {
    struct gateway *gateway;
    struct forward *next, *prev;
    struct http_exchange *x; /* NULL: the client has left, and the answer is read for its usage */
    const struct model_codec *codec;
    enum gateway_kind kind;
    char account[ACCOUNT_ID_SIZE];

    /* The request. */
    json_t *root;         /* NULL once it was sent for the last time */
    char path_model[128]; /* Gemini: the model that the path names */
    bool stream;
    bool is_beta;     /* the client asked for "?beta=true" */
    bool wants_usage; /* the client asked for the usage of a Chat stream */
    struct model_size size;
    uint64_t max_tokens;
    bool lowered; /* max_tokens is what the rest of the budget allows */
    char version[64], beta[GATEWAY_FIELD_SIZE]; /* the client's fields about the API */

    char targets[GATEWAY_TARGETS_MAX][192]; /* PROVIDER/MODEL */
    size_t target_count, target;            /* target: the one that is tried now */

    /* The login that is used instead of a key. */
    const struct login_vendor *login; /* NULL: none */
    char login_owner[STORE_NAME_SIZE], login_account[LOGIN_ACCOUNT_SIZE];
    char *login_fields[LOGIN_FIELDS_MAX]; /* values of login->fields; NULL: absent */
    struct login_wait *login_wait;
    uint64_t login_version; /* of the token that was sent */
    bool login_again;       /* the vendor rejected a token, and another one was asked for */

    /* The provider that is tried now. */
    struct model_provider provider;
    struct paid paid;
    struct model_guess guess;
    struct fetch *fetch;
    struct loop_timer *again; /* of the next attempt to reach the last provider; NULL: none */
    unsigned connects;        /* attempts that failed to reach it */
    bool told;

    /* The answer. */
    bool begun;                  /* a stream to the client has begun */
    bool complete;               /* the answer was complete */
    struct model_stream *reader; /* finds the usage in a stream */
    struct usage_strip strip;    /* used for Chat streams whose usage the client did not ask for */
    struct buf whole;            /* an answer that is not a stream */
    struct needles mask;         /* forms of the owner's key, to mask in the answer */
    struct buf mask_carry;       /* bytes that may begin one of them */
    bool is_unmasked;            /* the key cannot be masked, so no answer is passed */
    int status;
    char passed[GATEWAY_PASSED_COUNT][80];
};

struct forward *forward_new(struct gateway *g, struct http_exchange *x,
                            const struct model_codec *codec, const char *account);
void forward_free(struct forward *f);
/* Detaches f from the HTTP exchange: the HTTP server makes no more callbacks for it. */
void forward_detach(struct forward *f);

/* gateway_answer.c */
void gateway_refuse(struct forward *f, enum model_failure failure, const struct err *err);
enum model_failure gateway_failure(const struct err *err);
/* Reports the outcome once. usage NULL: the held amount is the cost. */
void gateway_tell(struct forward *f, int status, const struct model_usage *usage, bool is_exact,
                  const char *why);
extern const struct fetch_events gateway_events;
#define GATEWAY_LEFT "the client closed the connection"
/* True if a stream without its client can end now, because its input is known. */
bool gateway_may_leave(const struct forward *f);
/* Ends a call whose answer did not arrive completely, and charges what is known of it. */
void gateway_settle_part(struct forward *f, int status, const char *why);

/* gateway_send.c: estimates the call, holds its cost and sends it. */
void gateway_pay(struct forward *f);

/* Sends it now, with the key in f->provider. */
void gateway_send_now(struct forward *f);
/* gateway_answer.c: forgets an answer that did not reach the client, before another attempt. */
void gateway_forget_answer(struct forward *f);

/* gateway_login.c: recognises a request for a login, and copies its fields. */
int gateway_login_take(struct forward *f, const struct http_head *head, struct err *err);
void gateway_login_done(struct forward *f);
/* Chooses the vendor as provider, if the machine may use the login. */
int gateway_login_aim(struct forward *f, const char *model, struct err *err);
int gateway_login_beta(struct forward *f, struct err *err);
/* Writes the fields for the vendor, at most LOGIN_FIELDS_MAX; returns their number. */
size_t gateway_login_fields(const struct forward *f, struct http_pair *ret);
/* Finds the token and sends the request, or refuses it. */
void gateway_login_ask(struct forward *f);
/* After an answer: tries once more with another token, if the vendor rejected this one. */
bool gateway_login_again(struct forward *f, enum fetch_end end);
/* Answers GET .../models for a client with a login; false: it has none. */
bool gateway_login_list(struct gateway *g, struct http_exchange *x, const char *account,
                        void (*on_gone)(struct http_exchange *x));
/* Answers routes about the account, without the vendor; false: this is not one. */
bool gateway_login_answer(struct http_exchange *x);
/* Whether a whole answer contains the token or the account. */
bool gateway_login_leaks(const struct forward *f);
bool gateway_login_cut_list(struct forward *f);

/*
 * gateway_mask.c: starts to mask the key of the present attempt. False: that is not possible, so no
 * answer may be passed on. The others are false if there is no room.
 */
bool gateway_mask_start(struct forward *f);
bool gateway_mask(struct forward *f, const char *bytes, size_t n, bool end, struct buf *out);
bool gateway_mask_whole(struct forward *f);
bool gateway_mask_field(struct forward *f, char *value, size_t size);
void gateway_mask_done(struct forward *f);

/* gateway_targets.c: finds the models that the client's name stands for. */
void gateway_find_targets(struct forward *f, const char *model);

/* gateway_rewrite.c: chooses the provider and completes the request f->root. */
int gateway_rewrite(struct forward *f, struct err *err);
/* Goes on to the next model that the machine may use. False: none is left, and f is as before. */
bool gateway_next_target(struct forward *f);
bool gateway_takes_no_limit(const struct forward *f);
/* Sets the limit of output tokens in the request. */
void gateway_set_limit(struct forward *f, uint64_t max_tokens);
