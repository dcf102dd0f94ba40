#include "registry/client.h"

#include <curl/curl.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/secret.h"
#include "registry/challenge.h"
#include "registry/login.h"
#include "registry/url.h"

enum { CONNECT_MS = 15000, STALL_SECONDS = 20, REDIRECTS_MAX = 5, ATTEMPTS_MAX = 5 };

struct registry {
    CURL *easy;
    char base[512]; /* https://HOST/v2/REPOSITORY */
    char scope[600];
    bool insecure;
    struct secret *login; /* for Basic, in base64; NULL: none */
    struct secret *token; /* for Bearer */
    bool uses_basic;      /* the registry asked for Basic */
};

/* ---- opening ---- */

struct registry *registry_open(const struct reference *ref, const char *actions, bool insecure,
                               struct err *err) {
    bool hub = strcmp(ref->host, REFERENCE_HUB) == 0;
    bool plain = !hub && (insecure || reference_is_loopback(ref->host));
    curl_global_init(CURL_GLOBAL_DEFAULT);
    struct registry *r = xnew(struct registry);
    r->easy = curl_easy_init();
    r->insecure = insecure;
    r->login = login_find(ref->host);
    snprintf(r->base, sizeof(r->base), "%s://%s/v2/%s", plain ? "http" : "https",
             hub ? "registry-1.docker.io" : ref->host, ref->repository);
    snprintf(r->scope, sizeof(r->scope), "repository:%s:%s", ref->repository, actions);
    if (r->easy)
        return r;
    registry_close(&r);
    err_set(err, ERR_INTERNAL, "cannot initialize libcurl");
    return NULL;
}

void registry_close(struct registry **slot) {
    struct registry *r = *slot;
    if (!r)
        return;
    curl_easy_cleanup(r->easy);
    secret_free(r->login);
    secret_free(r->token);
    free(r);
    *slot = NULL;
}

int registry_url(const struct registry *r, char ret[REGISTRY_URL_SIZE], struct err *err,
                 const char *format, ...) {
    va_list args;
    int n = snprintf(ret, REGISTRY_URL_SIZE, "%s/", r->base);
    va_start(args, format);
    int m = vsnprintf(ret + n, (size_t)(REGISTRY_URL_SIZE - n), format, args);
    va_end(args);
    return m < REGISTRY_URL_SIZE - n ? 0 : err_set(err, ERR_LIMIT, "a name is too long");
}

void registry_answer_done(struct registry_answer *a) {
    buf_done(&a->body);
}

/* ---- one exchange ---- */

struct exchange {
    CURL *easy;
    const struct registry_request *q;
    struct registry_answer *answer;
    bool is_stopped; /* by the sink */
};

static size_t exchange_bytes(char *bytes, size_t size, size_t n, void *arg) {
    struct exchange *x = arg;
    long status = 0;
    (void)size;
    curl_easy_getinfo(x->easy, CURLINFO_RESPONSE_CODE, &status);
    if (x->q->sink && status / 100 == 2) {
        x->is_stopped = !x->q->sink(x->q->arg, status, bytes, n);
        return x->is_stopped ? 0 : n;
    }
    if (buf_add(&x->answer->body, bytes, n))
        return n;
    x->answer->is_large = true;
    return 0;
}

static void copy_field(CURL *easy, const char *name, char *to, size_t size) {
    struct curl_header *h;
    if (curl_easy_header(easy, name, 0, CURLH_HEADER, -1, &h) == CURLHE_OK &&
        strlen(h->value) < size)
        snprintf(to, size, "%s", h->value);
}

/* Erases the header lines before they are freed: one of them may have a secret. */
static void wipe_lines(struct curl_slist **lines) {
    for (struct curl_slist *i = *lines; i; i = i->next)
        explicit_bzero(i->data, strlen(i->data));
    curl_slist_free_all(*lines);
}

static int add_secret_line(struct curl_slist **lines, const char *scheme, const struct secret *s,
                           struct err *err) {
    struct buf line DEFER(secret_wipe) = BUF(SECRET_MAX + 64);
    if (!buf_addf(&line, "Authorization: %s ", scheme) || !secret_reveal(s, &line))
        return err_set(err, ERR_LIMIT, "the credentials for the registry are too long");
    *lines = alloc_check(curl_slist_append(*lines, line.data));
    return 0;
}

static int add_lines(const struct registry *r, const struct registry_request *q, const char *url,
                     struct curl_slist **lines, struct err *err) {
    *lines = alloc_check(curl_slist_append(*lines, "Expect:"));
    for (size_t i = 0; q->fields && q->fields[i]; i++)
        *lines = alloc_check(curl_slist_append(*lines, q->fields[i]));
    if (!url_same_origin(url, r->base))
        return 0;
    if (r->token)
        return add_secret_line(lines, "Bearer", r->token, err);
    return r->uses_basic && r->login ? add_secret_line(lines, "Basic", r->login, err) : 0;
}

static void set_options(CURL *e, const struct registry_request *q, struct exchange *x) {
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(e, CURLOPT_SSL_VERIFYPEER, 1L);
    curl_easy_setopt(e, CURLOPT_SSL_VERIFYHOST, 2L);
    const char *trusted = getenv("SSL_CERT_FILE");
    if (trusted && *trusted)
        curl_easy_setopt(e, CURLOPT_CAINFO, trusted);
    curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl_easy_setopt(e, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(e, CURLOPT_LOW_SPEED_TIME, (long)STALL_SECONDS);
    curl_easy_setopt(e, CURLOPT_USERAGENT, "carrel/" CARREL_VERSION);
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, exchange_bytes);
    curl_easy_setopt(e, CURLOPT_WRITEDATA, x);
    if (strcmp(q->method, "HEAD") == 0) {
        curl_easy_setopt(e, CURLOPT_NOBODY, 1L);
        return;
    }
    if (q->body || strcmp(q->method, "GET") != 0) {
        curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)q->n);
        curl_easy_setopt(e, CURLOPT_POSTFIELDS, q->body ? q->body : "");
    }
    curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, q->method);
}

static void read_fields(CURL *e, const char *url, struct registry_answer *a) {
    char location[REGISTRY_URL_SIZE] = "";
    struct err ignored;
    copy_field(e, "Location", location, sizeof(location));
    if (location[0] && url_resolve(url, location, a->location, sizeof(a->location), &ignored) < 0)
        a->location[0] = '\0';
    copy_field(e, "Docker-Content-Digest", a->digest, sizeof(a->digest));
    copy_field(e, "Range", a->range, sizeof(a->range));
    copy_field(e, "Content-Range", a->content_range, sizeof(a->content_range));
}

/* Sends the request to one URL, without redirects and without authenticating again. */
static int exchange_once(struct registry *r, const struct registry_request *q, const char *url,
                         struct registry_answer *a, struct err *err) {
    struct curl_slist *lines DEFER(wipe_lines) = NULL;
    struct exchange x = {r->easy, q, a, false};
    char why[CURL_ERROR_SIZE] = "";
    buf_done(&a->body);
    *a = (struct registry_answer){.body = BUF(q->max_bytes ? q->max_bytes : REGISTRY_ANSWER_MAX)};
    if (add_lines(r, q, url, &lines, err) < 0)
        return -1;
    curl_easy_reset(r->easy);
    set_options(r->easy, q, &x);
    curl_easy_setopt(r->easy, CURLOPT_ERRORBUFFER, why);
    curl_easy_setopt(r->easy, CURLOPT_HTTPHEADER, lines);
    curl_easy_setopt(r->easy, CURLOPT_URL, url);
    CURLcode code = curl_easy_perform(r->easy);
    curl_easy_getinfo(r->easy, CURLINFO_RESPONSE_CODE, &a->status);
    read_fields(r->easy, url, a);
    if (code == CURLE_OK || x.is_stopped)
        return 0;
    if (a->is_large)
        return err_set(err, ERR_LIMIT, "the answer of the registry is larger than %zu bytes",
                       a->body.max);
    bool tls = code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CONNECT_ERROR;
    a->is_cut = !tls;
    err_set(err, code == CURLE_OPERATION_TIMEDOUT ? ERR_TIMEOUT : ERR_UNKNOWN,
            "cannot reach the registry: %s", why[0] ? why : curl_easy_strerror(code));
    return tls ? err_remedy(err, "SSL_CERT_FILE names a file of trusted certificates; --insecure "
                                 "uses http")
               : -1;
}

/* ---- authentication ---- */

static struct challenge find_challenge(CURL *easy) {
    struct challenge best = {.kind = CHALLENGE_NONE};
    struct curl_header *h;
    for (size_t i = 0;
         curl_easy_header(easy, "WWW-Authenticate", i, CURLH_HEADER, -1, &h) == CURLHE_OK; i++) {
        struct challenge c = challenge_read(h->value);
        if (c.kind > best.kind)
            best = c;
    }
    return best;
}

static struct secret *token_read(const struct buf *body) {
    json_t *root DEFER(json_decrefp) = json_loadb(body->data ? body->data : "", body->len, 0, NULL);
    const char *token = json_string_value(json_object_get(root, "token"));
    if (!token)
        token = json_string_value(json_object_get(root, "access_token"));
    return token ? secret_new(token, strlen(token)) : NULL;
}

/*
 * Asks the token server that the registry named. It gets the credentials, as the protocol wants,
 * but nobody that it redirects to: redirects are not followed.
 */
static int token_fetch(struct registry *r, const struct challenge *c, struct err *err) {
    char url[REGISTRY_URL_SIZE];
    struct registry_answer a DEFER(registry_answer_done) = {0};
    struct buf line DEFER(secret_wipe) = BUF(SECRET_MAX + 64);
    const char *fields[2] = {NULL, NULL};
    if ((size_t)snprintf(url, sizeof(url), "%s", c->realm) >= sizeof(url) ||
        url_check(url, r->base, r->insecure, err) < 0 ||
        (c->service[0] && url_query(url, sizeof(url), "service", c->service, err) < 0) ||
        url_query(url, sizeof(url), "scope", r->scope, err) < 0)
        return err_wrap(err, "cannot log in to the registry");
    if (r->login) {
        if (!buf_addf(&line, "Authorization: Basic ") || !secret_reveal(r->login, &line))
            return err_set(err, ERR_LIMIT, "the credentials for the registry are too long");
        fields[0] = line.data;
    }
    const struct registry_request q = {.method = "GET", .url = url, .fields = fields};
    if (exchange_once(r, &q, url, &a, err) < 0)
        return err_wrap(err, "cannot log in to the registry");
    if (a.status == 200)
        r->token = token_read(&a.body);
    if (a.body.data)
        explicit_bzero(a.body.data, a.body.len);
    if (r->token)
        return 0;
    err_set(err, ERR_DENIED, "the token server of the registry gave no token (status %ld)",
            a.status);
    return err_remedy(err, r->login ? "log in again: docker login" : "log in: docker login HOST");
}

/* 1: the request may be sent again; 0: the refusal stands. */
static int registry_authenticate(struct registry *r, bool *tried, struct err *err) {
    struct challenge c = find_challenge(r->easy);
    if (*tried)
        return 0;
    *tried = true;
    secret_free(r->token);
    r->token = NULL;
    if (c.kind == CHALLENGE_BEARER)
        return token_fetch(r, &c, err) < 0 ? -1 : 1;
    r->uses_basic = c.kind == CHALLENGE_BASIC && r->login;
    return r->uses_basic;
}

/* ---- requests ---- */

static bool is_redirect(const struct registry_request *q, const struct registry_answer *a) {
    static const long statuses[] = {301, 302, 303, 307, 308};
    if (strcmp(q->method, "GET") != 0 && strcmp(q->method, "HEAD") != 0)
        return false;
    for (size_t i = 0; i < sizeof(statuses) / sizeof(*statuses); i++)
        if (a->status == statuses[i])
            return a->location[0] != '\0';
    return false;
}

int registry_call(struct registry *r, const struct registry_request *q, struct registry_answer *ret,
                  struct err *err) {
    char url[REGISTRY_URL_SIZE];
    bool tried = false;
    snprintf(url, sizeof(url), "%s", q->url);
    if (!url_same_origin(url, r->base) && url_check(url, r->base, r->insecure, err) < 0)
        return -1;
    for (unsigned hops = 0; hops <= REDIRECTS_MAX;) {
        if (exchange_once(r, q, url, ret, err) < 0)
            return -1;
        if (ret->status == 401 && url_same_origin(url, r->base)) {
            int again = registry_authenticate(r, &tried, err);
            if (again <= 0)
                return again;
            continue;
        }
        if (!is_redirect(q, ret))
            return 0;
        if (url_check(ret->location, url, r->insecure, err) < 0)
            return -1;
        snprintf(url, sizeof(url), "%s", ret->location);
        hops++;
    }
    return err_set(err, ERR_INVALID, "the registry redirects more than %d times", REDIRECTS_MAX);
}

int registry_refused(const struct registry_answer *a, const char *what, struct err *err) {
    json_t *root DEFER(json_decrefp) =
        json_loadb(a->body.data ? a->body.data : "", a->body.len, 0, NULL);
    const json_t *first = json_array_get(json_object_get(root, "errors"), 0);
    const char *said = json_string_value(json_object_get(first, "message"));
    enum err_code code = a->status == 404                       ? ERR_NOT_FOUND
                         : a->status == 401 || a->status == 403 ? ERR_DENIED
                         : a->status == 429                     ? ERR_BUSY
                                                                : ERR_UNKNOWN;
    err_set(err, code, "%s: the registry answered with status %ld%s%.120s", what, a->status,
            said ? ": " : "", said ? said : "");
    return code == ERR_DENIED ? err_remedy(err, "log in to the registry: docker login HOST") : -1;
}

bool registry_wait(unsigned attempt) {
    if (attempt >= ATTEMPTS_MAX)
        return false;
    struct timespec pause = {.tv_sec = attempt < 3 ? 0 : 2, .tv_nsec = 200000000};
    nanosleep(&pause, NULL);
    return true;
}
