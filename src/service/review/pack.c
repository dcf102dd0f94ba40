#include "service/review/pack.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/baseline.h"
#include "machine/compare.h"
#include "service/review/changesets.h"

/* One run of carrel-compare, on a worker. */
struct changes_packing {
    struct live *live;
    struct comparison_wait wait;
    int upper, disk, userns;
    int archive; /* owned by the caller */
    struct sha256 hash;
    struct packed packed;
    bool failed;
    struct err err;
    pack_done_fn *done;
    void *arg;
};

static void packing_free(struct changes_packing *p) {
    close_fd(&p->upper);
    close_fd(&p->disk);
    close_fd(&p->userns);
    buf_done(&p->packed.list);
    live_unref(p->live);
    free(p);
}

static void packing_finish(struct changes_packing *p, const struct err *err) {
    comparison_end(p->live->service);
    p->done(p->arg, err ? NULL : &p->packed, err);
    packing_free(p);
}

/* ---- on a worker ---- */

static int packing_add_archive(void *arg, const void *bytes, size_t n, struct err *err) {
    struct changes_packing *p = arg;
    p->packed.bytes += n;
    if (p->packed.bytes > CHANGESET_BYTES_MAX)
        return err_set(err, ERR_LIMIT, "the files of the change set have more than %d MiB",
                       CHANGESET_BYTES_MAX >> 20);
    int status = write_all(p->archive, bytes, n);
    if (status < 0)
        return err_num(err, status, "cannot write the archive of a change set");
    sha256_add(&p->hash, bytes, n);
    return 0;
}

static int packing_add_list(void *arg, const void *bytes, size_t n, struct err *err) {
    struct changes_packing *p = arg;
    if (buf_add(&p->packed.list, bytes, n))
        return 0;
    return err_set(err, ERR_LIMIT, "the paths of the change set have more than %d MiB",
                   BASELINE_TEXT_MAX >> 20);
}

static void packing_run(void *arg) {
    struct changes_packing *p = arg;
    const struct compare_sink sink = {p, packing_add_archive, packing_add_list};
    p->failed = compare_pack_run(p->live->service->place->libexec, p->upper, p->disk, p->userns,
                                 &sink, &p->err) < 0;
    if (!p->failed)
        sha256_end_hex(&p->hash, p->packed.sha256);
}

static void packing_over(void *arg) {
    struct changes_packing *p = arg;
    packing_finish(p, p->failed ? &p->err : NULL);
}

/* ---- on the loop ---- */

static void packing_disk_known(void *arg, int disk, int userns, const struct err *err) {
    struct changes_packing *p = arg;
    p->disk = disk;
    p->userns = userns;
    if (err)
        packing_finish(p, err);
    else
        loop_work(p->live->service->loop, packing_run, packing_over, p);
}

/* The machine may have ended while this waited. */
static void packing_begin(void *arg) {
    struct changes_packing *p = arg;
    struct live *l = p->live;
    struct err err;
    if (l->machine) {
        l->service->driver->disk(l->machine, NULL, packing_disk_known, p);
        return;
    }
    live_state_error(l, &err);
    packing_finish(p, &err);
}

uint32_t grant_number(const struct grant_row *grant) {
    json_t *detail = json_loads(grant->detail ? grant->detail : "{}", 0, NULL);
    const json_t *number = json_object_get(detail, "number");
    json_int_t n = json_is_integer(number) ? json_integer_value(number) : -1;
    json_decref(detail);
    return n < 0 || n >= PLAN_MAX_GRANTS ? PLAN_MAX_GRANTS : (uint32_t)n;
}

/* Duplicates the upper of the grant, since the machine may end meanwhile. -1: unknown. */
static int open_upper_of(const struct live *l, const struct grant_row *grant) {
    uint32_t n = grant_number(grant);
    if (!l->machine || n == PLAN_MAX_GRANTS || l->machine->uppers[n] < 0)
        return -1;
    return fcntl(l->machine->uppers[n], F_DUPFD_CLOEXEC, 3);
}

int changes_pack(struct live *l, const struct grant_row *grant, int archive, pack_done_fn *done,
                 void *arg, struct err *err) {
    int upper DEFER_CLOSE = open_upper_of(l, grant);
    if (upper < 0)
        return 0;
    struct changes_packing *p = xnew(struct changes_packing);
    *p = (struct changes_packing){.live = l,
                                  .wait = {.call = {.fn = packing_begin, .arg = p}},
                                  .upper = TAKE_FD(upper),
                                  .disk = -1,
                                  .userns = -1,
                                  .archive = archive,
                                  .packed = {.list = BUF(BASELINE_TEXT_MAX)},
                                  .done = done,
                                  .arg = arg};
    sha256_init(&p->hash);
    live_ref(l);
    if (comparison_await(l->service, &p->wait))
        return 1;
    packing_free(p);
    err_set(err, ERR_BUSY, "%d change sets wait to be packed, which is the limit",
            COMPARISONS_WAITING_MAX);
    return err_remedy(err, "try again when some are complete");
}
