#include "compare/look.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/fs/dir.h"
#include "base/sort.h"
#include "compare/compare.h"

void patience_begin(struct patience *p) {
    *p = (struct patience){.until_ms = monotonic_ms() + COMPARE_MS};
}

bool patience_look(struct patience *p) {
    if (p->cut == CUT_LOOKED || p->cut == CUT_TIME)
        return false;
    if (++p->looked > COMPARE_LOOKED_MAX)
        p->cut = CUT_LOOKED;
    else if (p->looked % 64 == 0 && monotonic_ms() > p->until_ms)
        p->cut = CUT_TIME;
    return p->cut != CUT_LOOKED && p->cut != CUT_TIME;
}

void look_names_done(struct names *n) {
    while (n->count)
        free(n->v[--n->count]);
    free(n->v);
}

static void names_add(struct names *n, const char *name) {
    if (n->count == n->size) {
        n->size = n->size ? 2 * n->size : 16;
        n->v = xrealloc(n->v, n->size, sizeof(*n->v));
    }
    n->v[n->count++] = xstrdup(name);
}

bool names_read(struct names *n, int dir, struct patience *p) {
    DIR *d DEFER(dir_close) = dir < 0 ? NULL : dir_list(dir, ".");
    for (struct dirent *e; d && (e = readdir(d));) {
        if (is_dots(e->d_name))
            continue;
        if (!patience_look(p))
            return false;
        names_add(n, e->d_name);
    }
    return true;
}

void names_sort(struct names *n) {
    n->count = sort_texts_once(n->v, n->count);
}

int look_into(int dir, const char *name) {
    int fd = dir_open(dir, name);
    return fd < 0 ? -1 : fd;
}
