#include <string.h>

#include "base/fs/dots.h"
#include "compare/compare.h"

static bool is_name(const char *s, size_t n) {
    return n > 0 && !is_dots_part(s, n);
}

static bool is_path(const char *path) {
    for (size_t n; *path; path += n + (path[n] == '/')) {
        n = strcspn(path, "/");
        if (!is_name(path, n) || (path[n] == '/' && !path[n + 1]))
            return false;
    }
    return true;
}

/* Each layer has one of the disks, and the last disk is the machine's own. */
static bool disks_ok(const struct compare_order *o) {
    if (o->task != COMPARE_TREES)
        return true;
    for (uint32_t i = 0; i < o->layer_count; i++)
        if (o->disks[i] >= o->disk_count)
            return false;
    return o->disk_count > 0 && o->disk_count <= COMPARE_DISKS_MAX;
}

static bool own_ok(const struct compare_order *o) {
    if (o->own_count > COMPARE_OWN_MAX)
        return false;
    for (uint32_t i = 0; i < o->own_count; i++)
        if (!memchr(o->own[i].path, 0, sizeof(o->own[i].path)) ||
            !memchr(o->own[i].sha256, 0, sizeof(o->own[i].sha256)))
            return false;
    return true;
}

bool compare_order_ok(const struct compare_order *o) {
    return o->task >= COMPARE_TREES && o->task <= COMPARE_PACK &&
           o->layer_count <= COMPARE_LAYERS_MAX && disks_ok(o) && own_ok(o) &&
           memchr(o->under, 0, sizeof(o->under)) && memchr(o->skip, 0, sizeof(o->skip)) &&
           is_path(o->under);
}
