/* Property: a target that is read is written and read again as the same; JSON the same. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "base/defer.h"
#include "gate/path.h"
#include "gate/policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void targets(const char *text) {
    struct policy_rule a = {.id = 0}, b = {.id = 0};
    char first[POLICY_TARGET_SIZE], second[POLICY_TARGET_SIZE];
    if (policy_target_read(text, &a, NULL) < 0)
        return;
    policy_target_write(&a, first);
    int r = policy_target_read(first, &b, NULL);
    assert(r == 0);
    policy_target_write(&b, second);
    assert(strcmp(first, second) == 0);
    assert(!a.path[0] || path_is_plain(a.path));
}

static void documents(const char *text) {
    struct policy p DEFER(policy_done) = {.count = 0}, q DEFER(policy_done) = {.count = 0};
    struct buf first DEFER(buf_done) = BUF(1 << 20), second DEFER(buf_done) = BUF(1 << 20);
    struct jot j = JOT(&first), k = JOT(&second);
    if (policy_read(text, &p, NULL) < 0)
        return;
    assert(p.count <= POLICY_RULES_MAX);
    policy_write(&p, &j, NULL);
    int r = policy_read(first.data, &q, NULL);
    assert(r == 0);
    policy_write(&q, &k, NULL);
    assert(strcmp(first.data, second.data) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char text[4096];
    if (size >= sizeof(text))
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    targets(text);
    documents(text);
    return 0;
}
