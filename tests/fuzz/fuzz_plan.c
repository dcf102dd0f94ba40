/* Property: what decodes encodes, and decodes again to the same message; nothing else matters. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/wire/plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct plan_message first, second;
static char bytes[PLAN_MAX_BYTES];

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct err err;
    if (plan_decode((const char *)data, size, &first, &err) < 0)
        return 0;
    assert(first.plan.grant_count <= PLAN_MAX_GRANTS);
    for (size_t i = 0; i < first.plan.grant_count; i++)
        assert(first.plan.grants[i].path[0] == '/' &&
               memchr(first.plan.grants[i].path, 0, PLAN_PATH_SIZE));
    size_t n = plan_encode(&first, bytes);
    assert(n <= sizeof(bytes));
    int again = plan_decode(bytes, n, &second, &err);
    assert(again == 0);
    (void)again;
    assert(first.type == second.type && memcmp(&first.plan, &second.plan, sizeof(first.plan)) == 0);
    assert(memcmp(&first.facts, &second.facts, sizeof(first.facts)) == 0 &&
           strcmp(first.text, second.text) == 0);
    assert(first.tag == second.tag && first.cursor == second.cursor &&
           first.frozen == second.frozen && first.layer == second.layer &&
           first.changed == second.changed && first.row_count == second.row_count &&
           memcmp(first.rows, second.rows, sizeof(first.rows)) == 0);
    return 0;
}
