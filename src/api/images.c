/* Images: list, name and delete them; stream archives in and out. */
#include <stdlib.h>
#include <string.h>

#include "api/bodies.h"
#include "api/route.h"
#include "base/alloc.h"
#include "base/defer.h"
#include "service/images/images.h"
#include "service/net/packages.h"

static void answer_image(void *arg, const struct image_view *view, const struct err *err) {
    struct call *c = arg;
    if (err)
        call_error(c, err);
    else
        call_view(c, c->route->status, &image_schema, view);
}

/* ---- list and names ---- */

void api_image_list(struct call *c) {
    call_list(c, "images", &image_schema, service_image_list);
}

void api_image_show(struct call *c) {
    struct err err;
    if (service_image_show(c->service, &c->who, c->params[0], answer_image, c, &err) < 0)
        call_error(c, &err);
}

void api_image_remove(struct call *c) {
    service_image_remove(c->service, &c->who, c->params[0], answer_image, c);
}

void api_image_tag(struct call *c) {
    const struct tag_request *r = c->request;
    service_image_tag(c->service, &c->who, c->params[0], r->name, answer_image, c);
}

void api_image_prune(struct call *c) {
    struct buf text DEFER(buf_done) = BUF(256);
    struct jot j = JOT(&text);
    uint64_t count, bytes;
    struct err err;
    if (service_image_prune(c->service, &c->who, &count, &bytes, &err) < 0) {
        call_error(c, &err);
        return;
    }
    jot_object(&j, NULL);
    jot_u64(&j, "removed", count);
    jot_u64(&j, "bytes", bytes);
    jot_end(&j, '}');
    call_json(c, 200, &j, &text);
}

void api_image_layers(struct call *c) {
    const struct layers_request *r = c->request;
    struct buf text DEFER(buf_done) = BUF(64);
    struct jot j = JOT(&text);
    uint64_t stored;
    struct err err;
    if (service_image_layers(c->service, &c->who, &r->digests, &stored, &err) < 0) {
        call_error(c, &err);
        return;
    }
    jot_object(&j, NULL);
    jot_u64(&j, "stored", stored);
    jot_end(&j, '}');
    call_json(c, 200, &j, &text);
}

/* A snapshot of a machine for a client. */
struct snap_call {
    struct call *call;
    struct image_snap *snap;
};

static void snap_answer(void *arg, const struct image_view *view, const struct err *err) {
    struct snap_call *s = arg;
    struct call *c = s->call;
    c->on_gone = NULL;
    free(s);
    answer_image(c, view, err);
}

/* Nobody waits for the image, and it may take long. */
static void snap_gone(struct call *c) {
    struct snap_call *s = c->user;
    image_snap_cancel(s->snap);
    free(s);
    call_abandon(c);
}

void api_image_snap(struct call *c) {
    struct snap_call *s = xnew(struct snap_call);
    *s = (struct snap_call){.call = c};
    c->user = s;
    c->on_gone = snap_gone;
    service_image_snap(c->service, &c->who, c->params[0], c->request, snap_answer, s, &s->snap);
}

/* ---- the package cache ---- */

void api_package_list(struct call *c) {
    service_package_list(c->service, &c->who, call_told, c);
}

void api_package_clear(struct call *c) {
    service_package_clear(c->service, &c->who, call_told, c);
}

/* ---- import and export ---- */

enum { REST_MAX = 1 << 20 };

/* An import (request body to image) or an export (image to response). */
struct carriage {
    struct call *call;
    struct image_job *job;
    struct buf rest; /* received body bytes that the import has not read yet */
    bool body_ended;
    const char *form;
};

static struct carriage *carriage_new(struct call *c) {
    struct carriage *t = xnew(struct carriage);
    *t = (struct carriage){.call = c, .rest = BUF(REST_MAX)};
    c->user = t;
    return t;
}

static void carriage_free(struct carriage *t) {
    t->call->on_gone = t->call->on_drain = NULL;
    buf_done(&t->rest);
    free(t);
}

static void carriage_gone(struct call *c) {
    struct carriage *t = c->user;
    image_cancel(t->job);
    carriage_free(t);
    call_abandon(c);
}

static void images_push(struct carriage *t) {
    size_t n = image_feed(t->job, t->rest.data ? t->rest.data : "", t->rest.len, t->body_ended);
    buf_drop(&t->rest, n);
    if (t->body_ended)
        return;
    if (t->rest.len)
        call_body_pause(t->call);
    else
        call_body_resume(t->call);
}

static void import_room(void *arg) {
    struct carriage *t = arg;
    if (t->rest.len || t->body_ended)
        images_push(t);
}

static void import_piece(struct call *c, const char *bytes, size_t n) {
    struct carriage *t = c->user;
    struct err err;
    t->body_ended = n == 0;
    if (n && !buf_add(&t->rest, bytes, n)) {
        err_set(&err, ERR_LIMIT, "the image archive arrives faster than it can be imported");
        image_cancel(t->job);
        carriage_free(t);
        call_error(c, &err);
        return;
    }
    images_push(t);
}

static void import_ended(void *arg, const struct image_view *view, const struct err *err) {
    struct carriage *t = arg;
    struct call *c = t->call;
    carriage_free(t);
    answer_image(c, view, err);
}

void api_image_import(struct call *c) {
    struct carriage *t = carriage_new(c);
    struct err err;
    const struct image_events events = {.arg = t, .room = import_room, .ended = import_ended};
    const char *form = call_query(c, "form");
    if (form && strcmp(form, "layers") != 0)
        err_set(&err, ERR_INVALID, "parameter 'form' must be 'layers'");
    else
        t->job =
            service_image_import(c->service, &c->who, call_query(c, "name"),
                                 form ? IMAGE_ABOVE_LAYERS : IMAGE_ABOVE_NOTHING, &events, &err);
    if (!t->job) {
        carriage_free(t);
        call_error(c, &err);
        return;
    }
    c->on_gone = carriage_gone;
    call_body(c, INT64_MAX, import_piece);
}

static const struct {
    const char *form, *type;
} forms[] = {{"oci", "application/x-tar"},
             {"oci.zst", "application/x-tar"},
             {"tar", "application/x-tar"},
             {"tar.zst", "application/zstd"},
             {"packs", "application/x-tar"}};

static const char *form_type(const char *form) {
    for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++)
        if (strcmp(forms[i].form, form) == 0)
            return forms[i].type;
    return NULL;
}

static void export_data(void *arg, const void *bytes, size_t n) {
    struct carriage *t = arg;
    if (!t->call->streaming)
        call_begin(t->call, 200, form_type(t->form), HTTP_FIELDS({"Cache-Control", "no-store"}));
    if (!call_write(t->call, bytes, n))
        image_hold(t->job, true);
}

static void export_drained(struct call *c) {
    struct carriage *t = c->user;
    image_hold(t->job, false);
}

static void export_ended(void *arg, const struct image_view *view, const struct err *err) {
    struct carriage *t = arg;
    struct call *c = t->call;
    (void)view;
    carriage_free(t);
    if (!err)
        call_end(c);
    else if (c->streaming)
        call_abandon(c); /* send no last chunk: the client must not take the archive for complete */
    else
        call_error(c, err);
}

void api_image_export(struct call *c) {
    const char *form = call_query(c, "form");
    struct err err;
    if (!form)
        form = "oci";
    if (!form_type(form)) {
        err_set(&err, ERR_INVALID,
                "parameter 'form' must be oci, tar, tar.zst or packs, not '%.20s'", form);
        call_error(c, &err);
        return;
    }
    struct carriage *t = carriage_new(c);
    t->form = form;
    const struct image_events events = {.arg = t, .data = export_data, .ended = export_ended};
    t->job = service_image_export(c->service, &c->who, c->params[0], form, &events, &err);
    if (!t->job) {
        carriage_free(t);
        call_error(c, &err);
        return;
    }
    c->on_gone = carriage_gone;
    c->on_drain = export_drained;
}
