/* Property: what is read as a door is one, and its URL reads as the same. */
#include <assert.h>
#include <string.h>

#include "base/defer.h"
#include "gate/ingress_name.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const domains[] = {"", "example.com"};
    for (int i = 0; i < 2; i++) {
        struct buf url DEFER(buf_done) = BUF(512);
        struct ingress_door door, again;
        if (!ingress_door_read((struct http_text){(const char *)data, size}, domains[i], &door))
            continue;
        assert(id_valid(door.machine, strlen(door.machine), 'm'));
        if (!door.port)
            continue;
        assert(ingress_name_put(&url, &door, domains[i], false, 7071));
        struct http_text host = {url.data + 7, url.len - 8}; /* "http://" and "/" */
        assert(ingress_door_read(host, domains[i], &again));
        assert(again.port == door.port && strcmp(again.machine, door.machine) == 0);
    }
    return 0;
}
