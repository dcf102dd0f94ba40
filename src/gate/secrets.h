/*
 * Secrets that never enter a machine: it has a placeholder, and where a request goes to the host
 * that the secret was granted for, the value takes its place on the way, inside TLS.
 *
 * A placeholder may stand only where its grant says: in a field, in the password of basic
 * authentication, or in the query. Anywhere else, and towards any other host, a request that holds
 * one is refused. The core is pure: a head in, a verdict or bytes out.
 */
#pragma once

#include "base/err.h"
#include "base/secret.h"
#include "gate/name.h"
#include "gate/needles.h"
#include "io/http.h"

enum { SECRET_NAME_SIZE = 64, PLACEHOLDER_SIZE = 48, SECRET_GRANTS_MAX = 32, SECRET_USES_MAX = 8 };

enum secret_way { SECRET_HEADER = 1, SECRET_BASIC, SECRET_QUERY };
const char *secret_way_name(enum secret_way way);
int secret_way_parse(const char *text, enum secret_way *ret, struct err *err);

/* A name can be that of an environment variable, which holds the placeholder. */
bool secret_name_ok(const char *name);
void placeholder_make(char ret[PLACEHOLDER_SIZE]);

/* Of one name all have the same placeholder. */
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

/* What a request uses; values are filled in by who has them. */
struct secret_use {
    const struct secret_grant *grant;
    struct secret *value; /* owned */
};
struct secret_uses {
    struct secret_use list[SECRET_USES_MAX];
    size_t count;
    char why[160]; /* it is refused; empty: it is not */
};
void secret_uses_done(struct secret_uses *u);

/* Which placeholders stand in the head, and whether each may. */
void secrets_check(const struct secret_grants *g, const char *host, bool is_tls,
                   const struct http_head *h, struct secret_uses *ret);

/* A field's value, or a query, with the values in it. False: the buffer is full. */
bool secrets_put_value(const struct secret_uses *u, struct http_text name, struct http_text value,
                       struct buf *out);
bool secrets_put_query(const struct secret_uses *u, struct http_text query, struct buf *out);

/* All placeholders, to be looked for in a body. */
bool secrets_placeholders(const struct secret_grants *g, struct needles *ret);
/* The forms in which a value may come back (secret_forms.h), and as it was sent. */
bool secrets_forms(const struct secret_use *use, const struct http_head *h, struct needles *ret);
