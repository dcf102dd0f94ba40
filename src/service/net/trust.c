/*
 * Creates the certificate authority of a machine's network and makes the machine trust it. The
 * system's certificate bundle is replaced by one that includes the authority, because programs look
 * at different files. Programs that do not read this bundle by default find it by environment
 * variables (net_env).
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/log.h"
#include "base/secret.h"
#include "gate/java_store.h"
#include "gate/nss_store.h"
#include "service/cells.h"
#include "service/models/models.h"
#include "service/net/inner.h"
#include "service/steps/barrier.h"
#include "store/networks.h"

#define BUNDLE "/etc/ssl/certs/ca-certificates.crt"
#define JAVA "/etc/ssl/certs/java/cacerts"
#define OWN "/usr/local/share/ca-certificates/carrel.crt"
enum { BUNDLE_MAX = 4 << 20, PEM_MAX = 65536 };

/*
 * Environment variables of commands: names and values alternate. Package tools get longer timeouts,
 * because a request may wait for approval.
 */
static const char *pairs[] = {
    "SSL_CERT_FILE",
    BUNDLE,
    "NODE_EXTRA_CA_CERTS",
    BUNDLE,
    "REQUESTS_CA_BUNDLE",
    BUNDLE,
    "CURL_CA_BUNDLE",
    BUNDLE,
    "GIT_SSL_CAINFO",
    BUNDLE,
    "PIP_CERT",
    BUNDLE,
    "CARGO_HTTP_CAINFO",
    BUNDLE,
    "AWS_CA_BUNDLE",
    BUNDLE,
    "PIP_DEFAULT_TIMEOUT",
    "300",
    "CARGO_HTTP_TIMEOUT",
    "300",
};
static const struct texts trust_env = {.v = pairs, .count = sizeof(pairs) / sizeof(*pairs)};
static const struct texts no_env = {.count = 0};

static void add_pair(struct texts *t, const char *name, const char *value) {
    t->v[t->count++] = name;
    t->v[t->count++] = value;
}

/*
 * Where the agents and SDKs of vendors find models. The gateway ignores their keys, but most of
 * them do not start without one. Claude Code asks about ANTHROPIC_API_KEY, and not about the token.
 */
#define MODELS_URL "http://" MODELS_HOST
#define MODELS_KEY "carrel-placeholder"
static const char *model_pairs[] = {
    "ANTHROPIC_BASE_URL",     MODELS_URL,       "ANTHROPIC_AUTH_TOKEN", MODELS_KEY,
    "OPENAI_BASE_URL",        MODELS_URL "/v1", "OPENAI_API_KEY",       MODELS_KEY,
    "GOOGLE_GEMINI_BASE_URL", MODELS_URL,       "GEMINI_API_KEY",       MODELS_KEY,
};
static const struct texts model_env = {.v = model_pairs,
                                       .count = sizeof(model_pairs) / sizeof(*model_pairs)};

/* Whether a rule names the host of models; a rule for all hosts does not count. */
static bool has_models(const struct policy *p) {
    for (size_t i = p->count; i > 0; i--) {
        const struct policy_rule *r = &p->rules[i - 1];
        if (r->host_kind == HOST_EXACT && strcmp(r->host, MODELS_HOST) == 0)
            return r->action != POLICY_DENY;
    }
    return false;
}

static void add_pairs(struct texts *t, const struct texts *from) {
    for (size_t i = 0; i + 1 < from->count; i += 2)
        add_pair(t, from->v[i], from->v[i + 1]);
}

const struct texts *net_env(struct live *l) {
    const struct secret_grants *grants = gate_grants(l->gate);
    const struct texts *trust = l->net->trust == TRUST_THERE ? &trust_env : &no_env;
    const struct texts *models = has_models(gate_policy(l->gate)) ? &model_env : &no_env;
    if (!grants->count && !models->count)
        return trust;
    free(l->net->env.v);
    l->net->env = (struct texts){
        .v = xcalloc(trust->count + models->count + 2 * grants->count, sizeof(char *))};
    add_pairs(&l->net->env, trust);
    add_pairs(&l->net->env, models);
    for (size_t i = 0; i < grants->count; i++)
        add_pair(&l->net->env, grants->list[i].name, grants->list[i].placeholder);
    return &l->net->env;
}

bool net_reaches_models(const struct live *l) {
    const struct policy_query q = {.host = MODELS_HOST,
                                   .port = 80,
                                   .knows_protocol = true,
                                   .protocol = PROTOCOL_HTTP,
                                   .now_ms = wall_ms()};
    const struct policy_answer a = policy_decide(gate_policy(l->gate), &q);
    return a.want != POLICY_KNOWN || a.action != POLICY_DENY;
}

/* ---- creating and restoring the authority ---- */

static int trust_keep(struct live *l, struct authority *a, struct err *err) {
    struct buf pem DEFER(buf_done) = BUF(PEM_MAX);
    if (authority_write(a, &pem, err) < 0)
        return -1;
    int r = store_network_set_authority(l->service->store, l->row.id, pem.data, err);
    explicit_bzero(pem.data, pem.len);
    return r;
}

static int make_authority(struct live *l, struct err *err) {
    char name[ID_SIZE + 16];
    snprintf(name, sizeof(name), "Carrel %s", l->row.id);
    struct authority *a = authority_new(name, err);
    if (!a)
        return -1;
    if (trust_keep(l, a, err) < 0) {
        authority_free(a);
        return -1;
    }
    gate_set_authority(l->gate, a);
    return 0;
}

void net_inherit_trust(struct live *l, const struct live *parent) {
    struct buf pem DEFER(secret_wipe) = BUF(PEM_MAX);
    struct authority *known = gate_authority(parent->gate), *a = NULL;
    struct err err;
    if (!known)
        return;
    if (authority_write(known, &pem, &err) < 0 || !(a = authority_read(pem.data, &err)) ||
        store_network_set_authority(l->service->store, l->row.id, pem.data, &err) < 0) {
        log_line(LOG_ERROR, "service",
                 "copy the certificate authority of a machine to its fork: %s id=%s", err.text,
                 l->row.id);
        authority_free(a);
        return;
    }
    gate_set_authority(l->gate, a);
}

/* Restores the certificate authority. If it is stored, it was also installed in the machine. */
void net_restore_trust(struct live *l) {
    char *pem DEFER_FREE = NULL;
    struct err err;
    if (store_network_get_authority(l->service->store, l->row.id, &pem, &err) < 0) {
        log_line(LOG_ERROR, "service", "restore the certificate authority of a machine: %s id=%s",
                 err.text, l->row.id);
        return;
    }
    struct authority *a = pem ? authority_read(pem, &err) : NULL;
    if (pem)
        explicit_bzero(pem, strlen(pem));
    if (!a)
        return;
    gate_set_authority(l->gate, a);
    l->net->trust = TRUST_THERE;
}

/* ---- installing the authority in the machine ---- */

struct handing {
    struct live *live;
    size_t waiting;
    bool failed;
    bool in_step; /* called by a step (snapshot) that replaces the root directory */
    service_done_fn *done;
    void *arg;
};

static void handing_step(struct handing *h) {
    struct live *l = h->live;
    if (--h->waiting)
        return;
    l->net->trust = h->failed ? TRUST_NONE : TRUST_THERE;
    h->done(h->arg, NULL); /* no error: without the authority only TLS interception fails */
    live_unref(l);
    free(h);
}

static void written(void *arg, const struct frame *frame, const struct err *err) {
    struct handing *h = arg;
    (void)frame;
    if (err && !h->failed)
        log_line(LOG_WARN, "service", "install the certificate authority in a machine: %s id=%s",
                 err->text, h->live->row.id);
    h->failed |= err != NULL;
    handing_step(h);
}

static struct msg_str trust_text_of(const char *s) {
    return (struct msg_str){s, (uint32_t)strlen(s)};
}

static void trust_ask(struct handing *h, uint16_t type, const void *msg) {
    h->waiting++;
    guest_request(h->live->machine->guest, (struct frame_head){.type = type}, msg, NULL, 0, written,
                  h);
}

static void put_directory(struct handing *h, const char *path) {
    const struct msg_path m = {.flags = MSG_PARENTS, .mode = 0755, .path = trust_text_of(path)};
    trust_ask(h, MSG_MKDIR, &m);
}

/* Writes a new file and renames it, because the file of the image may be read-only. */
static void trust_put_file(struct handing *h, const char *path, const char *bytes, size_t n) {
    char beside[128];
    snprintf(beside, sizeof(beside), "%s.carrel", path);
    for (size_t at = 0; at < n || at == 0; at += MSG_CHUNK_MAX) {
        size_t part = n - at < MSG_CHUNK_MAX ? n - at : MSG_CHUNK_MAX;
        const struct msg_write m = {.flags = at ? 0 : MSG_CREATE | MSG_TRUNCATE,
                                    .mode = 0644,
                                    .offset = at,
                                    .path = trust_text_of(beside),
                                    .data = {(const uint8_t *)bytes + at, (uint32_t)part}};
        trust_ask(h, MSG_WRITE, &m);
    }
    const struct msg_move move = {.from = trust_text_of(beside), .to = trust_text_of(path)};
    trust_ask(h, MSG_MOVE, &move);
}

/* Java reads only its own key store, which gets the same bundle in another format. */
static void put_java(struct handing *h, const struct buf *bundle) {
    struct buf store DEFER(buf_done) = BUF(BUNDLE_MAX);
    struct err err;
    bool has_java = strcmp(h->live->row.image, "host") != 0 || access(JAVA, F_OK) == 0;
    if (!has_java)
        return;
    if (java_store(bundle->data, bundle->len, &store, &err) < 0) {
        h->failed = true;
        return;
    }
    put_directory(h, "/etc/ssl/certs/java");
    trust_put_file(h, JAVA, store.data, store.len);
}

/* Directories of policies, which browsers of the Chromium family read. */
static const char *const policy_dirs[] = {
    "/etc/chromium/policies/managed",
    "/etc/opt/chrome/policies/managed",
    "/etc/opt/edge/policies/managed",
    "/etc/brave/policies/managed",
};

/* Writes the certificate without its PEM lines, as Chromium's policy CACertificates takes it. */
static bool put_chromium_policy(const struct buf *own, struct buf *ret) {
    bool ok = buf_addf(ret, "{\"CACertificates\":[\"");
    for (const char *line = own->data; ok && *line;) {
        size_t n = strcspn(line, "\n");
        if (*line != '-')
            ok = buf_add(ret, line, n);
        line += n + (line[n] == '\n');
    }
    return ok && buf_addf(ret, "\"]}\n");
}

/* ---- what the machine gets ---- */

#define FIREFOX_DIR "/etc/firefox/policies"
#define FIREFOX_NAME "policies.json"
#define NSS_NAME "cert9.db"
#define APT "/etc/apt/apt.conf.d/90carrel"
static const char firefox[] = "{\"policies\":{\"Certificates\":{\"Install\":[\"" OWN "\"]}}}\n";
static const char apt[] = "Acquire::http::Timeout \"300\";\nAcquire::https::Timeout \"300\";\n";
static const struct {
    uint32_t user;
    const char *dir;
} homes[] = {{0, "/root/.pki/nssdb"}, {1000, "/home/user/.pki/nssdb"}};

/* Writes the certificate of the machine's authority, and the host's bundle with it. */
static bool put_bundle(struct live *l, struct buf *own, struct buf *bundle) {
    char *system DEFER_FREE = calloc(1, BUNDLE_MAX);
    struct err err;
    ssize_t n = system ? read_file_at(AT_FDCWD, BUNDLE, system, BUNDLE_MAX) : -1;
    return authority_certificate(gate_authority(l->gate), own, &err) == 0 &&
           buf_add(bundle, n > 0 ? system : "", n > 0 ? (size_t)n : 0) &&
           buf_add(bundle, own->data, own->len);
}

static void tell_own(net_own_fn *fn, void *arg, const char *path, const char *bytes, size_t n) {
    const struct net_own file = {.path = path, .bytes = bytes, .n = n};
    fn(arg, &file);
}

void net_own_files(struct live *l, net_own_fn *fn, void *arg) {
    struct buf own DEFER(buf_done) = BUF(PEM_MAX), bundle DEFER(buf_done) = BUF(BUNDLE_MAX);
    struct buf java DEFER(buf_done) = BUF(BUNDLE_MAX), nss DEFER(buf_done) = BUF(MSG_CHUNK_MAX);
    struct buf policy DEFER(buf_done) = BUF(PEM_MAX);
    struct err err;
    char path[128];
    if (!gate_authority(l->gate) || !put_bundle(l, &own, &bundle) ||
        !put_chromium_policy(&own, &policy))
        return;
    tell_own(fn, arg, BUNDLE, bundle.data, bundle.len);
    tell_own(fn, arg, OWN, own.data, own.len);
    tell_own(fn, arg, APT, apt, sizeof(apt) - 1);
    tell_own(fn, arg, FIREFOX_DIR "/" FIREFOX_NAME, firefox, sizeof(firefox) - 1);
    for (size_t i = 0; i < sizeof(policy_dirs) / sizeof(*policy_dirs); i++) {
        snprintf(path, sizeof(path), "%s/carrel.json", policy_dirs[i]);
        tell_own(fn, arg, path, policy.data, policy.len);
    }
    if (java_store(bundle.data, bundle.len, &java, &err) == 0)
        tell_own(fn, arg, JAVA, java.data, java.len);
    if (nss_store(own.data, own.len, &nss, &err) < 0)
        return;
    for (size_t i = 0; i < sizeof(homes) / sizeof(*homes); i++) {
        snprintf(path, sizeof(path), "%s/" NSS_NAME, homes[i].dir);
        const struct net_own file = {path, nss.data, nss.len, homes[i].user};
        fn(arg, &file);
    }
}

/* ---- writing it ---- */

static void extra_written(void *arg, const struct frame *frame, const struct err *err) {
    (void)frame;
    (void)err; /* the machine has such a file of its own, which stays, or no such directory */
    handing_step(arg);
}

/* Writes a small file as that user, unless it exists. A failure does not matter. */
static void trust_put_extra(struct handing *h, uint32_t user, const char *dir, const char *name,
                            const void *bytes, size_t n) {
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    const struct msg_path d = {.uid = user,
                               .gid = user,
                               .flags = MSG_PARENTS,
                               .mode = strncmp(dir, "/etc/", 5) == 0 ? 0755 : 0700,
                               .path = trust_text_of(dir)};
    const struct msg_write m = {.uid = user,
                                .gid = user,
                                .flags = MSG_CREATE | MSG_EXCLUSIVE,
                                .mode = 0644,
                                .path = trust_text_of(path),
                                .data = {bytes, (uint32_t)n}};
    struct guest *guest = h->live->machine->guest;
    h->waiting += 2;
    guest_request(guest, (struct frame_head){.type = MSG_MKDIR}, &d, NULL, 0, extra_written, h);
    guest_request(guest, (struct frame_head){.type = MSG_WRITE}, &m, NULL, 0, extra_written, h);
}

/* Browsers without policies, such as Chromium's headless shell, read a database in the home of
 * their user. */
static void put_homes(struct handing *h, const struct buf *own) {
    struct buf store DEFER(buf_done) = BUF(MSG_CHUNK_MAX);
    struct err err;
    bool is_host = strcmp(h->live->row.image, "host") == 0;
    if (nss_store(own->data, own->len, &store, &err) < 0) {
        h->failed = true;
        return;
    }
    for (size_t i = 0; i < (is_host ? 2 : 1); i++)
        trust_put_extra(h, homes[i].user, homes[i].dir, NSS_NAME, store.data, store.len);
}

/* Browsers do not read the bundle of the system, but policies of the host's administrator. */
static void put_browsers(struct handing *h, const struct buf *own) {
    struct buf policy DEFER(buf_done) = BUF(PEM_MAX);
    char path[128];
    if (!put_chromium_policy(own, &policy)) {
        h->failed = true;
        return;
    }
    for (size_t i = 0; i < sizeof(policy_dirs) / sizeof(*policy_dirs); i++) {
        put_directory(h, policy_dirs[i]);
        snprintf(path, sizeof(path), "%s/carrel.json", policy_dirs[i]);
        trust_put_file(h, path, policy.data, policy.len);
    }
    trust_put_extra(h, 0, FIREFOX_DIR, FIREFOX_NAME, firefox, sizeof(firefox) - 1);
    put_homes(h, own);
}

static void hand_over(struct handing *h) {
    struct buf own DEFER(buf_done) = BUF(PEM_MAX), bundle DEFER(buf_done) = BUF(BUNDLE_MAX);
    if (!put_bundle(h->live, &own, &bundle)) {
        h->failed = true;
        return;
    }
    put_directory(h, "/etc/ssl/certs");
    put_directory(h, "/usr/local/share/ca-certificates");
    put_directory(h, "/etc/apt/apt.conf.d");
    trust_put_file(h, BUNDLE, bundle.data, bundle.len);
    put_java(h, &bundle);
    trust_put_file(h, OWN, own.data, own.len);
    put_browsers(h, &own);
    trust_put_file(h, APT, apt, sizeof(apt) - 1);
}

/* Waits while a step (snapshot) is taken, unless the step itself calls this. */
static void hand_over_now(void *arg) {
    struct handing *h = arg;
    struct err err;
    int turn = h->in_step ? 0 : barrier_enter(h->live, hand_over_now, h, &err);
    if (turn > 0)
        return;
    if (turn == 0 && h->live->machine)
        hand_over(h);
    else
        h->failed = true;
    handing_step(h);
}

static void trust(struct live *l, bool in_step, service_done_fn *done, void *arg) {
    struct err err;
    /* Programs of a cell have no TLS of their own: the gate speaks it with servers. */
    if (l->net->trust != TRUST_NONE || !l->machine || !l->machine->guest || live_is_cell(l)) {
        done(arg, NULL);
        return;
    }
    if (!gate_authority(l->gate) && make_authority(l, &err) < 0) {
        log_line(LOG_ERROR, "service", "create the certificate authority of a machine: %s id=%s",
                 err.text, l->row.id);
        done(arg, NULL);
        return;
    }
    struct handing *h = xnew(struct handing);
    *h = (struct handing){.live = l, .waiting = 1, .in_step = in_step, .done = done, .arg = arg};
    l->net->trust = TRUST_GOING;
    live_ref(l);
    hand_over_now(h);
}

void net_trust(struct live *l, service_done_fn *done, void *arg) {
    trust(l, false, done, arg);
}

void net_trust_again(struct live *l, service_done_fn *done, void *arg) {
    if (l->net->trust != TRUST_THERE) {
        done(arg, NULL);
        return;
    }
    l->net->trust = TRUST_NONE;
    trust(l, true, done, arg);
}
