/* The sums over several tries: what they used together, for the report of the whole run. */
#include <stdio.h>

#include "base/clock.h"
#include "base/defer.h"
#include "operator/inner.h"
#include "operator/tries_inner.h"

/* What the tries used together. An ended try has it in its report. */
struct tries_sum {
    uint64_t turns, calls, tokens, in, cache_read, cache_write, out, micro, checkpoints, rewinds;
    struct tool_counts tools;
};

static uint64_t sum_number(const json_t *object, const char *name) {
    json_int_t n = json_integer_value(json_object_get(object, name));
    return n > 0 ? (uint64_t)n : 0;
}

static void sum_tool(struct tries_sum *sum, const json_t *row) {
    const char *name = json_string_value(json_object_get(row, "tool"));
    struct tool_count one = {.calls = sum_number(row, "calls"),
                             .failed = sum_number(row, "failed"),
                             .fallbacks = sum_number(row, "fallbacks"),
                             .wall_ms = sum_number(row, "wall_ms")};
    snprintf(one.name, sizeof(one.name), "%s", name ? name : "other");
    tool_counts_add(&sum->tools, &one);
}

static void sum_add(struct tries_sum *sum, const json_t *report) {
    size_t i;
    json_t *row;
    sum->turns += sum_number(report, "turns");
    sum->calls += sum_number(report, "calls");
    sum->tokens += sum_number(report, "tokens");
    sum->in += sum_number(report, "input_tokens");
    sum->cache_read += sum_number(report, "cache_read_tokens");
    sum->cache_write += sum_number(report, "cache_write_tokens");
    sum->out += sum_number(report, "output_tokens");
    sum->micro += sum_number(report, "cost_micro");
    sum->checkpoints += sum_number(report, "checkpoints");
    sum->rewinds += sum_number(report, "rewinds");
    json_array_foreach(json_object_get(report, "tools"), i, row) {
        sum_tool(sum, row);
    }
}

void tries_put_sums(struct jot *j, struct trying *t) {
    const struct run *r = &t->live->run;
    struct tries_sum sum = {0};
    for (size_t i = 0; i < r->start.tries; i++) {
        struct outcome o DEFER(tries_outcome_done) = {.report = NULL};
        if (!r->tries[i].run)
            continue;
        tries_outcome_of(t, i, &o);
        sum_add(&sum, o.report);
    }
    jot_u64(j, "turns", sum.turns);
    jot_u64(j, "calls", sum.calls);
    jot_u64(j, "tokens", sum.tokens);
    jot_u64(j, "input_tokens", sum.in);
    jot_u64(j, "cache_read_tokens", sum.cache_read);
    jot_u64(j, "cache_write_tokens", sum.cache_write);
    jot_u64(j, "output_tokens", sum.out);
    jot_u64(j, "cost_micro", sum.micro);
    jot_u64(j, "wall_ms", run_active_ms(r, wall_ms()));
    jot_u64(j, "checkpoints", sum.checkpoints);
    jot_u64(j, "rewinds", sum.rewinds);
    tool_counts_put(&sum.tools, j, "tools");
    tool_counts_done(&sum.tools);
}
