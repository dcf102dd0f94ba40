/* Machines: create, list, show, change and destroy. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/bodies.h"
#include "api/inner.h"
#include "api/route.h"
#include "base/alloc.h"
#include "base/defer.h"
#include "base/id.h"
#include "service/exec/exec.h"
#include "service/health/health.h"
#include "service/host.h"
#include "service/steps/reinstall.h"
#include "service/steps/steps.h"
#include "service/strays.h"
#include "service/vm/move.h"

void call_machine_told(void *arg, const struct machine_view *view, const struct err *err) {
    struct call *c = arg;
    if (err)
        call_error(c, err);
    else
        call_view(c, c->route->status, &machine_schema, view);
}

/* ---- ?hold: a machine that ends with the connection ---- */

struct held {
    char id[ID_SIZE];
    bool gone;
};

static void nothing(void *arg, const struct machine_view *view, const struct err *err) {
    (void)arg;
    (void)view;
    (void)err; /* the service has logged the error */
}

static void machines_let_go(struct call *c) {
    struct held *h = c->user;
    if (h->id[0]) {
        service_destroy(c->service, &c->who, h->id, nothing, NULL);
        free(h);
        call_end(c);
    } else {
        h->gone = true;
    }
}

static void answer_held(void *arg, const struct machine_view *view, const struct err *err) {
    struct call *c = arg;
    struct held *h = c->user;
    struct buf text DEFER(buf_done) = BUF(CALL_BODY_MAX);
    struct jot j = JOT(&text);
    if (err) {
        free(h);
        c->on_gone = NULL;
        call_error(c, err);
        return;
    }
    snprintf(h->id, sizeof(h->id), "%s", view->id);
    if (h->gone) {
        machines_let_go(c);
        return;
    }
    schema_write(&machine_schema, &j, NULL, view);
    if (!buf_add(&text, "\n", 1))
        abort();
    call_begin(c, 201, "application/x-ndjson", NULL);
    call_write(c, text.data, text.len);
}

void api_machine_create(struct call *c) {
    service_machine_fn *done = call_machine_told;
    if (call_flag(c, "hold")) {
        c->user = xcalloc(1, sizeof(struct held));
        c->on_gone = machines_let_go;
        done = answer_held;
    }
    struct machine_request *r = c->request;
    r->ephemeral = c->on_gone;
    (r->source ? service_create_from : service_create)(c->service, &c->who, r, c->hash, c->fds,
                                                       c->nfds, done, c);
}

/* ---- list and show ---- */

struct list_answer {
    struct jot json;
    const struct schema *schema;
};

static void machines_add_row(void *arg, const void *view) {
    struct list_answer *a = arg;
    schema_write(a->schema, &a->json, NULL, view);
}

static int split_meta(const char *text, char key[CALL_PARAM_SIZE], struct list_request *r,
                      struct err *err) {
    const char *eq = text ? strchr(text, '=') : NULL;
    if (!text)
        return 0;
    if (!eq || eq == text || (size_t)(eq - text) >= CALL_PARAM_SIZE)
        return err_set(err, ERR_INVALID, "query parameter 'meta' must be KEY=VALUE");
    snprintf(key, CALL_PARAM_SIZE, "%.*s", (int)(eq - text), text);
    r->meta_key = key;
    r->meta_value = eq + 1;
    return 0;
}

void api_machine_list(struct call *c) {
    struct buf text DEFER(buf_done) = BUF(CALL_BODY_MAX);
    struct list_answer a = {JOT(&text), &machine_schema};
    struct room_view room;
    char next[CURSOR_SIZE], key[CALL_PARAM_SIZE];
    struct err err;
    struct list_request r = {
        .states = call_query(c, "state"),
        .kind = call_query(c, "kind"),
        .name = call_query(c, "name"),
        .cursor = call_query(c, "cursor"),
        .all_owners = call_flag(c, "all"),
    };
    jot_object(&a.json, NULL);
    jot_array(&a.json, "machines");
    if (split_meta(call_query(c, "meta"), key, &r, &err) < 0 ||
        call_number(c, "limit", 1, STORE_PAGE_MAX, &r.limit, &err) < 0 ||
        service_list(c->service, &c->who, &r, machines_add_row, &a, next, &err) < 0) {
        call_error(c, &err);
        return;
    }
    jot_end(&a.json, ']');
    if (next[0])
        jot_string(&a.json, "next", next);
    if (service_stray_count(c->service, &c->who))
        jot_u64(&a.json, "left_alone", service_stray_count(c->service, &c->who));
    service_room(c->service, &c->who, &room);
    if (room.room.full)
        host_put_room(&a.json, &room);
    jot_end(&a.json, '}');
    call_json(c, 200, &a.json, &text);
}

void api_machine_show(struct call *c) {
    service_look(c->service, &c->who, c->params[0], call_machine_told, c);
}

static void answer_stats(void *arg, const struct stats_view *view, const struct err *err) {
    struct call *c = arg;
    if (err)
        call_error(c, err);
    else
        call_view(c, 200, &stats_schema, view);
}

void api_machine_stats(struct call *c) {
    service_stats(c->service, &c->who, c->params[0], answer_stats, c);
}

/* ---- stats of many machines ---- */

enum { SAMPLES_MAX = 200, SAMPLE_ARGV_MAX = 4096 };

struct samples {
    struct call *call;
    struct buf text;
    struct jot json;
    size_t left; /* machines that have not answered, and one for the loop that asks them */
};

struct sample {
    struct samples *of;
    char id[ID_SIZE];
};

static void samples_less(struct samples *s) {
    if (--s->left)
        return;
    jot_end(&s->json, ']');
    jot_end(&s->json, '}');
    call_json(s->call, 200, &s->json, &s->text);
    buf_done(&s->text);
    free(s);
}

/* Leaves out a machine that has ended or belongs to somebody else. */
static void sampled(void *arg, const struct stats_view *view, const struct err *err) {
    struct sample *m DEFER_FREE = arg;
    struct samples *s = m->of;
    struct call *c = s->call;
    const char *argv = err ? NULL : service_exec_newest(c->service, &c->who, m->id);
    if (!err) {
        jot_object(&s->json, NULL);
        jot_string(&s->json, "machine", m->id);
        schema_write(&stats_schema, &s->json, "stats", view);
        if (argv && strlen(argv) <= SAMPLE_ARGV_MAX)
            jot_raw(&s->json, "argv", argv);
        else if (argv)
            jot_raw(&s->json, "argv", "[\"…\"]");
        jot_end(&s->json, '}');
    }
    samples_less(s);
}

static void sample_ask(struct samples *s, const char *id, size_t n) {
    struct sample *m = xnew(struct sample);
    m->of = s;
    snprintf(m->id, sizeof(m->id), "%.*s", (int)n, id);
    s->left++;
    service_stats(s->call->service, &s->call->who, m->id, sampled, m);
}

void api_stats(struct call *c) {
    const char *ids = call_query(c, "machines"), *at;
    size_t count = 0, n;
    bool bad = !ids;
    struct err err;
    for (at = ids; !bad; at += n + 1) {
        n = strcspn(at, ",");
        bad = ++count > SAMPLES_MAX || !id_valid(at, n, 'm');
        if (!at[n])
            break;
    }
    if (bad) {
        err_set(&err, ERR_INVALID, "parameter 'machines' must be 1 to %d ids of machines",
                SAMPLES_MAX);
        err_remedy(&err, "put commas between them");
        call_error(c, &err);
        return;
    }
    struct samples *s = xnew(struct samples);
    *s = (struct samples){.call = c, .text = BUF(CALL_BODY_MAX), .left = 1};
    s->json = (struct jot)JOT(&s->text);
    jot_object(&s->json, NULL);
    jot_array(&s->json, "machines");
    for (at = ids; count--; at += n + 1) {
        n = strcspn(at, ",");
        sample_ask(s, at, n);
    }
    samples_less(s);
}

static void answer_health(void *arg, const struct health_view *view, const struct err *err) {
    struct call *c = arg;
    if (err) {
        call_error(c, err);
        return;
    }
    struct buf text DEFER(buf_done) = BUF(8192);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_string(&j, "machine", view->machine);
    jot_string(&j, "state", health_state_name(view->state));
    jot_array(&j, "checks");
    for (int i = 0; i < HEALTH_CHECKS; i++) {
        jot_object(&j, NULL);
        jot_string(&j, "name", view->checks[i].name);
        jot_string(&j, "state", health_state_name(view->checks[i].state));
        jot_string(&j, "text", view->checks[i].text);
        jot_end(&j, '}');
    }
    jot_end(&j, ']');
    jot_end(&j, '}');
    call_json(c, 200, &j, &text);
}

void api_machine_health(struct call *c) {
    service_health(c->service, &c->who, c->params[0], answer_health, c);
}

/* ---- change ---- */

void api_machine_update(struct call *c) {
    service_update(c->service, &c->who, c->params[0], c->request, call_machine_told, c);
}

void api_machine_pause(struct call *c) {
    service_pause(c->service, &c->who, c->params[0], call_machine_told, c);
}

void api_machine_resume(struct call *c) {
    service_resume(c->service, &c->who, c->params[0], call_machine_told, c);
}

void api_machine_stop(struct call *c) {
    service_stop(c->service, &c->who, c->params[0], call_machine_told, c);
}

void api_machine_hibernate(struct call *c) {
    service_hibernate(c->service, &c->who, c->params[0], c->request, call_machine_told, c);
}

void api_machine_move(struct call *c) {
    service_move(c->service, &c->who, c->params[0], c->request, call_machine_told, c);
}

void api_machine_reinstall(struct call *c) {
    service_reinstall(c->service, &c->who, c->params[0], c->request, call_machine_told, c);
}

void api_machine_destroy(struct call *c) {
    service_destroy(c->service, &c->who, c->params[0], call_machine_told, c);
}

void api_machine_changes(struct call *c) {
    struct err err;
    int fds[CALL_FDS];
    size_t count, sent = 0;
    if (service_changes(c->service, &c->who, c->params[0], fds, CALL_FDS, &count, &err) < 0) {
        call_error(c, &err);
        return;
    }
    /* The server closes the descriptors it sends, so send duplicates: the machine keeps these. */
    while (sent < count && (fds[sent] = fcntl(fds[sent], F_DUPFD_CLOEXEC, 3)) >= 0)
        sent++;
    call_done_fds(c, fds, sent);
}
