#include "service/net/expose.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/log.h"
#include "base/sha256.h"
#include "gate/ingress_head.h"
#include "service/access/machine_tokens.h"
#include "service/cells.h"
#include "service/net/inner.h"
#include "service/rights.h"
#include "store/networks.h"

enum { EXPOSED_MAX = 16, TOKEN_CHARS = 52, TEXT_MAX = 8192 };

struct exposure {
    uint16_t port;
    uint8_t hash[SHA256_BYTES];
};

struct exposures {
    struct exposure list[EXPOSED_MAX];
    size_t count;
};

/* ---- tokens and connections of exposed ports ---- */

static void hash_token(const char *token, size_t n, uint8_t ret[SHA256_BYTES]) {
    struct sha256 h;
    sha256_init(&h);
    sha256_add(&h, token, n);
    sha256_end(&h, ret);
}

static void make_token(char ret[TOKEN_CHARS + 1]) {
    static const char base32[] = "abcdefghijklmnopqrstuvwxyz234567";
    uint8_t random[TOKEN_CHARS];
    while (getrandom(random, sizeof(random), 0) != sizeof(random))
        ;
    for (size_t i = 0; i < TOKEN_CHARS; i++)
        ret[i] = base32[random[i] & 31];
    ret[TOKEN_CHARS] = '\0';
}

static struct exposure *expose_find(struct live *l, uint16_t port) {
    for (size_t i = 0; l->net->exposures && i < l->net->exposures->count; i++)
        if (l->net->exposures->list[i].port == port)
            return &l->net->exposures->list[i];
    return NULL;
}

/* Compares in constant time, so that the time does not reveal how much of a token is right. */
static bool is_same(const uint8_t *a, const uint8_t *b) {
    uint8_t differ = 0;
    for (size_t i = 0; i < SHA256_BYTES; i++)
        differ |= a[i] ^ b[i];
    return differ == 0;
}

/* A public port takes the token "". */
static void hash_public(uint8_t ret[SHA256_BYTES]) {
    hash_token("", 0, ret);
}

static bool is_public(const struct exposure *e) {
    uint8_t hash[SHA256_BYTES];
    hash_public(hash);
    return is_same(e->hash, hash);
}

static uint16_t only_port(void *arg, const char *machine) {
    struct service *s = arg;
    struct live *l = map_get(&s->machines, machine);
    const struct exposures *all = l ? l->net->exposures : NULL;
    return all && all->count == 1 ? all->list[0].port : 0;
}

/* The answer of the face about a port that nobody exposed. */
static int face_check(const struct service *s, const struct ingress_door *door,
                      struct http_text token) {
    const struct service_net *n = s->net;
    return n->face ? n->face->check(n->face_arg, door->machine, door->port, token.s, token.n) : 404;
}

static int expose_check(void *arg, const struct ingress_door *door, struct http_text token) {
    struct service *s = arg;
    struct live *l = map_get(&s->machines, door->machine);
    const struct exposure *e = l ? expose_find(l, door->port) : NULL;
    uint8_t hash[SHA256_BYTES];
    int status = !l ? 404 : e ? 0 : face_check(s, door, token);
    if (status)
        return status;
    if (e)
        hash_token(token.s, token.n, hash);
    if (e && !is_same(hash, e->hash))
        return 401;
    return policy_shows(gate_policy(l->gate), door->port) ? 0 : 403;
}

static bool is_open(void *arg, const struct ingress_door *door) {
    struct service *s = arg;
    struct live *l = map_get(&s->machines, door->machine);
    bool is = l && (expose_find(l, door->port) || face_check(s, door, HTTP_TEXT("")) != 404);
    return is && policy_shows(gate_policy(l->gate), door->port);
}

struct dialling {
    ingress_dialled_fn *fn;
    void *arg;
    struct loop_call later;
    struct loop *loop;
    int fd; /* of a face; -1: it failed */
    struct err err;
};

static void dialled(void *arg, int fd, const struct err *err) {
    struct dialling *d = arg;
    d->fn(d->arg, fd, err);
    free(d);
}

static void face_dialled_later(void *arg) {
    struct dialling *d = arg;
    dialled(d, d->fd, d->fd < 0 ? &d->err : NULL);
}

/* A face may answer at once, and the ingress wants its answer later. */
static void face_dialled(void *arg, int fd, const struct err *err) {
    struct dialling *d = arg;
    d->fd = fd;
    if (err)
        d->err = *err;
    d->later = (struct loop_call){.fn = face_dialled_later, .arg = d};
    loop_defer(d->loop, &d->later);
}

static void nobody_there(void *arg) {
    struct err err;
    err_set(&err, ERR_GONE, "the machine has ended");
    dialled(arg, -1, &err);
}

static void dial(void *arg, const struct ingress_door *door, ingress_dialled_fn *fn, void *fn_arg) {
    struct service *s = arg;
    struct live *l = map_get(&s->machines, door->machine);
    struct dialling *d = xnew(struct dialling);
    *d = (struct dialling){.fn = fn, .arg = fn_arg, .loop = s->loop};
    d->later = (struct loop_call){.fn = nobody_there, .arg = d};
    if (l && !expose_find(l, door->port) && s->net->face)
        s->net->face->dial(s->net->face_arg, door->machine, door->port, face_dialled, d);
    else if (l && l->machine && l->row.state == MACHINE_RUNNING)
        s->driver->dial(l->machine, door->port, dialled, d);
    else
        loop_defer(s->loop, &d->later);
}

static void entered(void *arg, const struct ingress_door *door, const char *method,
                    const char *path, const char *why) {
    struct service *s = arg;
    struct live *l = map_get(&s->machines, door->machine);
    struct buf text DEFER(buf_done) = BUF(JOURNAL_DETAIL_MAX);
    struct jot j = JOT(&text);
    if (!l)
        return;
    jot_object(&j, NULL);
    jot_u64(&j, "port", door->port);
    jot_string(&j, "method", method);
    jot_bytes(&j, "path", path, strlen(path));
    jot_end(&j, '}');
    net_note(l, why ? "expose.refuse" : "expose.enter", why, j.failed ? NULL : text.data);
    idle_touch(&l->idle, loop_now_ms(s->loop));
}

static bool expose_serves(void *arg, struct http_text name) {
    const struct service *s = arg;
    struct ingress_door door;
    struct live *l = ingress_door_named(name, &door) ? map_get(&s->machines, door.machine) : NULL;
    bool is_own = l && expose_find(l, door.port); /* the owner's exposure comes first */
    return !is_own && s->net->face && s->net->face->serves(s->net->face_arg, name);
}

static bool is_this(void *arg, const char *token) {
    const struct http_text *t = arg; /* of the same length */
    unsigned differs = 0;
    for (size_t i = 0; i < t->n; i++)
        differs |= (unsigned char)t->s[i] ^ (unsigned char)token[i];
    return !differs;
}

/* Whether the last word is a token of a machine that has not ended. */
static bool has_machine_token(struct service *s, struct http_text value) {
    char id[ID_SIZE];
    const char *space = value.n ? memrchr(value.s, ' ', value.n) : NULL;
    size_t skip = space ? (size_t)(space + 1 - value.s) : 0;
    struct http_text word = {value.s + skip, value.n - skip};
    bool has = false;
    for (int use = 0; use < MACHINE_TOKEN_USES && !has && word.n == MACHINE_TOKEN_SIZE - 1; use++)
        has = service_machine_by_token(s, (enum machine_token_use)use, is_this, &word, id);
    return has;
}

bool service_is_credential(struct service *s, const struct http_field *f) {
    return ingress_is_key_field(f->name) &&
           (ingress_has_key(f->value) || has_machine_token(s, f->value));
}

static bool expose_is_key(void *arg, const struct http_field *f) {
    return service_is_credential(arg, f);
}

static void expose_serve(void *arg, int fd, const struct ingress_client *client) {
    const struct service *s = arg;
    s->net->face->serve(s->net->face_arg, fd, client);
}

static const struct ingress_hooks hooks = {.only_port = only_port,
                                           .check = expose_check,
                                           .is_open = is_open,
                                           .dial = dial,
                                           .serves = expose_serves,
                                           .serve = expose_serve,
                                           .is_key = expose_is_key,
                                           .entered = entered};

struct ingress *expose_new(struct service *s) {
    const struct ingress_config config = {.domain = s->conf->domain,
                                          .certificate = s->conf->certificate,
                                          .key = s->conf->certificate_key,
                                          .home = s->place->home,
                                          .run = s->place->run};
    return ingress_new(s->loop, &hooks, s, &config);
}

/* ---- restoring exposed ports ---- */

static struct exposures *exposures_of(struct live *l) {
    if (!l->net->exposures)
        l->net->exposures = xcalloc(1, sizeof(*l->net->exposures));
    return l->net->exposures;
}

static void restore(void *arg, uint64_t port, const uint8_t *hash) {
    struct live *l = arg;
    struct exposures *all = exposures_of(l);
    if (all->count == EXPOSED_MAX || port == 0 || port > 65535)
        return;
    struct exposure *e = &all->list[all->count++];
    e->port = (uint16_t)port;
    memcpy(e->hash, hash, SHA256_BYTES);
}

void expose_restore(struct live *l) {
    struct service *s = l->service;
    struct err err;
    if (store_exposures(s->store, l->row.id, restore, l, &err) < 0 ||
        (l->net->exposures && ingress_listen(s->net->ingress, s->conf->ingress, &err) < 0))
        log_line(LOG_ERROR, "service", "restore the exposed ports of a machine: %s id=%s", err.text,
                 l->row.id);
}

void expose_detach(struct live *l) {
    if (l->net->exposures)
        ingress_close(l->service->net->ingress, l->row.id, 0);
    free(TAKE(l->net->exposures));
}

/* ---- requests ---- */

static void put_url(struct jot *j, const struct live *l, uint16_t port, const char *token) {
    const struct service *s = l->service;
    struct buf url DEFER(buf_done) = BUF(1024);
    struct ingress_door door = {.port = port};
    snprintf(door.machine, sizeof(door.machine), "%s", l->row.id);
    bool ok = ingress_name_put(&url, &door, s->conf->domain, *s->conf->certificate,
                               ingress_port(s->net->ingress)) &&
              (!token || buf_addf(&url, "?" INGRESS_QUERY "=%s", token));
    jot_string(j, "url", ok ? url.data : "");
}

/*
 * For programs: they may not resolve names below ".localhost". With TLS there is none, because the
 * certificate is for the names.
 */
static void put_direct(struct jot *j, const struct live *l, uint16_t port, const char *token) {
    const struct service *s = l->service;
    char name[ID_SIZE + 8], url[INGRESS_URL_SIZE];
    if (*s->conf->certificate)
        return;
    snprintf(name, sizeof(name), "%u-%s", port, l->row.id);
    ingress_address_url(s->net->ingress, url);
    jot_string(j, "direct_url", url);
    jot_object(j, "headers");
    jot_string(j, INGRESS_PORT_FIELD, name);
    if (token)
        jot_string(j, "Carrel-Token", token);
    jot_end(j, '}');
}

void service_expose_origins(const struct service *s, struct buf *out) {
    uint16_t listens = ingress_port(s->net->ingress);
    if (listens)
        ingress_origins_put(out, s->conf->domain, *s->conf->certificate, listens);
}

static void expose_list(struct live *l, service_net_fn *done, void *arg) {
    struct buf text DEFER(buf_done) = BUF(TEXT_MAX);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_string(&j, "machine", l->row.id);
    jot_array(&j, "exposures");
    for (size_t i = 0; l->net->exposures && i < l->net->exposures->count; i++) {
        jot_object(&j, NULL);
        jot_u64(&j, "port", l->net->exposures->list[i].port);
        put_url(&j, l, l->net->exposures->list[i].port, NULL);
        put_direct(&j, l, l->net->exposures->list[i].port, NULL);
        if (is_public(&l->net->exposures->list[i]))
            jot_bool(&j, "public", true);
        jot_end(&j, '}');
    }
    jot_end(&j, ']');
    jot_end(&j, '}');
    done(arg, text.data, NULL);
}

/*
 * The owner who exposes a port of a tainted machine accepts the data that the machine may have
 * read. This decision and the new token are stored in one transaction; otherwise the holder of the
 * old token could see the port again.
 */
static int store_door(struct live *l, uint16_t port, const uint8_t hash[SHA256_BYTES],
                      struct err *err) {
    struct store *store = l->service->store;
    struct policy *p = gate_policy(l->gate);
    bool shows = policy_shows(p, port);
    if (store_begin(store, err) < 0)
        return -1;
    if (!shows)
        policy_show(p, port, true);
    if (store_exposure_put(store, l->row.id, port, hash, err) == 0 &&
        (shows || net_keep(l, err) == 0) && store_commit(store, err) == 0)
        return 0;
    store_rollback(store);
    if (!shows)
        policy_show(p, port, false);
    return -1;
}

/* token: the new one of a private port; "" for a public port. */
static int open_door(struct live *l, uint16_t port, const char *token, struct err *err) {
    struct service *s = l->service;
    struct exposure *e = expose_find(l, port);
    uint8_t hash[SHA256_BYTES];
    if (!e && l->net->exposures && l->net->exposures->count == EXPOSED_MAX)
        return err_set(err, ERR_LIMIT, "machine '%s' already exposes %d ports, which is the limit",
                       l->row.id, EXPOSED_MAX);
    if (ingress_listen(s->net->ingress, s->conf->ingress, err) < 0)
        return -1;
    hash_token(token, strlen(token), hash);
    if (store_door(l, port, hash, err) < 0)
        return -1;
    if (!e) {
        struct exposures *all = exposures_of(l);
        e = &all->list[all->count++];
        e->port = port;
    }
    memcpy(e->hash, hash, SHA256_BYTES);
    return 0;
}

static struct live *expose_begin(struct service *s, const struct caller *who, const char *machine,
                                 const char *verb, const char *detail, uint64_t *intent,
                                 struct err *err) {
    struct live *l =
        authorise(who, RIGHT_EXPOSE, err) < 0 ? NULL : live_find(s, who, machine, LIVE_ANY, err);
    if (!l)
        return NULL;
    const struct journal_record what = {.verb = verb, .machine = l->row.id, .detail = detail};
    return note_intent(s, who, &what, intent, err) < 0 ? NULL : l;
}

void service_expose(struct service *s, const struct caller *who, const char *machine,
                    const struct expose_request *r, service_net_fn *done, void *arg) {
    struct buf text DEFER(buf_done) = BUF(TEXT_MAX);
    struct jot j = JOT(&text);
    struct err err;
    uint64_t intent;
    char token[TOKEN_CHARS + 1] = "", detail[48];
    uint16_t port = (uint16_t)r->port.value;
    snprintf(detail, sizeof(detail), "{\"port\":%u%s}", port,
             r->is_public ? ",\"public\":true" : "");
    struct live *l = expose_begin(s, who, machine, "expose.open", detail, &intent, &err);
    if (!l) {
        done(arg, NULL, &err);
        return;
    }
    bool again = expose_find(l, port) != NULL;
    if (!r->is_public)
        make_token(token);
    int status = cell_refuse(l, "exposed ports", &err) < 0 ? -1 : open_door(l, port, token, &err);
    const struct journal_record what = {
        .verb = "expose.open", .machine = l->row.id, .detail = detail};
    note_result(s, who, &what, intent, status < 0 ? &err : NULL);
    if (status < 0) {
        done(arg, NULL, &err);
        return;
    }
    jot_object(&j, NULL);
    jot_string(&j, "machine", l->row.id);
    jot_u64(&j, "port", port);
    put_url(&j, l, port, r->is_public ? NULL : token);
    put_direct(&j, l, port, r->is_public ? NULL : token);
    if (r->is_public)
        jot_bool(&j, "public", true);
    else
        jot_string(&j, "token", token);
    if (again)
        jot_bool(&j, "replaced", true);
    jot_end(&j, '}');
    done(arg, text.data, NULL);
}

void service_expose_list(struct service *s, const struct caller *who, const char *machine,
                         service_net_fn *done, void *arg) {
    struct err err;
    struct live *l =
        allow(who, SCOPE_READ, &err) < 0 ? NULL : live_find(s, who, machine, LIVE_ANY, &err);
    if (l)
        expose_list(l, done, arg);
    else
        done(arg, NULL, &err);
}

static int close_door(struct live *l, uint16_t port, struct err *err) {
    struct exposure *e = expose_find(l, port);
    if (!e)
        return err_set(err, ERR_NOT_FOUND, "machine '%s' does not expose port %u", l->row.id, port);
    if (store_exposure_remove(l->service->store, l->row.id, port, err) < 0)
        return -1;
    *e = l->net->exposures->list[--l->net->exposures->count];
    policy_show(gate_policy(l->gate), port, false); /* stored with the next change of the policy */
    ingress_close(l->service->net->ingress, l->row.id, port);
    return 0;
}

void service_expose_remove(struct service *s, const struct caller *who, const char *machine,
                           uint16_t port, service_net_fn *done, void *arg) {
    struct err err;
    uint64_t intent;
    char detail[32];
    snprintf(detail, sizeof(detail), "{\"port\":%u}", port);
    struct live *l = expose_begin(s, who, machine, "expose.close", detail, &intent, &err);
    if (!l) {
        done(arg, NULL, &err);
        return;
    }
    int status = close_door(l, port, &err);
    const struct journal_record what = {
        .verb = "expose.close", .machine = l->row.id, .detail = detail};
    note_result(s, who, &what, intent, status < 0 ? &err : NULL);
    if (status < 0)
        done(arg, NULL, &err);
    else
        expose_list(l, done, arg);
}

/* ---- faces ---- */

void service_set_expose_face(struct service *s, const struct expose_face *face, void *arg) {
    const struct live *l;
    struct err err;
    bool has = face && *s->conf->domain && *s->conf->certificate; /* clients may know only that */
    s->net->face = face;
    s->net->face_arg = arg;
    for (size_t at = 0; face && !has && (l = map_next(&s->machines, &at));)
        has = face->check(arg, l->row.id, 1, "", 0) != 404;
    if (has && ingress_listen(s->net->ingress, s->conf->ingress, &err) < 0)
        log_line(LOG_ERROR, "service", "serve the ports of machines: %s", err.text);
}

bool service_expose_name(const struct service *s, struct http_text host, struct http_text *ret) {
    return ingress_name_read(host, s->conf->domain, ret);
}

bool service_expose_door(struct http_text name, struct ingress_door *ret) {
    return ingress_door_named(name, ret);
}

int service_expose_domain(struct service *s, struct buf *ret, struct err *err) {
    bool tls = *s->conf->certificate;
    if (ingress_listen(s->net->ingress, s->conf->ingress, err) < 0)
        return -1;
    return ingress_domain_put(ret, s->conf->domain, tls, ingress_port(s->net->ingress))
               ? 0
               : err_set(err, ERR_LIMIT, "the domain of exposed ports is too long");
}

bool service_port_shows(struct service *s, const char *machine, uint16_t port) {
    struct live *l = map_get(&s->machines, machine);
    return l && policy_shows(gate_policy(l->gate), port);
}
