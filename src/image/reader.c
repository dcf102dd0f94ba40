#include "image/reader.h"

#include "base/defer.h"
#include "image/import.h"

int read_archive(void *arg, struct report *report, struct buf *ret, struct err *err) {
    const struct reading *r = arg;
    struct image_config config DEFER(image_config_done) = {0};
    int root DEFER_CLOSE = image_dir("root", err), spool DEFER_CLOSE = image_dir("spool", err);
    if (root < 0 || spool < 0)
        return -1;
    struct unpack u DEFER(unpack_done) = unpack_begin(root, r->ids, report);
    u.limits.disk = r->disk;
    u.is_layer = r->is_layer;
    u.below = r->has_below ? APART_FD_READ_BELOW : -1;
    return image_import(0, spool, &u, &config, err) < 0 ? -1
                                                        : image_config_print(&config, ret, err);
}
