/*
 * Looks up the mirrors of presets when their rules are made. A mirror with a private address cannot
 * be reached without --local, and the failure inside the machine would not name the reason.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "gate/address.h"
#include "gate/resolver.h"
#include "service/net/inner.h"

enum { LOOKUP_MS = 2000 }; /* a slow name server does not hold up the answer for longer */

struct lookup {
    struct lookups *all;
    char host[NAME_SIZE], preset[POLICY_PRESET_SIZE];
    struct resolver_call *call; /* NULL: answered */
};

struct lookups {
    struct live *live;
    struct loop_timer *timer;
    service_done_fn *done;
    void *arg;
    size_t waiting, count;
    struct lookup list[];
};

static void lookups_step(struct lookups *all) {
    if (--all->waiting)
        return;
    loop_timer_free(all->timer);
    all->done(all->arg, NULL);
    live_unref(all->live);
    free(all);
}

static void lookups_late(void *arg) {
    struct lookups *all = arg;
    all->waiting++;
    for (size_t i = 0; i < all->count; i++) {
        if (!all->list[i].call)
            continue;
        resolver_cancel(all->list[i].call);
        all->list[i].call = NULL;
        lookups_step(all);
    }
    lookups_step(all);
}

/* Returns the address that the host has, if none of its addresses is public; else NULL. */
static const struct sockaddr *find_private(const struct resolved *found) {
    for (size_t i = 0; i < found->count; i++)
        if (address_kind_of((const struct sockaddr *)&found->list[i]) == ADDRESS_PUBLIC)
            return NULL;
    return found->count ? (const struct sockaddr *)&found->list[0] : NULL;
}

static void mirror_found(void *arg, const struct resolved *found, const struct err *err) {
    struct lookup *one = arg;
    struct live *l = one->all->live;
    const struct sockaddr *address = err ? NULL : find_private(found);
    char text[ADDRESS_TEXT_SIZE], *before = l->net->mirrors;
    if (address) {
        address_text(address, text);
        l->net->mirrors = xformat(
            "%s%smirror '%s' of preset '%s' has the %s address %s, which its rule does not allow; "
            "allow it with: carrel net %s allow %s --local",
            before ? before : "", before ? "; " : "", one->host, one->preset,
            address_kind_name(address_kind_of(address)), text, l->row.id, one->preset);
        free(before);
    }
    one->call = NULL;
    lookups_step(one->all);
}

/* Notes the hosts that rules of presets allow only with public addresses. */
static void lookups_fill(struct lookups *all, const struct policy *p) {
    for (size_t i = 0; i < p->count; i++) {
        const struct policy_rule *r = &p->rules[i];
        bool known = false;
        for (size_t k = 0; k < all->count; k++)
            known |= strcmp(all->list[k].host, r->host) == 0;
        if (known || !r->preset[0] || r->local || r->action == POLICY_DENY ||
            r->host_kind != HOST_EXACT)
            continue;
        struct lookup *one = &all->list[all->count++];
        one->all = all;
        snprintf(one->host, sizeof(one->host), "%s", r->host);
        snprintf(one->preset, sizeof(one->preset), "%s", r->preset);
    }
}

void net_look_up_mirrors(struct live *l, service_done_fn *done, void *arg) {
    const struct policy *p = gate_policy(l->gate);
    struct lookups *all = xcalloc(1, sizeof(*all) + p->count * sizeof(struct lookup));
    free(l->net->mirrors);
    l->net->mirrors = NULL;
    lookups_fill(all, p);
    all->live = l;
    all->done = done;
    all->arg = arg;
    all->waiting = all->count + 1;
    live_ref(l);
    if (all->count) {
        all->timer = loop_timer_new(l->service->loop, lookups_late, all);
        loop_timer_start(all->timer, LOOKUP_MS, 0);
    }
    for (size_t i = 0; i < all->count; i++) {
        struct lookup *one = &all->list[i];
        one->call = resolver_ask(gate_resolver(net_gate(l->service)), one->host, mirror_found, one);
    }
    lookups_step(all);
}

const char *net_warnings(struct live *l, const char *others) {
    if (!l->net->mirrors || !others || !*others)
        return l->net->mirrors ? l->net->mirrors : others;
    free(l->net->warnings);
    l->net->warnings = xformat("%s; %s", others, l->net->mirrors);
    return l->net->warnings;
}
