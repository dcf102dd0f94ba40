/* Property: whatever a configuration file holds, each target is one that a rule can be made of. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/defer.h"
#include "gate/preset.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct preset_targets *t DEFER_FREE = calloc(1, sizeof(*t));
    assert(t);
    preset_scan((const char *)data, size, size & 1 ? "=" : NULL, size & 2, t);
    assert(t->count <= PRESET_TARGETS_MAX);
    for (size_t i = 0; i < t->count; i++) {
        struct policy_rule rule = {.action = POLICY_ALLOW};
        assert(policy_target_read(t->list[i], &rule, NULL) == 0);
        assert(rule.host_kind == HOST_EXACT && !rule.path[0]);
    }
    return 0;
}
