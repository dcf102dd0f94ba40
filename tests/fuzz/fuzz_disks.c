/* Property: what parses prints as it was, but for zeros before a number, and is in range. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs/disks.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char print[DISKS_TEXT_SIZE], *text = malloc(size + 1);
    struct disks d, again;
    struct err err;
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    if (disks_parse(text, &d, &err) == 0) {
        assert(d.said &&
               (d.btrfs ? d.bytes >= DISKS_BTRFS_MIN && d.bytes <= DISKS_BTRFS_MAX : d.bytes == 0));
        disks_print(&d, print);
        assert(disks_parse(print, &again, &err) == 0);
        assert(again.btrfs == d.btrfs && again.bytes == d.bytes);
    }
    free(text);
    return 0;
}
