/* Property: what is read as a door is one, and written out it reads as the same. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "gate/ingress.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct ingress_door door, again;
    char text[64];
    if (!ingress_door_read((struct http_text){(const char *)data, size}, &door))
        return 0;
    assert(door.port && id_valid(door.machine, strlen(door.machine), 'm'));
    int n = snprintf(text, sizeof(text), "%u-%s" INGRESS_DOMAIN, door.port, door.machine);
    assert(size >= (size_t)n && memcmp(data, text, (size_t)n) == 0);
    assert(ingress_door_read((struct http_text){text, (size_t)n}, &again));
    assert(again.port == door.port && strcmp(again.machine, door.machine) == 0);
    return 0;
}
