/* Images: list, name and delete them; stream archives in and out. */
#include <stdlib.h>
#include <string.h>

#include "api/bodies.h"
#include "api/carriage.h"
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

static size_t feed_import(void *job, const void *bytes, size_t n, bool last) {
    return image_feed(job, bytes, n, last);
}

static void hold_export(void *job, bool held) {
    image_hold(job, held);
}

static void cancel_job(void *job) {
    image_cancel(job);
}

static const struct carriage_job importing = {.feed = feed_import, .cancel = cancel_job};
static const struct carriage_job exporting = {.hold = hold_export, .cancel = cancel_job};

static void import_ended(void *arg, const struct image_view *view, const struct err *err) {
    answer_image(carriage_free(arg), view, err);
}

void api_image_import(struct call *c) {
    const char *form = call_query(c, "form");
    struct err err;
    if (form && strcmp(form, "layers") != 0) {
        err_set(&err, ERR_INVALID, "parameter 'form' must be 'layers'");
        call_error(c, &err);
        return;
    }
    struct carriage *t = carriage_new(c, &importing, NULL);
    const struct image_events events = {.arg = t, .room = carriage_room, .ended = import_ended};
    carriage_begin(t,
                   service_image_import(c->service, &c->who, call_query(c, "name"),
                                        form ? IMAGE_ABOVE_LAYERS : IMAGE_ABOVE_NOTHING, &events,
                                        &err),
                   &err);
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

static void export_ended(void *arg, const struct image_view *view, const struct err *err) {
    (void)view;
    carriage_sent(arg, err);
}

void api_image_export(struct call *c) {
    const char *form = call_query(c, "form") ? call_query(c, "form") : "oci";
    const char *type = form_type(form);
    struct err err;
    if (!type) {
        err_set(&err, ERR_INVALID,
                "parameter 'form' must be oci, tar, tar.zst or packs, not '%.20s'", form);
        call_error(c, &err);
        return;
    }
    struct carriage *t = carriage_new(c, &exporting, type);
    const struct image_events events = {.arg = t, .data = carriage_data, .ended = export_ended};
    carriage_begin(t, service_image_export(c->service, &c->who, c->params[0], form, &events, &err),
                   &err);
}
