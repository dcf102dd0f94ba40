/* Property: head and pack of a bundle lie in its bytes, and a hash that is found is one. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "review/bundle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *bytes = (const char *)data;
    struct bundle b;
    char hash[BUNDLE_HASH];
    if (!bundle_parse(bytes, size, &b))
        return 0;
    assert(b.head > bytes && b.head + b.head_size < b.pack && b.pack + b.pack_size == bytes + size);
    if (bundle_find(&b, "HEAD", hash))
        assert(strspn(hash, "0123456789abcdef") == strlen(hash) &&
               (strlen(hash) == 40 || strlen(hash) == 64));
    return 0;
}
