/* Property: any bytes are read or refused, and what is read can be written and read again. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/wire/vm_line.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct vm_line line, again;
    char text[256];
    if (!vm_line_read((const char *)data, size, &line)) {
        assert(line.hostname[0] == '\0' && !line.has_net && !line.starts_system);
        return 0;
    }
    assert(vm_line_write(&line, text, sizeof(text)));
    assert(vm_line_read(text, strlen(text), &again));
    assert(strcmp(line.hostname, again.hostname) == 0 && line.has_net == again.has_net &&
           line.starts_system == again.starts_system);
    return 0;
}
