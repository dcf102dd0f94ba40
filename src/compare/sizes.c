/*
 * Measures layers: the number of entries that are not directories, and the disk space of all
 * entries.
 */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/defer.h"
#include "compare/compare.h"
#include "compare/look.h"

enum { DEPTH_MAX = 512 };

struct measure {
    struct patience *patience;
    struct layer_size *size;
    unsigned depth;
};

static void measure_dir(struct measure *m, int dir) {
    struct names names DEFER(look_names_done) = {0};
    names_read(&names, dir, m->patience);
    for (size_t i = 0; i < names.count && !m->patience->cut; i++) {
        struct stat st;
        if (fstatat(dir, names.v[i], &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        m->size->bytes += (uint64_t)st.st_blocks * 512;
        m->size->files += !S_ISDIR(st.st_mode);
        if (!S_ISDIR(st.st_mode))
            continue;
        int sub DEFER_CLOSE = m->depth < DEPTH_MAX ? look_into(dir, names.v[i]) : -1;
        if (sub < 0)
            m->patience->cut = CUT_DEPTH;
        m->depth++;
        measure_dir(m, sub);
        m->depth--;
    }
}

static uint32_t sizes_number_of(const char *name) {
    size_t n = strspn(name, "0123456789");
    return n > 0 && n < 10 && !name[n] && name[0] != '0' ? (uint32_t)strtoul(name, NULL, 10) : 0;
}

/* Lists the layers that exist. The spawner chose the names in this directory. */
static bool list_layers(int disk, struct patience *patience, struct buf *out) {
    struct names names DEFER(look_names_done) = {0};
    bool fits = true;
    names_read(&names, disk, patience);
    for (size_t i = 0; i < names.count && fits; i++) {
        const struct changes_record r = {.type = CHANGES_SIZE,
                                         .size = {.layer = sizes_number_of(names.v[i])}};
        fits = !r.size.layer || changes_write(out, &r);
    }
    return fits && !patience->cut;
}

/* A layer that cannot be measured completely is left out: a partial size would be wrong. */
void compare_sizes(const struct compare_order *o, int disk, struct buf *out) {
    static const char parts[] = "uU";
    struct patience patience;
    struct changes_record end = {.type = CHANGES_END};
    patience_begin(&patience);
    if (!o->layer_count && !list_layers(disk, &patience, out)) {
        out->len = 0;
        return;
    }
    for (uint32_t i = 0; i < o->layer_count && patience.cut != CUT_TIME; i++) {
        struct changes_record r = {.type = CHANGES_SIZE, .size = {.layer = o->layers[i]}};
        struct measure m = {.patience = &patience, .size = &r.size};
        bool there = false;
        patience.cut = CUT_NONE;
        for (int p = 0; p < 2; p++) {
            char name[32];
            snprintf(name, sizeof(name), "%" PRIu32 "/%c", o->layers[i], parts[p]);
            int dir DEFER_CLOSE = look_into(disk, name);
            there |= dir >= 0;
            measure_dir(&m, dir);
        }
        if (there && !patience.cut && !changes_write(out, &r))
            break;
        if (patience.cut)
            end.end.cut = patience.cut;
    }
    if (!changes_write(out, &end))
        out->len = 0;
}
