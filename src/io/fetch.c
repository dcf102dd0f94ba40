#include "io/fetch.h"

#include <curl/curl.h>
#include <pthread.h>

#include "base/alloc.h"
#include "base/defer.h"

enum { CONNECT_MS = 15000, IDLE_MS = 120000, BYTES_MAX = 64 << 20 };

struct fetcher {
    struct loop *loop;
    CURLM *multi;
    struct loop_timer *timer;
    struct fetch *fetches; /* list of all fetches */
    char *proxy, *ca_file;
    unsigned depth; /* > 0: inside a call of libcurl, which must not be called again */
    struct loop_call sweep;
};

struct fetch {
    struct fetcher *fetcher;
    struct fetch *next, *prev;
    CURL *easy;
    struct curl_slist *fields;
    char *body;
    struct fetch_events events;
    void *arg;
    struct loop_timer *idle;
    unsigned idle_ms;
    uint64_t left; /* how many more bytes of the answer are allowed */
    bool had_head;
    bool cancelled;
    bool joined; /* added to the multi handle of libcurl */
    int end;     /* enum fetch_end if this file ended the fetch, or -1 */
    char why[CURL_ERROR_SIZE];
};

static char *copy_text(const char *text) {
    return text ? xstrdup(text) : NULL;
}

/* ---- Ends of fetches ---- */

/* Erases the list of header fields before it is freed: one of them contains the secret. */
static void wipe_fields(struct curl_slist *fields) {
    for (struct curl_slist *i = fields; i; i = i->next)
        explicit_bzero(i->data, strlen(i->data));
    curl_slist_free_all(fields);
}

static void fetch_free(struct fetch *f) {
    if (f->joined)
        curl_multi_remove_handle(f->fetcher->multi, f->easy);
    curl_easy_cleanup(f->easy);
    wipe_fields(f->fields);
    loop_timer_free(f->idle);
    free(f->body);
    *(f->prev ? &f->prev->next : &f->fetcher->fetches) = f->next;
    if (f->next)
        f->next->prev = f->prev;
    free(f);
}

static const struct {
    CURLcode code;
    enum fetch_end end;
} ends[] = {
    {CURLE_OK, FETCH_DONE},
    {CURLE_COULDNT_RESOLVE_PROXY, FETCH_CONNECT},
    {CURLE_COULDNT_RESOLVE_HOST, FETCH_CONNECT},
    {CURLE_COULDNT_CONNECT, FETCH_CONNECT},
    {CURLE_SSL_CONNECT_ERROR, FETCH_CONNECT},
    {CURLE_PEER_FAILED_VERIFICATION, FETCH_TRUST},
    {CURLE_SSL_CACERT_BADFILE, FETCH_TRUST},
    {CURLE_SSL_ISSUER_ERROR, FETCH_TRUST},
    {CURLE_OPERATION_TIMEDOUT, FETCH_TIMEOUT},
};

static enum fetch_end how_it_ended(const struct fetch *f, CURLcode code) {
    if (f->end >= 0)
        return (enum fetch_end)f->end;
    for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++)
        if (ends[i].code == code)
            return ends[i].end;
    return FETCH_CUT;
}

/*
 * FETCH_CONNECT means that the request was certainly not sent, so that callers do not count its
 * cost.
 */
static enum fetch_end end_of(const struct fetch *f, CURLcode code) {
    enum fetch_end end = how_it_ended(f, code);
    curl_off_t ready_us = 0;
    curl_easy_getinfo(f->easy, CURLINFO_PRETRANSFER_TIME_T, &ready_us);
    bool unsent = ready_us == 0 && !f->had_head;
    return unsent && (end == FETCH_TIMEOUT || end == FETCH_CUT) ? FETCH_CONNECT : end;
}

static void fetch_finish(struct fetch *f, CURLcode code) {
    struct fetch_events events = f->events;
    void *arg = f->arg;
    enum fetch_end end = end_of(f, code);
    char why[CURL_ERROR_SIZE];
    snprintf(why, sizeof(why), "%s", f->why[0] ? f->why : curl_easy_strerror(code));
    bool quiet = f->cancelled;
    fetch_free(f);
    if (!quiet)
        events.on_end(arg, end, end == FETCH_DONE ? "" : why);
}

/*
 * Reads one message of libcurl at a time, because a callback may start and cancel other fetches.
 */
static void finish_those_done(struct fetcher *m) {
    CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(m->multi, &left))) {
        struct fetch *f;
        CURLcode code = message->data.result;
        if (message->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&f);
        fetch_finish(f, code);
    }
}

static void sweep(void *arg) {
    struct fetcher *m = arg;
    for (struct fetch *f = m->fetches, *next; f; f = next) {
        next = f->next;
        if (f->cancelled)
            fetch_free(f);
    }
}

void fetch_cancel(struct fetch *f) {
    f->cancelled = true;
    loop_timer_stop(f->idle);
    if (f->fetcher->depth == 0)
        fetch_free(f);
    else
        loop_defer(f->fetcher->loop, &f->fetcher->sweep);
}

static void on_idle(void *arg) {
    struct fetch *f = arg;
    f->end = FETCH_TIMEOUT;
    snprintf(f->why, sizeof(f->why), "the server sent nothing for %u ms", f->idle_ms);
    fetch_finish(f, CURLE_OPERATION_TIMEDOUT);
}

/* ---- Sockets and timers of libcurl in the loop ---- */

static void act(struct fetcher *m, curl_socket_t fd, int events) {
    int running;
    m->depth++;
    curl_multi_socket_action(m->multi, fd, events, &running);
    m->depth--;
    finish_those_done(m);
}

struct place {
    struct fetcher *fetcher;
    struct loop_watch *watch;
    curl_socket_t fd;
};

static void on_socket(void *arg, unsigned events) {
    struct place *p = arg;
    int bits = (events & LOOP_READ ? CURL_CSELECT_IN : 0) |
               (events & LOOP_WRITE ? CURL_CSELECT_OUT : 0) |
               (events & LOOP_ERROR ? CURL_CSELECT_ERR : 0);
    act(p->fetcher, p->fd, bits);
}

static void forget_socket(struct fetcher *m, curl_socket_t fd, struct place *p) {
    if (!p)
        return;
    loop_watch_free(p->watch);
    free(p);
    curl_multi_assign(m->multi, fd, NULL);
}

/* Called by libcurl to start or stop watching a socket. */
static int want_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *place) {
    struct fetcher *m = arg;
    struct place *p = place;
    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        forget_socket(m, fd, p);
        return 0;
    }
    unsigned events =
        (what & CURL_POLL_IN ? LOOP_READ : 0u) | (what & CURL_POLL_OUT ? LOOP_WRITE : 0u);
    if (p) {
        loop_watch_set(p->watch, events);
        return 0;
    }
    p = xcalloc(1, sizeof(*p));
    p->fetcher = m;
    p->fd = fd;
    if (loop_watch_new(m->loop, fd, events, on_socket, p, &p->watch, NULL) < 0) {
        free(p);
        return -1;
    }
    curl_multi_assign(m->multi, fd, p);
    return 0;
}

static void on_time(void *arg) {
    act(arg, CURL_SOCKET_TIMEOUT, 0);
}

static int want_time(CURLM *multi, long ms, void *arg) {
    struct fetcher *m = arg;
    (void)multi;
    if (ms < 0)
        loop_timer_stop(m->timer);
    else
        loop_timer_start(m->timer, (uint64_t)ms, 0);
    return 0;
}

static void init_curl(void) {
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

struct fetcher *fetcher_new(struct loop *loop, const struct fetcher_config *config,
                            struct err *err) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, init_curl);
    CURLM *multi = curl_multi_init();
    if (!multi) {
        err_set(err, ERR_INTERNAL, "cannot initialize libcurl");
        return NULL;
    }
    struct fetcher *m = xnew(struct fetcher);
    *m = (struct fetcher){.loop = loop, .multi = multi};
    m->sweep = (struct loop_call){.fn = sweep, .arg = m};
    m->timer = loop_timer_new(loop, on_time, m);
    m->proxy = copy_text(config ? config->proxy : NULL);
    m->ca_file = copy_text(config ? config->ca_file : NULL);
    curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, want_socket);
    curl_multi_setopt(multi, CURLMOPT_SOCKETDATA, m);
    curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, want_time);
    curl_multi_setopt(multi, CURLMOPT_TIMERDATA, m);
    return m;
}

void fetcher_free(struct fetcher *m) {
    if (!m)
        return;
    while (m->fetches)
        fetch_free(m->fetches);
    loop_call_cancel(m->loop, &m->sweep);
    curl_multi_cleanup(m->multi);
    loop_timer_free(m->timer);
    free(m->proxy);
    free(m->ca_file);
    free(m);
}

/* ---- Callbacks from libcurl ---- */

static void tell_head(struct fetch *f) {
    long status = 0;
    if (f->had_head)
        return;
    curl_easy_getinfo(f->easy, CURLINFO_RESPONSE_CODE, &status);
    f->had_head = true;
    if (f->events.on_head && !f->cancelled)
        f->events.on_head(f->arg, f, (int)status);
}

/*
 * Reports the head at the blank line after a final status; after 100 and 103 another head follows.
 */
static size_t on_header(char *line, size_t size, size_t n, void *arg) {
    struct fetch *f = arg;
    long status = 0;
    (void)size;
    loop_timer_start(f->idle, f->idle_ms, 0);
    curl_easy_getinfo(f->easy, CURLINFO_RESPONSE_CODE, &status);
    if (n <= 2 && (line[0] == '\r' || line[0] == '\n') && status >= 200)
        tell_head(f);
    return f->cancelled ? 0 : n;
}

static size_t on_data(char *bytes, size_t size, size_t n, void *arg) {
    struct fetch *f = arg;
    (void)size;
    tell_head(f);
    if (f->cancelled)
        return 0;
    loop_timer_start(f->idle, f->idle_ms, 0);
    if (n > f->left) {
        f->end = FETCH_LARGE;
        snprintf(f->why, sizeof(f->why), "the answer of the server is too large");
        return 0;
    }
    f->left -= n;
    if (f->events.on_bytes && !f->events.on_bytes(f->arg, bytes, n)) {
        f->end = FETCH_STOPPED;
        return 0;
    }
    return f->cancelled ? 0 : n;
}

size_t fetch_field_count(const struct fetch *f, const char *name) {
    struct curl_header *h;
    return curl_easy_header(f->easy, name, 0, CURLH_HEADER, -1, &h) == CURLHE_OK ? h->amount : 0;
}

const char *fetch_field(const struct fetch *f, const char *name) {
    struct curl_header *h;
    size_t count = fetch_field_count(f, name);
    if (!count || curl_easy_header(f->easy, name, count - 1, CURLH_HEADER, -1, &h) != CURLHE_OK)
        return NULL;
    return h->value;
}

/* ---- A request ---- */

static int add_line(struct fetch *f, const char *line, struct err *err) {
    if (strpbrk(line, "\r\n"))
        return err_set(err, ERR_INVALID, "a header field of the request contains a newline");
    f->fields = alloc_check(curl_slist_append(f->fields, line));
    return 0;
}

static int add_pair(struct fetch *f, const char *name, const char *value, struct err *err) {
    struct buf line DEFER(secret_wipe) = BUF(16 << 10);
    if (!buf_addf(&line, "%s: %s", name, value))
        return err_set(err, ERR_LIMIT, "header field '%s' of the request is too long", name);
    return add_line(f, line.data, err);
}

static int add_secret(struct fetch *f, const struct fetch_request *r, struct err *err) {
    struct buf value DEFER(secret_wipe) = BUF(SECRET_MAX + 256);
    if (!r->secret)
        return 0;
    if (!buf_addf(&value, "%s", r->secret_lead ? r->secret_lead : "") ||
        !secret_reveal(r->secret, &value))
        return err_set(err, ERR_LIMIT, "the secret in header field '%s' is too long",
                       r->secret_field);
    return add_pair(f, r->secret_field, value.data, err);
}

/* An empty "Expect:" keeps libcurl from adding that field and waiting for "100 Continue". */
static int add_fields(struct fetch *f, const struct fetch_request *r, struct err *err) {
    if (add_line(f, "Expect:", err) < 0 || add_secret(f, r, err) < 0)
        return -1;
    for (const struct http_pair *p = r->fields; p && p->name; p++)
        if (add_pair(f, p->name, p->value, err) < 0)
            return -1;
    return 0;
}

static void set_transport(struct fetch *f, const struct fetch_request *r) {
    CURL *e = f->easy;
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_PROXY, f->fetcher->proxy ? f->fetcher->proxy : "");
    curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(e, CURLOPT_SSL_VERIFYPEER, 1L);
    curl_easy_setopt(e, CURLOPT_SSL_VERIFYHOST, 2L);
    if (f->fetcher->ca_file)
        curl_easy_setopt(e, CURLOPT_CAINFO, f->fetcher->ca_file);
    curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS,
                     (long)(r->connect_ms ? r->connect_ms : CONNECT_MS));
    curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, (long)r->total_ms);
}

static void set_callbacks(struct fetch *f) {
    CURL *e = f->easy;
    curl_easy_setopt(e, CURLOPT_PRIVATE, f);
    curl_easy_setopt(e, CURLOPT_ERRORBUFFER, f->why);
    curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(e, CURLOPT_HEADERDATA, f);
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(e, CURLOPT_WRITEDATA, f);
}

static int set_target(struct fetch *f, const struct fetch_request *r, struct err *err) {
    CURL *e = f->easy;
    if (curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https") != CURLE_OK ||
        curl_easy_setopt(e, CURLOPT_URL, r->url) != CURLE_OK)
        return err_set(err, ERR_INVALID, "libcurl does not accept the URL '%.100s'", r->url);
    if (r->body) {
        f->body = malloc(r->n ? r->n : 1);
        if (!f->body)
            return err_set(err, ERR_LIMIT, "out of memory for the body of the request");
        memcpy(f->body, r->body, r->n);
        curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)r->n);
        curl_easy_setopt(e, CURLOPT_POSTFIELDS, f->body);
    }
    curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, r->method);
    return 0;
}

static struct fetch *fetch_new(struct fetcher *m, const struct fetch_request *r) {
    struct fetch *f = xnew(struct fetch);
    f->fetcher = m;
    f->easy = alloc_check(curl_easy_init());
    f->end = -1;
    f->idle_ms = r->idle_ms ? r->idle_ms : IDLE_MS;
    f->left = r->max_bytes ? r->max_bytes : BYTES_MAX;
    f->idle = loop_timer_new(m->loop, on_idle, f);
    f->next = m->fetches;
    if (f->next)
        f->next->prev = f;
    m->fetches = f;
    return f;
}

int fetch_start(struct fetcher *m, const struct fetch_request *request,
                const struct fetch_events *events, void *arg, struct fetch **ret, struct err *err) {
    struct fetch *f = fetch_new(m, request);
    f->events = *events;
    f->arg = arg;
    if (set_target(f, request, err) < 0 || add_fields(f, request, err) < 0) {
        fetch_free(f);
        return -1;
    }
    set_transport(f, request);
    set_callbacks(f);
    curl_easy_setopt(f->easy, CURLOPT_HTTPHEADER, f->fields);
    loop_timer_start(f->idle, f->idle_ms, 0);
    if (curl_multi_add_handle(m->multi, f->easy) != CURLM_OK) {
        fetch_free(f);
        return err_set(err, ERR_INTERNAL, "libcurl rejected the request");
    }
    f->joined = true;
    *ret = f;
    return 0;
}
