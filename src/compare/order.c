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

bool compare_order_ok(const struct compare_order *o) {
    return o->task >= COMPARE_TREES && o->task <= COMPARE_PACK &&
           o->layer_count <= COMPARE_LAYERS_MAX && memchr(o->under, 0, sizeof(o->under)) &&
           memchr(o->skip, 0, sizeof(o->skip)) && is_path(o->under);
}
