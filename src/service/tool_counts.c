#include "service/tool_counts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "service/state.h"

static struct tool_count *count_of(struct tool_counts *c, const char *name) {
    char kept[TOOL_NAME_SIZE];
    snprintf(kept, sizeof(kept), "%s", name);
    for (size_t i = 0; i < c->count; i++)
        if (strcmp(c->v[i].name, kept) == 0)
            return &c->v[i];
    if (c->count >= TOOL_COUNTS_MAX - 1 && strcmp(kept, "other") != 0)
        return count_of(c, "other");
    c->v = xrealloc(c->v, c->count + 1, sizeof(*c->v));
    struct tool_count *one = &c->v[c->count++];
    *one = (struct tool_count){0};
    snprintf(one->name, sizeof(one->name), "%s", kept);
    return one;
}

void tool_counts_add(struct tool_counts *c, const struct tool_count *more) {
    struct tool_count *one = count_of(c, more->name);
    one->calls += more->calls;
    one->failed += more->failed;
    one->fallbacks += more->fallbacks;
    one->wall_ms += more->wall_ms;
}

void tool_counts_put(const struct tool_counts *c, struct jot *j, const char *member) {
    jot_array(j, member);
    for (size_t i = 0; i < c->count; i++) {
        const struct tool_count *one = &c->v[i];
        jot_object(j, NULL);
        jot_string(j, "tool", one->name);
        jot_u64(j, "calls", one->calls);
        jot_u64(j, "failed", one->failed);
        jot_u64(j, "fallbacks", one->fallbacks);
        jot_u64(j, "wall_ms", one->wall_ms);
        jot_end(j, '}');
    }
    jot_end(j, ']');
}

void tool_counts_done(struct tool_counts *c) {
    free(c->v);
    *c = (struct tool_counts){0};
}

void service_tool_called(struct service *s, const char *machine, const struct tool_count *one) {
    struct live *l = machine[0] ? map_get(&s->machines, machine) : NULL;
    tool_counts_add(&s->tool_calls, one);
    if (l)
        tool_counts_add(&l->tool_calls, one);
}

const struct tool_counts *service_tool_counts(const struct service *s) {
    return &s->tool_calls;
}
