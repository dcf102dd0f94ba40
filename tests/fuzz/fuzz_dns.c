/* Property: an answer has the query's id and question, fits, and asks only for valid names. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "gate/dns.h"
#include "gate/name.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint32_t lookup(void *arg, const char *name) {
    char again[NAME_SIZE];
    (void)arg;
    assert(name_read(name, strlen(name), again) && strcmp(name, again) == 0);
    return 0xc6120002;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t reply[DNS_MESSAGE_MAX];
    size_t n = dns_answer(data, size, lookup, NULL, reply);
    assert(n == 0 || (n >= 12 && n <= sizeof(reply)));
    if (n == 0)
        return 0;
    assert(memcmp(reply, data, 2) == 0 && reply[2] & 0x80);
    assert(dns_answer(reply, n, lookup, NULL, reply) == 0); /* an answer to an answer */
    return 0;
}
