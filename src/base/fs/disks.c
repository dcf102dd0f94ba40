#include "base/fs/disks.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fdio.h"
#include "base/parse.h"

int disks_parse(const char *text, struct disks *ret, struct err *err) {
    static const char btrfs[] = "btrfs ";
    struct disks d = {.said = true};
    char number[24];
    size_t len = strcspn(text, "\n"), head = sizeof(btrfs) - 1;
    if (text[len] != '\n' || text[len + 1])
        return err_set(err, ERR_INVALID, "the file must have exactly one line");
    d.btrfs = strncmp(text, btrfs, head) == 0;
    if (!d.btrfs && (len != strlen("plain") || strncmp(text, "plain", len) != 0))
        return err_set(err, ERR_INVALID, "its line must be 'plain' or 'btrfs SIZE'");
    if (d.btrfs && len - head >= sizeof(number))
        return err_set(err, ERR_INVALID, "the size after 'btrfs' has too many digits");
    if (d.btrfs) {
        snprintf(number, sizeof(number), "%.*s", (int)(len - head), text + head);
        if (parse_u64(number, DISKS_BTRFS_MIN, DISKS_BTRFS_MAX, &d.bytes, err) < 0)
            return -1;
    }
    *ret = d;
    return 0;
}

void disks_print(const struct disks *d, char text[DISKS_TEXT_SIZE]) {
    if (d->btrfs)
        snprintf(text, DISKS_TEXT_SIZE, "btrfs %" PRIu64 "\n", d->bytes);
    else
        snprintf(text, DISKS_TEXT_SIZE, "plain\n");
}

int disks_read(int home, struct disks *ret, struct err *err) {
    char text[DISKS_TEXT_SIZE];
    ssize_t n = read_file_at(home, DISKS_NAME, text, sizeof(text));
    if (n == -ENOENT) {
        *ret = (struct disks){.said = false};
        return 0;
    }
    if (n < 0)
        return err_num(err, (int)n, "cannot read file '%s' in the store directory", DISKS_NAME);
    if (strlen(text) == (size_t)n && disks_parse(text, ret, err) == 0)
        return 0;
    if (strlen(text) != (size_t)n)
        err_set(err, ERR_INVALID, "the file contains a NUL byte");
    err_wrap(err, "cannot read file '%s' in the store directory", DISKS_NAME);
    return err_remedy(
        err,
        "write the file again with carrel store init, which changes nothing else in the store");
}
