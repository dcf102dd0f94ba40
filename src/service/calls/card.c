#include "service/calls/card.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/amount.h"
#include "base/defer.h"
#include "service/calls/inner.h"
#include "service/models/live.h"
#include "service/net/live.h"

/* ---- as JSON ---- */

static void card_put_time(const struct live *l, struct jot *j) {
    uint64_t now = boot_ms();
    if (l->expires_ms)
        jot_u64(j, "seconds_left", l->expires_ms > now ? (l->expires_ms - now) / 1000 : 0);
}

static void card_put(struct live *l, struct jot *j) {
    struct buf models DEFER(buf_done) = BUF(1024), net DEFER(buf_done) = BUF(CARD_MAX);
    struct jot k = JOT(&models);
    struct machine_view view;
    live_view(l, &view);
    jot_object(j, NULL);
    jot_string(j, "machine", view.id);
    if (view.name)
        jot_string(j, "name", view.name);
    jot_string(j, "kind", view.kind);
    jot_string(j, "image", view.image ? view.image : "host");
    card_put_time(l, j);
    if (net_reaches_models(l) && (models_put(l, &k) || models_put_unused(l, &k)))
        jot_raw(j, "models", models.data);
    if (net_describe(l, &net))
        jot_raw(j, "rights", net.data);
    jot_end(j, '}');
}

bool service_card_json(struct service *s, const char *machine, struct buf *to) {
    struct live *l = map_get(&s->machines, machine);
    struct jot j = JOT(to);
    if (l)
        card_put(l, &j);
    return l && !j.failed;
}

/* ---- as text ---- */

static const char *card_text(const json_t *o, const char *name) {
    const char *text = json_string_value(json_object_get(o, name));
    return text ? text : "";
}

static bool card_limits(const json_t *card, struct buf *to) {
    const json_t *limits = json_object_get(json_object_get(card, "rights"), "limits"), *left;
    char mem[AMOUNT_SIZE], disk[AMOUNT_SIZE], time[AMOUNT_SIZE];
    amount_size((uint64_t)json_integer_value(json_object_get(limits, "memory_bytes")), mem);
    amount_size((uint64_t)json_integer_value(json_object_get(limits, "disk_bytes")), disk);
    bool ok = buf_addf(to, "Limits: memory %s, disk %s, %lld processes", mem, disk,
                       (long long)json_integer_value(json_object_get(limits, "processes")));
    left = json_object_get(card, "seconds_left");
    if (ok && left) {
        amount_duration((uint64_t)json_integer_value(left) * 1000000, time);
        ok = buf_addf(to, "; the machine is deleted in %s", time);
    }
    return ok && buf_addf(to, ".\n");
}

static bool card_network(const json_t *card, struct buf *to) {
    const json_t *net = json_object_get(json_object_get(card, "rights"), "network"), *row;
    size_t i;
    bool any = json_array_size(json_object_get(net, "rules"));
    bool ok = buf_addf(to, any ? "Network: these targets, and no others:\n"
                               : "Network: closed. Every connection is refused.\n");
    json_array_foreach(json_object_get(net, "rules"), i, row) {
        const char *methods = card_text(row, "methods"), *action = card_text(row, "action");
        ok = ok && buf_addf(to, "  %s %s%s%s%s\n", action, methods, *methods ? " " : "",
                            card_text(row, "target"),
                            strcmp(action, "ask") == 0 ? " (your owner decides each time)" : "");
    }
    json_array_foreach(json_object_get(net, "secrets"), i, row) {
        ok = ok && buf_addf(to,
                            "  variable %s is a placeholder for a secret; the host replaces it in "
                            "requests to %s\n",
                            card_text(row, "variable"), card_text(row, "host"));
    }
    return ok;
}

static bool card_grants(const json_t *card, struct buf *to) {
    const json_t *row;
    size_t i;
    bool ok = true;
    json_array_foreach(json_object_get(json_object_get(card, "rights"), "grants"), i, row) {
        const char *path = card_text(row, "path"), *mode = card_text(row, "mode");
        ok = ok && buf_addf(to, "Granted: %s %s%s%s%s\n", card_text(row, "kind"),
                            *path ? path : card_text(row, "name"), *mode ? " (" : "", mode,
                            *mode ? ")" : "");
    }
    return ok;
}

static bool card_models(const json_t *card, struct buf *to) {
    const json_t *models = json_object_get(card, "models"), *left;
    if (!models)
        return true;
    bool ok = buf_addf(to, "Models: http://models.carrel; %lld tokens used in %lld calls",
                       (long long)json_integer_value(json_object_get(models, "tokens")),
                       (long long)json_integer_value(json_object_get(models, "calls")));
    if ((left = json_object_get(models, "tokens_left")))
        ok = ok && buf_addf(to, "; %lld tokens left", (long long)json_integer_value(left));
    if ((left = json_object_get(models, "money_left")))
        ok = ok && buf_addf(to, "; money left: %.2f", json_number_value(left));
    return ok && buf_addf(to, ".\n");
}

static bool card_kernel(const json_t *card, struct buf *to) {
    return strcmp(card_text(card, "kind"), "box") != 0 ||
           buf_addf(to, "You share the host's kernel, so you cannot mount filesystems or make "
                        "namespaces. If your work needs that, `carrel move REASON` asks your owner "
                        "to make this machine a vm with the same files; its programs end then.\n");
}

bool service_card(struct service *s, const char *machine, struct buf *to) {
    struct buf text DEFER(buf_done) = BUF(CARD_MAX);
    json_t *card DEFER(json_decrefp) =
        service_card_json(s, machine, &text) ? json_loads(text.data, 0, NULL) : NULL;
    return card &&
           buf_addf(to, "Machine %s (a %s, image %s): Linux, with you as the user `user`.\n",
                    card_text(card, "machine"), card_text(card, "kind"),
                    card_text(card, "image")) &&
           card_limits(card, to) && card_network(card, to) && card_grants(card, to) &&
           card_models(card, to) && card_kernel(card, to) &&
           buf_addf(to, "Your owner reviews what you change. The command `carrel` in the machine "
                        "shows this text (`carrel me`) and asks your owner (`carrel ask "
                        "QUESTION`).\n");
}

bool service_card_for(struct service *s, const struct caller *who, const char *ref,
                      struct buf *to) {
    struct err none;
    const struct live *l =
        allow(who, SCOPE_READ, &none) < 0 ? NULL : live_find(s, who, ref, LIVE_ANY, &none);
    return l && service_card(s, l->row.id, to);
}
