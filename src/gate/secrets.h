/*
 * Secrets that never enter a machine. The machine has a placeholder; in requests to the host of the
 * grant, inside TLS, the gate replaces it by the value.
 *
 * A placeholder may appear only where its grant says: in a header field, in the password of basic
 * authentication, or in the query. A request with a placeholder elsewhere, or to another host, is
 * refused. Pure: a head in, a verdict or bytes out.
 */
#pragma once

#include "base/err.h"
#include "base/secret.h"
#include "base/text/needles.h"
#include "gate/name.h"
#include "gate/refusal.h"
#include "io/http.h"

enum { SECRET_NAME_SIZE = 64, PLACEHOLDER_SIZE = 48, SECRET_GRANTS_MAX = 32, SECRET_USES_MAX = 8 };

enum secret_way { SECRET_HEADER = 1, SECRET_BASIC, SECRET_QUERY };
const char *secret_way_name(enum secret_way way);
int secret_way_parse(const char *text, enum secret_way *ret, struct err *err);

/* Whether the name of a secret is valid. An environment variable of this name holds the
 * placeholder. */
bool secret_name_ok(const char *name);
void placeholder_make(char ret[PLACEHOLDER_SIZE]);

/* All grants of one secret have the same placeholder. */
struct secret_grant {
    char name[SECRET_NAME_SIZE];
    char host[NAME_SIZE];
    enum secret_way way;
    char placeholder[PLACEHOLDER_SIZE];
};

struct secret_grants {
    struct secret_grant list[SECRET_GRANTS_MAX];
    size_t count;
};

bool secret_grants_for(const struct secret_grants *g, const char *host);

/* The secrets that a request uses; the caller fills in the values. */
struct secret_use {
    const struct secret_grant *grant;
    struct secret *value; /* owned */
};
struct secret_uses {
    struct secret_use list[SECRET_USES_MAX];
    size_t count;
    char why[160]; /* reason of a refusal; empty: allowed */
    enum remedy remedy;
};
void secret_uses_done(struct secret_uses *u);

/* Finds the placeholders in the head of the request and checks each against the grants. */
void secrets_check(const struct secret_grants *g, const char *host, bool is_tls,
                   const struct http_head *h, struct secret_uses *ret);

/* Writes a field value or a query with secrets filled in. False: the buffer is full. */
bool secrets_put_value(const struct secret_uses *u, struct http_text name, struct http_text value,
                       struct buf *out);
bool secrets_put_query(const struct secret_uses *u, struct http_text query, struct buf *out);

/* Adds all placeholders, so that the bodies of requests can be scanned for them. */
bool secrets_placeholders(const struct secret_grants *g, struct needles *ret);
/* Adds the forms in which an answer may contain the value (secret_forms.h). */
bool secrets_forms(const struct secret_use *use, const struct http_head *h, struct needles *ret);
