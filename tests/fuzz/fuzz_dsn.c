/* Property: what is read names a host, a port, a user and a database, and none of them is a file.
 */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/defer.h"
#include "grant/dsn.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text DEFER_FREE = strndup((const char *)data, size);
    struct dsn d = {.host = ""};
    struct err err;
    assert(text);
    if (dsn_read(text, &d, &err) < 0) {
        assert(!d.host[0] && err.text[0]);
        return 0;
    }
    assert(d.host[0] && !strpbrk(d.host, "/@, ") && d.user[0] && d.dbname[0] && d.sslmode[0]);
    int port = 0;
    for (const char *c = d.port; *c; c++)
        port = 10 * port + (*c - '0');
    assert(port > 0 && port < 65536);
    return 0;
}
