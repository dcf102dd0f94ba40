#include "service/taint.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/defer.h"
#include "base/log.h"
#include "service/grants/live.h"
#include "service/images/live.h"
#include "service/net/live.h"
#include "service/state.h"
#include "service/steps/live.h"
#include "store/networks.h"
#include "store/taints.h"

_Static_assert((int)TAINT_SOURCE_SIZE >= (int)NAME_SIZE, "a policy's source fits");

const struct taint_flow_row taint_flows[TAINT_FLOWS] = {
    [TAINT_NETWORK] = {"network", "a server that is not trusted", "machine",
                       "when the connection is allowed"},
    [TAINT_PROVIDER] = {"provider", "server that a model provider reads from", "machine",
                        "before the request is sent"},
    [TAINT_UNTRUSTED] = {"untrusted", "data that its owner calls untrusted", "machine",
                         "before anything in it runs, or before it is granted"},
    [TAINT_FORK] = {"fork", "machine", "machine", "when the fork is made"},
    [TAINT_IMAGE] = {"image", "machine", "image, then machine",
                     "before the image has a name, and when a machine is made from it"},
    [TAINT_REPORT] = {"report", "machine of a sub-agent", "machine",
                      "before the report is delivered"},
    [TAINT_BRING] = {"bring", "machine of a sub-agent", "machine", "before its files are written"},
    [TAINT_CHECK] = {"check", "machine of a try", "machine of its check",
                     "before its files are written"},
    [TAINT_TOOLS] = {"tools", "machine whose data a model has seen",
                     "machine that the model uses next", "before the call is made"},
    [TAINT_CHANGESET] = {"changeset", "machine", "change set", "when it is frozen"},
    [TAINT_SHIP] = {"ship", "change set", "directory of the host, and machines that have it",
                    "before it is delivered"},
    [TAINT_HANDOVER] = {"handover", "directory of the host", "machine",
                        "before anything in it runs, or before it is granted"},
    [TAINT_SHARED] = {"shared", "machine", "machines with a directory that it may write to",
                      "when one of them is tainted, or another one is created"},
    [TAINT_UPLOAD] = {"upload", "holder of a ticket, or the conversation that asked for it",
                      "machine", "before the first byte is written"},
};

/* ---- paths ---- */

static bool is_within(const char *path, const char *top) {
    size_t n = strlen(top);
    while (n > 1 && top[n - 1] == '/')
        n--;
    return strncmp(path, top, n) == 0 && (n == 1 || path[n] == '\0' || path[n] == '/');
}

bool taint_overlaps(const char *a, const char *b) {
    return a[0] == '/' && b[0] == '/' && (is_within(a, b) || is_within(b, a));
}

bool taint_real_path(int fd, char *ret, size_t size) {
    char link[40];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = fd < 0 ? -1 : readlink(link, ret, size - 1);
    if (n < 0 || (size_t)n >= size - 1)
        return false;
    ret[n] = '\0';
    return true;
}

/* The path of a granted directory: from its descriptor, else as the owner wrote it. */
static void grant_path(const struct grant_row *row, char *ret, size_t size) {
    json_t *json = json_loads(row->detail ? row->detail : "{}", 0, NULL);
    const char *real = json_string_value(json_object_get(json, "path"));
    snprintf(ret, size, "%s", real ? real : row->what ? row->what : "");
    json_decref(json);
}

/* Directories and volumes are used themselves, not as copies, so machines share what is in them. */
static bool is_shared_kind(const struct grant_row *row) {
    return strcmp(row->kind, "dir") == 0 || strcmp(row->kind, "volume") == 0;
}

/* ---- taint of images and directories ---- */

struct marks {
    const char *key;
    bool (*fits)(const char *a, const char *b);
    char source[TAINT_SOURCE_SIZE];
};

static void mark_found(void *arg, const char *key, const char *source) {
    struct marks *m = arg;
    if (!m->source[0] && m->fits(key, m->key))
        snprintf(m->source, sizeof(m->source), "%s", source);
}

static bool is_same(const char *a, const char *b) {
    return strcmp(a, b) == 0;
}

static int taint_marked(const struct service *s, const char *owner, const char *kind,
                        const char *key, struct marks *ret, struct err *err) {
    *ret = (struct marks){key, strcmp(kind, "dir") == 0 ? taint_overlaps : is_same, ""};
    return store_taint_each(s->store, owner, kind, mark_found, ret, err);
}

/* ---- machines ---- */

const char *taint_of(const struct live *l) {
    return gate_policy(l->gate)->tainted;
}

static int join_sharers(struct live *from, struct err *err);

static void tell_tainted(struct live *to, enum taint_flow flow) {
    const char *source = taint_of(to);
    char why[TAINT_SOURCE_SIZE + 80];
    if (flow == TAINT_NETWORK || flow == TAINT_UNTRUSTED || flow == TAINT_UPLOAD)
        snprintf(why, sizeof(why), "it read from %s", source);
    else
        snprintf(why, sizeof(why), "%s: data from %s", taint_flows[flow].name, source);
    net_note(to, "machine.taint", why, NULL);
    event_tell(to->service, to->row.owner, to->row.id, "machine.tainted", NULL);
    to->taint.untold = false;
}

static int store_taint(struct live *to, enum taint_flow flow, struct err *err) {
    if (net_keep(to, err) < 0)
        return err_wrap(err, "cannot record the taint (mark of untrusted data) of machine '%s'",
                        to->row.id);
    if (to->taint.untold)
        tell_tainted(to, flow);
    return join_sharers(to, err);
}

static int join(struct live *to, enum taint_flow flow, uint64_t rule, const char *source,
                struct err *err) {
    struct policy *p = gate_policy(to->gate);
    if (source && *source && policy_taint(p, rule, source, wall_ms())) {
        /*
         * The taint is set in memory even if the store fails: this can only forbid more, never
         * allow more.
         */
        to->taint.unsaved = to->taint.untold = true;
        if (flow != TAINT_NETWORK) /* the gate is already checking this connection */
            gate_changed(to->gate);
    }
    if (!to->taint.unsaved || to->taint.joining) /* nothing to save, or recursion */
        return 0;
    to->taint.joining = true;
    int r = store_taint(to, flow, err);
    to->taint.joining = false;
    /* Clear it only if all sharing machines are tainted: the failed ones must be retried. */
    to->taint.unsaved = r < 0;
    return r;
}

int taint_join(struct live *to, enum taint_flow flow, const char *source, struct err *err) {
    return join(to, flow, 0, source, err);
}

int taint_crossed(struct live *l, uint64_t rule, const char *host, struct err *err) {
    return join(l, TAINT_NETWORK, rule, host, err);
}

/* Taints every machine of the owner that has the directory, since one machine may write to it. */
static int join_path(struct service *s, const char *owner, const char *path, enum taint_flow flow,
                     const char *source, struct err *err) {
    struct live *l;
    for (size_t at = 0; (l = map_next(&s->machines, &at));) {
        struct grant_list list DEFER(grant_list_done) = {0};
        if (strcmp(l->row.owner, owner) != 0 || (taint_of(l)[0] && !l->taint.unsaved))
            continue;
        if (store_grant_list(s->store, l->row.id, NULL, &list, err) < 0)
            return -1;
        for (size_t i = 0; i < list.count; i++) {
            char place[PATH_MAX];
            if (!is_shared_kind(&list.rows[i]))
                continue;
            grant_path(&list.rows[i], place, sizeof(place));
            if (taint_overlaps(place, path) && taint_join(l, flow, source, err) < 0)
                return -1;
        }
    }
    return 0;
}

static int taint_place(struct service *s, const char *owner, const char *path, enum taint_flow flow,
                       const char *source, struct err *err) {
    if (store_taint_put(s->store, owner, "dir", path, source, wall_ms(), err) < 0)
        return err_wrap(
            err, "cannot record the taint (mark of untrusted data) of directory '%.100s'", path);
    return join_path(s, owner, path, flow, source, err);
}

static int join_sharers(struct live *from, struct err *err) {
    struct grant_list list DEFER(grant_list_done) = {0};
    char source[TAINT_SOURCE_SIZE];
    snprintf(source, sizeof(source), "%s", taint_of(from));
    if (store_grant_list(from->service->store, from->row.id, NULL, &list, err) < 0)
        return -1;
    for (size_t i = 0; i < list.count; i++) {
        char place[PATH_MAX];
        if (!is_shared_kind(&list.rows[i]) || strcmp(list.rows[i].mode, "rw") != 0)
            continue;
        grant_path(&list.rows[i], place, sizeof(place));
        if (taint_place(from->service, from->row.owner, place, TAINT_SHARED, source, err) < 0)
            return -1;
    }
    return 0;
}

int taint_lent(struct live *l, struct err *err) {
    return taint_of(l)[0] ? join_sharers(l, err) : 0;
}

void taint_restored(struct live *l) {
    l->taint.unsaved = taint_of(l)[0];
}

void service_taint_of(struct service *s, const char *machine, char ret[TAINT_SOURCE_SIZE]) {
    const struct live *l = map_get(&s->machines, machine);
    char *json DEFER_FREE = NULL;
    struct policy p DEFER(policy_done) = {0};
    struct err err;
    if (l)
        snprintf(ret, TAINT_SOURCE_SIZE, "%s", taint_of(l));
    else if (store_network_get(s->store, machine, &json, &err) < 0 ||
             (json && policy_read(json, &p, &err) < 0))
        snprintf(ret, TAINT_SOURCE_SIZE, "machine %s", machine);
    else
        snprintf(ret, TAINT_SOURCE_SIZE, "%s", p.tainted);
}

static int flow_to(struct service *s, const struct caller *who, enum taint_flow flow,
                   const char *source, const char *to, struct err *err) {
    struct live *l = *source ? live_by_id(s, who, to) : NULL;
    return l ? taint_join(l, flow, source, err) : 0; /* the machine has ended: nothing to taint */
}

int service_taint_flow(struct service *s, const struct caller *who, enum taint_flow flow,
                       const char *from, const char *to, struct err *err) {
    char source[TAINT_SOURCE_SIZE];
    service_taint_of(s, from, source);
    return flow_to(s, who, flow, source, to, err);
}

int service_taint_seen(struct service *s, const struct caller *who, const char *source,
                       const char *to, struct err *err) {
    return flow_to(s, who, TAINT_TOOLS, source, to, err);
}

/* ---- conversations ---- */

/* Conversations this old are not continued; their rows are deleted. */
static const int64_t talk_ms = 90LL * 24 * 3600 * 1000;

int service_taint_heard(struct service *s, const struct caller *who, const char *talk,
                        const char *source, struct err *err) {
    if (store_taint_trim(s->store, "talk", wall_ms() - talk_ms, err) < 0 ||
        store_taint_put(s->store, who->owner, "talk", talk, source, wall_ms(), err) < 0)
        return err_wrap(err,
                        "cannot record the taint (mark of untrusted data) of this conversation");
    return 0;
}

void service_taint_talk(struct service *s, const struct caller *who, const char *talk,
                        char ret[TAINT_SOURCE_SIZE]) {
    struct marks m;
    struct err err;
    bool known = taint_marked(s, who->owner, "talk", talk, &m, &err) == 0;
    snprintf(ret, TAINT_SOURCE_SIZE, "%s", known ? m.source : "an unreadable history");
}

/* ---- grants and images of a machine ---- */

static int join_place(struct live *l, const char *path, struct err *err) {
    struct marks m;
    if (path[0] != '/')
        return 0; /* a variable or secret has no path on the host */
    if (taint_marked(l->service, l->row.owner, "dir", path, &m, err) < 0)
        return -1;
    return taint_join(l, TAINT_HANDOVER, m.source, err);
}

static int join_image(struct live *l, const struct caller *who, const char *image,
                      struct err *err) {
    struct image_row row;
    struct marks m;
    if (!image || strcmp(image, "host") == 0)
        return 0;
    if (image_find(l->service, who, image, &row, err) < 0 ||
        taint_marked(l->service, row.owner, "image", row.id, &m, err) < 0)
        return -1;
    return taint_join(l, TAINT_IMAGE, m.source, err);
}

int taint_grant(struct live *l, const struct grant_request *r, int fd, struct err *err) {
    char real[PATH_MAX];
    if (r->untrusted && taint_join(l, TAINT_UNTRUSTED, r->what, err) < 0)
        return -1;
    if (taint_real_path(fd, real, sizeof(real)) && join_place(l, real, err) < 0)
        return -1;
    /*
     * For a repository the descriptor belongs to a bundle file, so check the path in the request
     * too.
     */
    return join_place(l, r->what, err);
}

int taint_plan(struct live *l, const struct caller *who, const struct machine_request *r,
               const struct grant_plan *p, struct err *err) {
    const struct dir_request *dirs = r->dirs.v;
    const struct grant_request *grants = r->grants.v;
    for (size_t i = 0; i < r->dirs.count; i++)
        if (dirs[i].untrusted && taint_join(l, TAINT_UNTRUSTED, dirs[i].path, err) < 0)
            return -1;
    for (size_t i = 0; i < r->grants.count; i++)
        if (taint_grant(l, &grants[i], -1, err) < 0)
            return -1;
    for (size_t i = 0; i < p->count; i++) {
        char path[PATH_MAX];
        if (!taint_real_path(p->fds[i], path, sizeof(path)))
            grant_path(&p->rows[i], path, sizeof(path));
        if (join_place(l, path, err) < 0)
            return -1;
    }
    return r->from.machine ? 0 : join_image(l, who, r->image, err);
}

/*
 * An admin may use the image of another owner. The taint is also found if the image's name was
 * deleted, for machines created from it.
 */
int taint_has_image(const struct service *s, const char *owner, const char *image, bool *ret,
                    struct err *err) {
    struct image_row row;
    struct err none;
    struct marks m;
    bool known = store_image_find(s->store, owner, image, &row, &none) == 0 ||
                 store_image_find(s->store, NULL, image, &row, &none) == 0;
    if (taint_marked(s, known ? row.owner : owner, "image", image, &m, err) < 0)
        return -1;
    *ret = m.source[0] != '\0';
    return 0;
}

/* ---- images and change sets from a machine ---- */

/*
 * An image id identifies the content. If the id is that of the machine's own image, it contains no
 * new data.
 */
int taint_image(const struct live *l, const char *owner, const char *image, struct err *err) {
    const char *source = taint_of(l);
    if (!source[0] || strcmp(image, l->row.image) == 0)
        return 0;
    return store_taint_put(l->service->store, owner, "image", image, source, wall_ms(), err);
}

int taint_copied(struct service *s, const char *owner, const char *from, const char *to,
                 struct err *err) {
    struct marks m;
    if (taint_marked(s, owner, "dir", from, &m, err) < 0)
        return -1;
    return m.source[0] ? store_taint_put(s->store, owner, "dir", to, m.source, wall_ms(), err) : 0;
}

int taint_shipped(struct service *s, const char *owner, const char *source, const char *target,
                  struct err *err) {
    return source && *source ? taint_place(s, owner, target, TAINT_SHIP, source, err) : 0;
}
