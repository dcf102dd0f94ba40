/* Property: a list of modules has no module twice, and each is named in the input. The first line
 * is the name of a module; the rest is modules.dep. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "base/defer.h"
#include "io/vm/modules.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text DEFER_FREE = strndup((const char *)data, size);
    char *name = text, *dep = text + strcspn(text, "\n");
    if (*dep)
        *dep++ = '\0';
    struct modules m = {0};
    struct err err;
    if (modules_add(&m, dep, "", name, &err) < 0)
        return 0;
    assert(m.count > 0 && m.count <= MODULES_MAX);
    for (unsigned i = 0; i < m.count; i++) {
        assert(strstr(dep, m.path[i]));
        for (unsigned j = 0; j < i; j++)
            assert(strcmp(m.path[i], m.path[j]) != 0);
    }
    return 0;
}
