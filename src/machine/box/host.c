/* Requests about the spawner itself: its machines, images and status. */
#include "base/alloc.h"
#include "machine/box/inner.h"

#include <inttypes.h>
#include <string.h>

#include "base/buf.h"

enum { LIST_MAX = 65536 };

struct listing {
    struct machine_host *host;
    machine_list_fn *done;
    void *arg;
    struct buf text; /* one struct plan_found per line */
    unsigned tries;
};

static void ask_page(struct listing *l, uint64_t cursor);

static void listing_end(struct listing *l, const struct err *err) {
    size_t count = 0, room = l->text.len / ID_SIZE;
    struct plan_found *found DEFER_FREE = xcalloc(room + 1, sizeof(*found));
    char *rest = l->text.data;
    struct err odd;
    for (char *line; !err && rest && count < room && (line = strsep(&rest, "\n"));) {
        if (!*line)
            continue;
        if (!plan_found_parse(line, &found[count++])) {
            err_set(&odd, ERR_INTERNAL,
                    "the spawner returned an invalid line '%.60s' in its list of machines", line);
            err = &odd;
        }
    }
    l->done(l->arg, found, err ? 0 : count, err);
    buf_done(&l->text);
    free(l);
}

static void on_page(void *arg, const struct plan_message *m, struct fd_message *fds,
                    const struct err *err) {
    (void)fds;
    struct listing *l = arg;
    struct err full;
    if (err && err->code == ERR_UNKNOWN && l->tries++ < 3) {
        l->text.len = 0; /* a new spawner: start with the first page again */
        ask_page(l, 0);
    } else if (m && !buf_add(&l->text, m->text, strlen(m->text))) {
        err_set(&full, ERR_LIMIT, "cannot list the machines of this host: there are more than %d",
                LIST_MAX);
        listing_end(l, &full);
    } else if (m && m->cursor) {
        ask_page(l, m->cursor);
    } else {
        listing_end(l, err);
    }
}

static void ask_page(struct listing *l, uint64_t cursor) {
    struct plan_message *m = box_message(l->host, PLAN_LIST, "");
    m->cursor = cursor;
    spawner_ask(l->host->spawner, m, NULL, 0, on_page, l);
}

void box_list(struct machine_host *h, machine_list_fn *done, void *arg) {
    struct listing *l = xnew(struct listing);
    *l = (struct listing){h, done, arg, BUF(LIST_MAX * PLAN_FOUND_SIZE), 0};
    ask_page(l, 0);
}

/* ---- images ---- */

static void on_answered(void *arg, const struct plan_message *m, struct fd_message *fds,
                        const struct err *err) {
    (void)m, (void)fds;
    struct ending *e DEFER_FREE = arg;
    e->done(e->arg, err);
}

static void ask_text(struct machine_host *h, enum plan_type type, const char *text, const int *fds,
                     size_t nfds, machine_done_fn *done, void *arg) {
    struct ending *e = xnew(struct ending);
    *e = (struct ending){done, arg};
    struct plan_message *m = box_message(h, type, "");
    snprintf(m->text, sizeof(m->text), "%s", text);
    spawner_ask(h->spawner, m, fds, nfds, on_answered, e);
}

void box_unpack(struct machine_host *h, const struct machine_unpack *what, int archive, int report,
                machine_done_fn *done, void *arg) {
    const int fds[] = {archive, report};
    char text[128];
    snprintf(text, sizeof(text), "%s %" PRIu64 "%s%s", what->name, what->disk_bytes,
             what->below ? " " : "", what->below ? what->below : "");
    ask_text(h, PLAN_UNPACK, text, fds, 2, done, arg);
}

void box_pack(struct machine_host *h, const char *form, const char *image, int archive, int report,
              machine_done_fn *done, void *arg) {
    const int fds[] = {archive, report};
    char text[128];
    snprintf(text, sizeof(text), "%s %s", form, image);
    ask_text(h, PLAN_PACK, text, fds, 2, done, arg);
}

void box_draw(struct machine *m, const struct machine_draw *what, int archive, int report,
              machine_done_fn *done, void *arg) {
    const int fds[] = {archive, report, what->record};
    struct ending *e = xnew(struct ending);
    *e = (struct ending){done, arg};
    struct plan_message *msg = box_message(m->host, PLAN_DRAW, m->id);
    snprintf(msg->plan.stack, sizeof(msg->plan.stack), "%s", what->stack);
    snprintf(msg->text, sizeof(msg->text), "%s", what->base ? what->base : "");
    msg->layer = what->layers;
    spawner_ask(m->host->spawner, msg, fds, what->record > 0 ? 3 : 2, on_answered, e);
}

void box_wipe(struct machine_host *h, const char *name, machine_done_fn *done, void *arg) {
    ask_text(h, PLAN_WIPE, name, NULL, 0, done, arg);
}

void box_volume(struct machine_host *h, const char *request, machine_done_fn *done, void *arg) {
    ask_text(h, PLAN_VOLUME, request, NULL, 0, done, arg);
}

void box_shed(struct machine_host *h, const char *disk, const char *ranges, machine_done_fn *done,
              void *arg) {
    char text[PLAN_TEXT_SIZE];
    snprintf(text, sizeof(text), "%s%s%s", disk, ranges ? " " : "", ranges ? ranges : "");
    ask_text(h, PLAN_SHED, text, NULL, 0, done, arg);
}

struct question {
    void (*done)(void *arg, const char *json, const struct err *err);
    void *arg;
};

static void on_status(void *arg, const struct plan_message *m, struct fd_message *fds,
                      const struct err *err) {
    (void)fds;
    struct question *q DEFER_FREE = arg;
    q->done(q->arg, m ? m->text : NULL, err);
}

void box_status(struct machine_host *h,
                void (*done)(void *arg, const char *json, const struct err *err), void *arg) {
    struct question *q = xnew(struct question);
    *q = (struct question){done, arg};
    spawner_ask(h->spawner, box_message(h, PLAN_STATUS, ""), NULL, 0, on_status, q);
}

struct claim {
    machine_claim_fn *done;
    void *arg;
};

static void on_claimed(void *arg, const struct plan_message *m, struct fd_message *fds,
                       const struct err *err) {
    (void)fds;
    struct claim *c DEFER_FREE = arg;
    c->done(c->arg, err ? NULL : m->text, err);
}

void box_claim(struct machine_host *h, const char *id, machine_claim_fn *done, void *arg) {
    struct claim *c = xnew(struct claim);
    *c = (struct claim){done, arg};
    spawner_ask(h->spawner, box_message(h, PLAN_CLAIM, id), NULL, 0, on_claimed, c);
}
