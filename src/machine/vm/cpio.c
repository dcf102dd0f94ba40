#include "machine/vm/cpio.h"

#include <string.h>
#include <sys/stat.h>

enum { CPIO_ALIGN = 4, CPIO_MAGIC = 0x070701 };

static bool cpio_pad(struct buf *to) {
    static const char zeros[CPIO_ALIGN];
    return buf_add(to, zeros, -to->len % CPIO_ALIGN);
}

/* Fields of the header: inode, mode, uid, gid, links, time, size, four device numbers, size of the
 * name, checksum. */
static bool cpio_add(struct buf *to, const char *name, unsigned mode, const void *bytes,
                     size_t len) {
    size_t name_size = strlen(name) + 1;
    return buf_addf(to, "%06x%08x%08x%08x%08x%08x%08x%08zx%08x%08x%08x%08x%08zx%08x", CPIO_MAGIC, 0,
                    mode, 0, 0, 1, 0, len, 0, 0, 0, 0, name_size, 0) &&
           buf_add(to, name, name_size) && cpio_pad(to) && buf_add(to, bytes, len) && cpio_pad(to);
}

bool cpio_add_dir(struct buf *to, const char *path) {
    return cpio_add(to, path, S_IFDIR | 0755, "", 0);
}

bool cpio_add_file(struct buf *to, const char *path, unsigned mode, const void *bytes, size_t len) {
    return cpio_add(to, path, S_IFREG | mode, bytes, len);
}

bool cpio_end(struct buf *to) {
    return cpio_add(to, "TRAILER!!!", 0, "", 0);
}
