/* Property: every prefix gives "more" or the final verdict, and a name is a valid one. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "gate/hello.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct hello whole, part;
    char again[NAME_SIZE];
    enum hello_verdict v = hello_read(data, size, &whole);
    assert((v == HELLO_NAMED) == (whole.name[0] != '\0'));
    if (v == HELLO_NAMED)
        assert(name_read(whole.name, strlen(whole.name), again) && strcmp(whole.name, again) == 0);
    for (size_t n = 0; n < size; n++) {
        enum hello_verdict w = hello_read(data, n, &part);
        assert(w == HELLO_MORE || w == v);
        if (w == HELLO_NAMED)
            assert(strcmp(part.name, whole.name) == 0);
    }
    return 0;
}
