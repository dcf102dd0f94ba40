#include "service/review/diff.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "machine/compare.h"
#include "service/grants/bases.h"
#include "service/net/live.h"
#include "service/review/inner.h"
#include "service/review/pack.h"
#include "service/steps/barrier.h"
#include "service/steps/live.h"
#include "service/steps/steps.h"
#include "service/volumes/live.h"
#include "store/grants.h"
#include "store/volumes/volumes.h"

struct end {
    char wanted[STORE_NAME_SIZE];
    char name[STORE_VOLUME_NAME_SIZE];
    uint64_t number;
    char stack[LAYERS_TEXT_SIZE];
    struct layers_hold hold;
    int root, usr;
};

/* A disk that has layers which only one side has. */
struct layers_disk {
    char name[ID_SIZE];
    int fd;
};

/* One request for a diff. carrel-compare makes the comparison, started by a worker. */
struct diffing {
    struct live *live;
    struct end from, to;
    struct layers_disk disks[COMPARE_DISKS_MAX]; /* the machine's own is the last one */
    size_t opened;
    int userns;
    int volumes[2]; /* a diff of a volume: directories for the spawner; -1: none */
    struct compare_order order;
    struct buf records;
    bool failed;
    struct err err;
    service_diff_fn *done;
    void *arg;
};

static void diffing_free(struct diffing *d) {
    int *const fds[] = {&d->from.root, &d->from.usr,   &d->to.root,   &d->to.usr,
                        &d->userns,    &d->volumes[0], &d->volumes[1]};
    for (size_t i = 0; i < sizeof(fds) / sizeof(*fds); i++)
        close_fd(fds[i]);
    for (size_t i = 0; i < d->opened; i++)
        close_fd(&d->disks[i].fd);
    layers_release(d->live->service, &d->from.hold);
    layers_release(d->live->service, &d->to.hold);
    buf_done(&d->records);
    live_unref(d->live);
    free(d);
}

struct service_review *service_review_new(void) {
    struct service_review *r = xnew(struct service_review);
    return r;
}

void service_review_free(struct service_review *r) {
    free(r);
}

bool comparison_begin(struct service *s) {
    if (s->review->comparing >= COMPARISONS_MAX)
        return false;
    s->review->comparing++;
    return true;
}

bool comparison_await(struct service *s, struct comparison_wait *w) {
    struct service_review *r = s->review;
    if (comparison_begin(s)) {
        loop_defer(s->loop, &w->call);
        return true;
    }
    if (r->waiting >= COMPARISONS_WAITING_MAX)
        return false;
    w->next = NULL;
    *(r->first ? &r->last->next : &r->first) = w;
    r->last = w;
    r->waiting++;
    return true;
}

/* The next one that waits gets the reservation. */
void comparison_end(struct service *s) {
    struct service_review *r = s->review;
    struct comparison_wait *w = r->first;
    if (!w) {
        r->comparing--;
        return;
    }
    r->first = w->next;
    r->waiting--;
    loop_defer(s->loop, &w->call);
}

static void diff_finish(struct diffing *d, const struct err *err) {
    struct change_list list DEFER(change_list_done) = {0};
    struct err broken;
    comparison_end(d->live->service);
    if (!err && !change_list_take(&d->records, &list)) {
        err_set(&broken, ERR_INTERNAL, "carrel-compare ended without a complete result");
        err = &broken;
    }
    const struct diff_view view = {
        .machine = d->live->row.id,
        .from = {d->from.name, d->from.number},
        .to = {d->to.name, d->to.number},
        .changes = &list,
    };
    d->done(d->arg, err ? NULL : &view, err);
    diffing_free(d);
}

/* ---- comparison ---- */

static void run_job(void *arg) {
    struct diffing *d = arg;
    int fds[COMPARE_FDS_MAX] = {
        [FD_ROOT_BEFORE] = d->from.root,
        [FD_USR_BEFORE] = d->from.usr,
        [FD_ROOT_AFTER] = d->to.root,
        [FD_USR_AFTER] = d->to.usr,
    };
    for (size_t i = 0; i < d->opened; i++)
        fds[FD_DISKS + i] = d->disks[i].fd;
    d->failed = compare_run(d->live->service->place->libexec, &d->order, fds, FD_DISKS + d->opened,
                            d->userns, &d->records, &d->err) < 0;
}

/* The layers of a machine that ends are deleted, so files may have been missing. */
static void job_done(void *arg) {
    struct diffing *d = arg;
    struct err err;
    if (!d->live->machine || d->live->ending) {
        err_set(&err, ERR_GONE, "machine '%s' ended before its files were compared",
                d->live->row.id);
        diff_finish(d, &err);
        return;
    }
    diff_finish(d, d->failed ? &d->err : NULL);
}

/* Returns NULL, and answers the request with an error, if the machine has ended meanwhile. */
static struct machine *machine_of(struct diffing *d) {
    struct err err;
    if (d->live->machine)
        return d->live->machine;
    live_state_error(d->live, &err);
    diff_finish(d, &err);
    return NULL;
}

static void disk_known(void *arg, int disk, int userns, const struct err *err);

/* Opens the disks one after the other. The user namespace comes with the machine's own disk. */
static void open_next_disk(struct diffing *d) {
    bool own = d->opened + 1 == d->order.disk_count;
    if (d->opened == d->order.disk_count)
        loop_work(d->live->service->loop, run_job, job_done, d);
    else if (machine_of(d))
        d->live->service->driver->disk(d->live->machine, own ? NULL : d->disks[d->opened].name,
                                       disk_known, d);
}

static void disk_known(void *arg, int disk, int userns, const struct err *err) {
    struct diffing *d = arg;
    if (err) {
        diff_finish(d, err);
        return;
    }
    d->disks[d->opened++].fd = disk;
    if (userns >= 0)
        d->userns = userns;
    open_next_disk(d);
}

static void to_known(void *arg, int root, int usr, const struct err *err) {
    struct diffing *d = arg;
    d->to.root = root;
    d->to.usr = usr;
    if (err)
        diff_finish(d, err);
    else
        open_next_disk(d);
}

static void from_known(void *arg, int root, int usr, const struct err *err) {
    struct diffing *d = arg;
    d->from.root = root;
    d->from.usr = usr;
    if (err)
        diff_finish(d, err);
    else if (machine_of(d))
        d->live->service->driver->view(d->live->machine, d->to.stack, to_known, d);
}

/* ---- the two sides of a diff ---- */

/* Returns the index of a disk in d->disks, where it is added. */
static uint8_t disk_index(struct diffing *d, const char *name) {
    uint32_t i = 0;
    while (i < d->order.disk_count && strcmp(d->disks[i].name, name) != 0)
        i++;
    if (i == d->order.disk_count)
        snprintf(d->disks[d->order.disk_count++].name, ID_SIZE, "%s", name);
    return (uint8_t)i;
}

/*
 * Adds the layers of one side that are on the machine's own disk, or those on other disks: copies
 * in the store, or layers of a machine that this one was forked from.
 */
static void add_layers(struct diffing *d, const struct layers *l, bool own) {
    for (size_t i = 0; i < l->count; i++) {
        if ((strcmp(l->v[i].machine, d->live->row.id) == 0) != own)
            continue;
        d->order.disks[d->order.layer_count] = disk_index(d, l->v[i].machine);
        d->order.layers[d->order.layer_count++] = l->v[i].number;
    }
}

/* Finds the layers that only one side has; they are above the layers that both have. */
static int differing_layers(struct diffing *d, struct err *err) {
    struct layers *a DEFER_FREE = xcalloc(2, sizeof(*a)), *b = a + 1;
    if (layers_parse(d->from.stack, a, err) < 0 || layers_parse(d->to.stack, b, err) < 0)
        return -1;
    while (a->count && b->count && a->v[a->count - 1].number == b->v[b->count - 1].number &&
           strcmp(a->v[a->count - 1].machine, b->v[b->count - 1].machine) == 0)
        a->count--, b->count--;
    add_layers(d, a, false);
    add_layers(d, b, false);
    disk_index(d, d->live->row.id);
    add_layers(d, a, true);
    add_layers(d, b, true);
    return 0;
}

/* A fork, or a machine that lost its steps, has no step after the clone of a repository. */
static int find_step(struct diffing *d, struct end *e, const char *step, struct err *err) {
    struct step_row row DEFER(step_row_done) = {.what = NULL};
    int found = store_step_find(d->live->service->store, d->live->row.id, step, &row, err);
    if ((found < 0 || !row.has_point) && bases_stack(d->live, step, e->stack)) {
        snprintf(e->name, sizeof(e->name), "%.*s", ID_SIZE - 1, step);
        return 0;
    }
    if (found < 0)
        return -1;
    if (!row.has_point)
        return step_point_error(d->live, &row, err);
    snprintf(e->name, sizeof(e->name), "%s", row.id);
    snprintf(e->stack, sizeof(e->stack), "%s", row.stack ? row.stack : "");
    e->number = row.number;
    return 0;
}

/* The state `start` is the image without layers; for a fork it is the first step. */
static int find_start(struct diffing *d, struct end *e, struct err *err) {
    struct root_row root DEFER(root_row_done) = {.stack = NULL};
    struct err none;
    snprintf(e->name, sizeof(e->name), "start");
    if (store_root_get(d->live->service->store, d->live->row.id, &root, &none) < 0)
        return none.code == ERR_NOT_FOUND ? 0 : (*err = none, -1);
    if (!root.from_machine[0])
        return 0;
    if (find_step(d, e, "1", err) == 0)
        return 0;
    return err_remedy(err, "compare with a later step; to list steps: carrel steps %s",
                      d->live->row.id);
}

static int find_end(struct diffing *d, struct end *e, struct err *err) {
    if (strcmp(e->wanted, "start") == 0)
        return find_start(d, e, err);
    if (strcmp(e->wanted, "now") != 0)
        return find_step(d, e, e->wanted, err);
    snprintf(e->name, sizeof(e->name), "now");
    return steps_next_stack(d->live, e->stack, err);
}

static const struct err *path_error(const struct diffing *d, struct err *ret) {
    err_set(ret, ERR_INVALID, "path '%.60s' to compare is not valid", d->order.under);
    err_remedy(ret, "use an absolute path without '.' and '..'");
    return ret;
}

static int diff_check(struct diffing *d, struct err *err) {
    struct live *l = d->live;
    if (!l->machine || l->row.state == MACHINE_ENDING)
        return live_state_error(l, err);
    if (steps_load(l, err) < 0 || find_end(d, &d->from, err) < 0 || find_end(d, &d->to, err) < 0 ||
        differing_layers(d, err) < 0)
        return -1;
    if (compare_order_ok(&d->order))
        return 0;
    path_error(d, err);
    return -1;
}

static void add_own(void *arg, const struct net_own *file) {
    struct compare_order *o = arg;
    if (o->own_count == COMPARE_OWN_MAX)
        return;
    struct compare_own *own = &o->own[o->own_count++];
    snprintf(own->path, sizeof(own->path), "%s", file->path + 1);
    own->id = file->user;
    sha256_hex(file->bytes, file->n, own->sha256);
}

/* Answers with an empty list: no layers differ, so there is nothing to compare. */
static void answer_equal(struct diffing *d) {
    const struct changes_record end = {.type = CHANGES_END};
    (void)!changes_write(&d->records, &end);
    diff_finish(d, NULL);
}

/* The steps may be deleted before the comparison is complete. */
static void hold_and_view(struct diffing *d) {
    struct service *s = d->live->service;
    layers_hold(s, &d->from.hold, d->from.stack);
    layers_hold(s, &d->to.hold, d->to.stack);
    net_own_files(d->live, add_own, &d->order);
    s->driver->view(d->live->machine, d->from.stack, from_known, d);
}

static void diff_begin(void *arg) {
    struct diffing *d = arg;
    struct err err;
    if (barrier_wait_settled(d->live, diff_begin, d))
        return;
    if (diff_check(d, &err) < 0)
        diff_finish(d, &err);
    else if (d->order.layer_count == 0)
        answer_equal(d);
    else
        hold_and_view(d);
}

/* Turns "/home/user/" into "home/user". */
static void put_path(char *ret, const char *path) {
    path += strspn(path, "/");
    snprintf(ret, COMPARE_UNDER_SIZE, "%s", path);
    for (size_t n = strlen(ret); n && ret[n - 1] == '/';)
        ret[--n] = '\0';
}

/* Lists the granted repositories for struct compare_order. Those that do not fit are compared. */
static int skip_repos(struct diffing *d, struct err *err) {
    struct grant_list list DEFER(grant_list_done) = {0};
    size_t len = 0;
    if (store_grant_list(d->live->service->store, d->live->row.id, "repo", &list, err) < 0)
        return -1;
    for (size_t i = 0; i < list.count; i++) {
        char path[COMPARE_UNDER_SIZE];
        put_path(path, list.rows[i].place);
        if (len + strlen(path) + 2 <= sizeof(d->order.skip))
            len += (size_t)snprintf(d->order.skip + len, sizeof(d->order.skip) - len, "%s\n", path);
    }
    return 0;
}

/* ---- volumes ---- */

static void volume_known(void *arg, int before, int after, const struct err *err) {
    struct diffing *d = arg;
    struct err lost;
    d->from.root = before;
    d->to.root = after;
    if (!err) { /* the worker expects them, but does not use them */
        d->from.usr = fcntl(before, F_DUPFD_CLOEXEC, 3);
        d->to.usr = fcntl(after, F_DUPFD_CLOEXEC, 3);
        if (d->from.usr < 0 || d->to.usr < 0) {
            err_sys(&lost, "cannot duplicate a descriptor of a volume");
            err = &lost;
        }
    }
    if (err)
        diff_finish(d, err);
    else
        open_next_disk(d);
}

/* Finds the machine's grant of a volume. */
static int find_volume(struct diffing *d, const char *name, struct grant_row *ret,
                       struct err *err) {
    struct grant_list list DEFER(grant_list_done) = {0};
    const char *machine = d->live->row.id;
    if (store_grant_list(d->live->service->store, machine, "volume", &list, err) < 0)
        return -1;
    for (size_t i = 0; i < list.count; i++)
        if (strcmp(list.rows[i].what, name) == 0) {
            *ret = list.rows[i];
            list.rows[i] = (struct grant_row){0};
            return 0;
        }
    err_set(err, ERR_NOT_FOUND, "machine '%s' has no volume '%.131s'", machine, name);
    return err_remedy(err, "to list its volumes: carrel grants %s", machine);
}

/*
 * Opens the directories of the volumes to compare, and writes the order. The upper of mode cow
 * tells what changed. With mode rw all files are compared: an untouched file is the same inode in
 * the snapshot, with the same times.
 */
static int volume_prepare(struct diffing *d, const char *name, const char *from, char request[32],
                          struct err *err) {
    struct grant_row row DEFER(grant_row_done) = {0};
    struct service *s = d->live->service;
    struct volume_row base, now;
    const char *owner = d->live->row.owner;
    if (!d->live->machine || d->live->row.state == MACHINE_ENDING)
        return live_state_error(d->live, err);
    if (find_volume(d, name, &row, err) < 0 || volume_base(s, owner, &row, from, &base, err) < 0 ||
        store_volume_find(s->store, owner, row.what, &now, err) < 0)
        return -1;
    d->order.grant = strcmp(row.mode, "cow") == 0;
    d->order.whole = !d->order.grant;
    disk_index(d, d->live->row.id);
    if (d->order.grant)
        d->order.layers[d->order.layer_count++] = grant_number(&row);
    snprintf(request, 32, d->order.grant ? "cow %u" : "rw", d->order.layers[0]);
    snprintf(d->from.name, sizeof(d->from.name), "%s", base.name);
    snprintf(d->to.name, sizeof(d->to.name), "now");
    d->volumes[0] = open_volume_dir(s, base.id, base.name, err);
    if (d->order.whole && d->volumes[0] >= 0)
        d->volumes[1] = open_volume_dir(s, now.id, now.name, err);
    return d->volumes[0] < 0 || (d->order.whole && d->volumes[1] < 0) ? -1 : 0;
}

static void volume_begin(struct diffing *d, const struct diff_request *r) {
    char request[32];
    struct err err;
    const char *from = r->from && r->from[0] ? r->from : NULL;
    d->order.usr = 0;
    if (volume_prepare(d, r->volume, from, request, &err) < 0)
        diff_finish(d, &err);
    else if (!compare_order_ok(&d->order))
        diff_finish(d, path_error(d, &err));
    else
        d->live->service->driver->peek(d->live->machine, request, d->volumes,
                                       d->order.whole ? 2 : 1, volume_known, d);
}

/* ---- requests ---- */

static int admit(struct service *s, const struct diff_request *r, struct err *err) {
    if (!comparison_begin(s)) {
        err_set(err, ERR_BUSY,
                "%d comparisons of steps (carrel diff) are running, which is the limit",
                COMPARISONS_MAX);
        return err_remedy(err, "try again when one has ended");
    }
    if (r->path && strlen(r->path) >= COMPARE_UNDER_SIZE) {
        comparison_end(s);
        return err_set(err, ERR_LIMIT, "the path to compare is longer than %d bytes",
                       COMPARE_UNDER_SIZE);
    }
    return 0;
}

void service_diff(struct service *s, const struct caller *who, const char *machine,
                  const struct diff_request *r, service_diff_fn *done, void *arg) {
    struct err err;
    struct live *l =
        allow(who, SCOPE_READ, &err) < 0 ? NULL : live_find(s, who, machine, LIVE_ANY, &err);
    if (!l || admit(s, r, &err) < 0) {
        done(arg, NULL, &err);
        return;
    }
    struct diffing *d = xnew(struct diffing);
    *d = (struct diffing){.live = l,
                          .from = {.root = -1, .usr = -1},
                          .to = {.root = -1, .usr = -1},
                          .userns = -1,
                          .volumes = {-1, -1},
                          .records = BUF(2 * COMPARE_OUT_MAX),
                          .done = done,
                          .arg = arg};
    d->order = (struct compare_order){.task = COMPARE_TREES,
                                      .context = (uint32_t)r->context,
                                      .text = !r->brief,
                                      .usr = !l->image};
    put_path(d->order.under, r->path ? r->path : "");
    snprintf(d->from.wanted, sizeof(d->from.wanted), "%s", r->from ? r->from : "start");
    snprintf(d->to.wanted, sizeof(d->to.wanted), "%s", r->to ? r->to : "now");
    live_ref(l);
    if (r->volume && r->volume[0])
        volume_begin(d, r);
    else if (r->skip_repos && skip_repos(d, &err) < 0)
        diff_finish(d, &err);
    else
        diff_begin(d);
}
