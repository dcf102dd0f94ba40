#include "grant/dsn.h"

#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define AT(member) offsetof(struct dsn, member), sizeof(((struct dsn *)0)->member)
static const struct {
    const char *name;
    size_t offset, size;
} words[] = {
    {"host", AT(host)},         {"port", AT(port)},     {"user", AT(user)},
    {"password", AT(password)}, {"dbname", AT(dbname)}, {"sslmode", AT(sslmode)},
};
enum { WORDS = sizeof(words) / sizeof(*words) };

void dsn_wipe(struct dsn *d) {
    explicit_bzero(d, sizeof(*d));
}

static int dsn_bad(struct err *err, const char *why) {
    err_set(err, ERR_INVALID, "invalid URL of the database server: %s", why);
    return err_remedy(err, "use postgres://USER:PASSWORD@HOST[:PORT]/TEMPLATE");
}

/* Stores a value, without decoding it, in the field of this name. */
static int dsn_put(struct dsn *d, const char *name, size_t n, const char *value, size_t value_n,
                   struct err *err) {
    for (size_t i = 0; i < WORDS; i++) {
        char *to = (char *)d + words[i].offset;
        if (strlen(words[i].name) != n || memcmp(words[i].name, name, n) != 0)
            continue;
        if (*to)
            return dsn_bad(err, "a parameter, such as host or user, occurs twice");
        if (value_n >= words[i].size || memchr(value, '\0', value_n))
            return dsn_bad(err, "a value is too long or contains a NUL byte");
        memcpy(to, value, value_n);
        to[value_n] = '\0';
        return 0;
    }
    return dsn_bad(err, "only host, port, user, password, dbname and sslmode are supported");
}

/* ---- postgres://... ---- */

static int dsn_hex_of(char c) {
    return isdigit((unsigned char)c) ? c - '0'
           : c >= 'a' && c <= 'f'    ? c - 'a' + 10
           : c >= 'A' && c <= 'F'    ? c - 'A' + 10
                                     : -1;
}

/* Decodes %XX in the value and stores it. */
static int put_escaped(struct dsn *d, const char *name, size_t n, const char *value, size_t value_n,
                       struct err *err) {
    char plain[DSN_PASSWORD_SIZE];
    size_t out = 0;
    for (size_t i = 0; i < value_n && out < sizeof(plain); i++) {
        char c = value[i];
        if (c == '%') {
            int high = i + 2 < value_n ? dsn_hex_of(value[i + 1]) : -1;
            int low = high >= 0 ? dsn_hex_of(value[i + 2]) : -1;
            if (low < 0 || !(high | low))
                return dsn_bad(err, "a '%' is not followed by two hex digits");
            c = (char)(high << 4 | low);
            i += 2;
        }
        plain[out++] = c;
    }
    int r = out == sizeof(plain) ? dsn_bad(err, "a value is too long")
                                 : dsn_put(d, name, n, plain, out, err);
    explicit_bzero(plain, sizeof(plain));
    return r;
}

static int read_host(struct dsn *d, const char *at, size_t n, struct err *err) {
    const char *end = at + n, *colon;
    if (n && *at == '[') {
        const char *close = memchr(at, ']', n);
        if (!close || (close + 1 < end && close[1] != ':'))
            return dsn_bad(err, "the closing ] of the host is missing");
        colon = close + 1 < end ? close + 1 : NULL;
        if (dsn_put(d, "host", 4, at + 1, (size_t)(close - at - 1), err) < 0)
            return -1;
    } else {
        colon = memchr(at, ':', n);
        if (put_escaped(d, "host", 4, at, colon ? (size_t)(colon - at) : n, err) < 0)
            return -1;
    }
    return colon ? dsn_put(d, "port", 4, colon + 1, (size_t)(end - colon - 1), err) : 0;
}

static int read_user(struct dsn *d, const char *at, size_t n, struct err *err) {
    const char *colon = memchr(at, ':', n);
    size_t user = colon ? (size_t)(colon - at) : n;
    if (put_escaped(d, "user", 4, at, user, err) < 0)
        return -1;
    return colon ? put_escaped(d, "password", 8, colon + 1, n - user - 1, err) : 0;
}

static int read_query(struct dsn *d, const char *at, struct err *err) {
    while (*at) {
        size_t n = strcspn(at, "&"), name = strcspn(at, "=&");
        if (name == n)
            return dsn_bad(err, "a parameter after the '?' has no value");
        if (put_escaped(d, at, name, at + name + 1, n - name - 1, err) < 0)
            return -1;
        at += n + (at[n] == '&');
    }
    return 0;
}

static int read_uri(struct dsn *d, const char *at, struct err *err) {
    size_t server = strcspn(at, "/?");
    const char *user_end = memchr(at, '@', server), *rest = at + server;
    if (user_end && read_user(d, at, (size_t)(user_end - at), err) < 0)
        return -1;
    const char *host = user_end ? user_end + 1 : at;
    if (read_host(d, host, (size_t)(rest - host), err) < 0)
        return -1;
    if (*rest == '/') {
        size_t n = strcspn(++rest, "?");
        if (put_escaped(d, "dbname", 6, rest, n, err) < 0)
            return -1;
        rest += n;
    }
    return *rest == '?' ? read_query(d, rest + 1, err) : 0;
}

/* ---- host=... ---- */

/* Reads a value, which may be in '...'; a backslash escapes the next character. */
static const char *read_value(const char *at, char *plain, size_t *ret_n) {
    bool quoted = *at == '\'';
    size_t n = 0;
    for (at += quoted; *at && (quoted ? *at != '\'' : !isspace((unsigned char)*at)); at++) {
        if (*at == '\\' && !*++at)
            return NULL;
        if (n + 1 < DSN_PASSWORD_SIZE)
            plain[n] = *at;
        n++;
    }
    if (quoted && *at++ != '\'')
        return NULL;
    *ret_n = n;
    return n < DSN_PASSWORD_SIZE ? at : NULL;
}

static int dsn_read_words(struct dsn *d, const char *at, struct err *err) {
    char plain[DSN_PASSWORD_SIZE];
    int r = 0;
    while (r == 0 && *(at += strspn(at, " \t"))) {
        size_t name = strcspn(at, "= \t"), n = 0;
        const char *word = at;
        if (at[name] != '=' || !(at = read_value(at + name + 1, plain, &n)))
            r = dsn_bad(err, "the text is neither a postgres:// URL nor a list of NAME=VALUE");
        else
            r = dsn_put(d, word, name, plain, n, err);
    }
    explicit_bzero(plain, sizeof(plain));
    return r;
}

/* ---- checks, and reading both forms ---- */

static bool host_ok(const char *host) {
    size_t n = strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:");
    return n > 0 && !host[n] && host[0] != '-';
}

static bool port_ok(const char *port) {
    unsigned number = 0;
    for (const char *c = port; *c; c++) {
        if (!isdigit((unsigned char)*c))
            return false;
        number = 10 * number + (unsigned)(*c - '0');
    }
    return number > 0 && number < 65536;
}

static bool sslmode_ok(const char *mode) {
    static const char *const modes[] = {"disable", "prefer", "require", "verify-ca", "verify-full"};
    for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++)
        if (strcmp(modes[i], mode) == 0)
            return true;
    return false;
}

static int dsn_check(struct dsn *d, struct err *err) {
    if (!d->port[0])
        snprintf(d->port, sizeof(d->port), "5432");
    if (!d->sslmode[0])
        snprintf(d->sslmode, sizeof(d->sslmode), "prefer");
    if (!d->host[0] || d->host[0] == '/' || d->host[0] == '@')
        return dsn_bad(err, "the host is missing: a machine reaches a server over the network, not "
                            "through a unix socket of this host");
    if (!host_ok(d->host))
        return dsn_bad(err, "the host is not a host name or an IP address");
    if (!port_ok(d->port))
        return dsn_bad(err, "the port must be a number from 1 to 65535");
    if (!d->user[0] || !d->dbname[0])
        return dsn_bad(err, "the user or the template database is missing");
    return sslmode_ok(d->sslmode)
               ? 0
               : dsn_bad(err, "sslmode must be disable, prefer, require, verify-ca or verify-full");
}

int dsn_read(const char *text, struct dsn *ret, struct err *err) {
    static const char *const schemes[] = {"postgres://", "postgresql://"};
    struct dsn d = {.host = ""};
    size_t uri = 0;
    if (strnlen(text, DSN_TEXT_MAX) == DSN_TEXT_MAX)
        return dsn_bad(err, "the text is too long");
    for (size_t i = 0; i < 2 && !uri; i++)
        uri = strncmp(text, schemes[i], strlen(schemes[i])) == 0 ? strlen(schemes[i]) : 0;
    int r = uri ? read_uri(&d, text + uri, err) : dsn_read_words(&d, text, err);
    if (r == 0)
        r = dsn_check(&d, err);
    if (r == 0)
        *ret = d;
    dsn_wipe(&d);
    return r;
}
