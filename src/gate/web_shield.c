/* Secrets of a request: fills in values, refuses misplaced placeholders, masks echoed values. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "gate/web_inner.h"

void shield_free(struct shield *s) {
    if (!s)
        return;
    secret_uses_done(&s->uses);
    needles_done(&s->forbidden);
    needles_done(&s->masked);
    secret_wipe(&s->sent);
    secret_wipe(&s->received);
    free(s);
}

bool shield_mask_head(const struct shield *s, struct buf *head) {
    struct buf carry = BUF(HEAD_OUT_MAX), out = BUF(HEAD_OUT_MAX);
    int r = needles_feed(&s->masked, &carry, head->data, head->len, true, &out);
    secret_wipe(&carry);
    secret_wipe(head);
    *head = out;
    return r >= 0;
}

const char *shield_cannot_see(const struct shield *s, const struct http_head *h) {
    if (!s->masked.count || h->framing == HTTP_NO_BODY)
        return NULL;
    if (h->status == 206)
        return "a host with secrets sent a partial answer that was not requested";
    for (size_t i = 0; i < h->count; i++)
        if (http_text_is_like(h->fields[i].name, "Content-Encoding") && h->fields[i].value.n &&
            !http_text_is_like(h->fields[i].value, "identity"))
            return "a host with secrets sent an encoding that was not requested";
    return NULL;
}

/* Adds all secrets that are granted for this host to the texts to mask: a server may echo a secret
 * from an earlier request. */
static bool know_values(struct conn *c, struct shield *s) {
    struct gate *g = c->machine->gate;
    const struct secret_grants *all = gate_grants(c->machine);
    for (size_t i = 0; i < all->count; i++) {
        struct secret_use use = {.grant = &all->list[i]};
        if (strcmp(use.grant->host, c->host) != 0)
            continue;
        use.value = g->hooks->secret(g->arg, c->machine->id, use.grant->name);
        bool ok = !use.value || secrets_forms(&use, &c->web->client.head, &s->masked);
        for (size_t k = 0; k < s->uses.count; k++)
            if (s->uses.list[k].grant == use.grant)
                s->uses.list[k].value = TAKE(use.value);
        secret_free(use.value);
        if (!ok)
            return false;
    }
    return true;
}

static struct denial missing_value(struct shield *s) {
    for (size_t i = 0; i < s->uses.count; i++)
        if (!s->uses.list[i].value) {
            snprintf(s->uses.why, sizeof(s->uses.why), "secret '%s' no longer exists",
                     s->uses.list[i].grant->name);
            return (struct denial){s->uses.why, REMEDY_SECRET_LOST};
        }
    return (struct denial){NULL, REMEDY_NONE};
}

struct denial shield_raise(struct conn *c) {
    struct web *w = c->web;
    const struct secret_grants *grants = gate_grants(c->machine);
    shield_free(TAKE(w->shield));
    if (!grants->count)
        return (struct denial){NULL, REMEDY_NONE};
    struct shield *s = xnew(struct shield);
    s->sent = s->received = BUF(NEEDLE_MAX + IN_SIZE);
    w->shield = s;
    secrets_check(grants, c->host, c->is_terminated, &w->client.head, &s->uses);
    if (s->uses.why[0])
        return (struct denial){s->uses.why, s->uses.remedy};
    if (!secrets_placeholders(grants, &s->forbidden) || !know_values(c, s))
        return (struct denial){"the secrets of this request are too large", REMEDY_NONE};
    return missing_value(s);
}

void shield_tell_uses(struct conn *c) {
    const struct shield *s = c->web->shield;
    for (size_t i = 0; s && i < s->uses.count; i++)
        conn_tell_secret(c, c->web->method, c->web->path, s->uses.list[i].grant);
}
