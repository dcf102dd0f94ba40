#include "base/capability.h"

#include <stdio.h>
#include <string.h>

/* Row i has bit 1 << i. */
static const char *const names[CAPABILITY_COUNT] = {"log",  "args", "result", "time", "random",
                                                    "call", "kv",   "http",   "model"};

const char *capability_name(size_t i) {
    return i < CAPABILITY_COUNT ? names[i] : NULL;
}

uint32_t capability_bit(const char *name, size_t len) {
    for (size_t i = 0; i < CAPABILITY_COUNT; i++)
        if (strlen(names[i]) == len && memcmp(names[i], name, len) == 0)
            return UINT32_C(1) << i;
    return 0;
}

int capabilities_parse(const char *text, uint32_t *ret, struct err *err) {
    uint32_t bits = 0;
    while (*text) {
        size_t len = strcspn(text, ",");
        uint32_t bit = capability_bit(text, len);
        if (!bit) {
            char all[CAPABILITIES_SIZE];
            capabilities_text(CAPABILITY_ALL, all);
            err_set(err, ERR_INVALID, "capability '%.*s' does not exist",
                    (int)(len < 40 ? len : 40), text);
            return err_remedy(err, "capabilities are %s", all);
        }
        bits |= bit;
        text += len + (text[len] == ',');
    }
    *ret = bits;
    return 0;
}

void capabilities_text(uint32_t bits, char *ret) {
    size_t at = 0;
    ret[0] = '\0';
    for (size_t i = 0; i < CAPABILITY_COUNT; i++)
        if (bits & UINT32_C(1) << i)
            at +=
                (size_t)snprintf(ret + at, CAPABILITIES_SIZE - at, "%s%s", at ? "," : "", names[i]);
}
