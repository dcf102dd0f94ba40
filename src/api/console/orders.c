/* Shipments that a page of the console asks for, and that the owner's `carrel console` carries out.
 */
#include "service/console/orders.h"

#include <stdlib.h>
#include <sys/random.h>

#include "api/console/inner.h"
#include "base/defer.h"
#include "base/jot.h"

#define ORDER_ID_MAX ((UINT64_C(1) << 53) - 1)

/* The worker must be the owner on this host: a page or a token cannot answer for it. */
static bool is_worker(const struct caller *who, struct http_exchange *x) {
    struct err err;
    if (who->local && !who->console[0])
        return true;
    err_set(&err, ERR_DENIED, "only the command carrel console on this host carries out orders");
    console_refuse(x, &err);
    return false;
}

/* The id that the page chose, or a random one; both are exact in a program in JavaScript. */
static uint64_t order_id(const json_t *body) {
    json_int_t told = json_integer_value(json_object_get(body, "id"));
    uint64_t id = told > 0 ? (uint64_t)told : 0;
    while (id == 0 || id > ORDER_ID_MAX)
        if (getrandom(&id, sizeof(id), 0) == sizeof(id))
            id &= ORDER_ID_MAX;
    return id;
}

void console_order(struct console_face *f, struct http_exchange *x, const struct caller *who,
                   const json_t *body) {
    char *order DEFER_FREE = json_dumps(body, JSON_COMPACT);
    struct buf text DEFER(buf_done) = BUF(256);
    struct jot j = JOT(&text);
    struct err err;
    uint64_t id = order_id(body);
    if (!order || service_order_add(console_service(f), who, id, order, &err) < 0) {
        if (!order)
            err_set(&err, ERR_INVALID, "the order is not valid");
        console_refuse(x, &err);
        return;
    }
    jot_object(&j, NULL);
    jot_u64(&j, "id", id);
    jot_end(&j, '}');
    console_reply(x, 201, &text);
}

static void put_order(struct jot *j, const struct order_view *v) {
    jot_object(j, NULL);
    jot_u64(j, "id", v->id);
    jot_string(j, "state", v->state);
    jot_i64(j, "status", v->status);
    if (v->output)
        jot_string(j, "output", v->output);
    jot_end(j, '}');
}

void console_result(struct console_face *f, struct http_exchange *x, const struct caller *who,
                    const json_t *body) {
    struct buf text DEFER(buf_done) = BUF(6 * ORDER_OUTPUT_MAX + 1024);
    struct jot j = JOT(&text);
    struct order_view view;
    struct err err;
    uint64_t id = (uint64_t)json_integer_value(json_object_get(body, "id"));
    if (service_order_show(console_service(f), who, id, &view, &err) < 0) {
        console_refuse(x, &err);
        return;
    }
    put_order(&j, &view);
    console_reply(x, 200, &text);
}

void console_work(struct console_face *f, struct http_exchange *x, const struct caller *who,
                  const json_t *body) {
    struct buf text DEFER(buf_done) = BUF(2 * ORDER_BODY_MAX);
    struct jot j = JOT(&text);
    struct order_view view;
    bool busy = json_is_true(json_object_get(body, "busy"));
    if (!is_worker(who, x))
        return;
    jot_object(&j, NULL);
    if (busy) {
        service_order_seen(console_service(f), who);
    } else if (service_order_take(console_service(f), who, &view)) {
        jot_u64(&j, "id", view.id);
        jot_raw(&j, "order", view.body);
    }
    jot_end(&j, '}');
    console_reply(x, 200, &text);
}

void console_done(struct console_face *f, struct http_exchange *x, const struct caller *who,
                  const json_t *body) {
    const struct buf text = {.data = (char[]){"{}"}, .len = 2};
    const char *output = json_string_value(json_object_get(body, "output"));
    struct err err;
    uint64_t id = (uint64_t)json_integer_value(json_object_get(body, "id"));
    int64_t status = json_integer_value(json_object_get(body, "status"));
    if (!is_worker(who, x))
        return;
    if (service_order_done(console_service(f), who, id, status, output ? output : "", &err) < 0)
        console_refuse(x, &err);
    else
        console_reply(x, 200, &text);
}
