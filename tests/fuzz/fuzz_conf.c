/* Property: what is accepted is in range and leaves every text terminated; errors name a line. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "store/conf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct conf c = {.pids = 99};
    struct err err = {0};
    if (conf_parse((const char *)data, size, &c, &err) < 0) {
        assert(c.pids == 99);
        assert(err.code == ERR_INVALID || err.code == ERR_LIMIT);
        assert(strncmp(err.text, "line ", 5) == 0 || size > CONF_FILE_MAX);
        return 0;
    }
    assert(c.root_count <= CONF_ROOTS_MAX);
    for (size_t i = 0; i < c.root_count; i++)
        assert(c.roots[i][0] == '/' && memchr(c.roots[i], 0, CONF_TEXT_SIZE));
    assert(c.gate_hosts[0] == '\0' || c.gate_hosts[0] == '/');
    assert(memchr(c.listen, 0, CONF_TEXT_SIZE) && memchr(c.gate_ca, 0, CONF_TEXT_SIZE));
    assert(c.max_machines >= 1 && c.max_machines <= 100000);
    assert(c.log_bytes >= 65536 && c.idle_action >= 1 && c.idle_action <= 3);
    assert(c.uid_base == 0 || c.uid_base >= 65536);
    return 0;
}
