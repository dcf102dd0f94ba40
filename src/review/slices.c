#include "review/slices.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/id.h"

static const struct {
    const char *kind, *mode; /* mode NULL: any */
    enum slice_kind is;
} kinds[] = {{"dir", "cow", SLICE_DIR},
             {"repo", NULL, SLICE_REPO},
             {"sqlite", NULL, SLICE_DATABASE},
             {"postgres", NULL, SLICE_SERVER}};

static bool slices_kind_of(const char *kind, const char *mode, enum slice_kind *ret) {
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        *ret = kinds[i].is;
        if (strcmp(kinds[i].kind, kind) == 0 &&
            (!mode || !kinds[i].mode || strcmp(kinds[i].mode, mode) == 0))
            return true;
    }
    return false;
}

void slices_add(struct slices *s, const char *kind, const char *mode, const char *at,
                const char *home) {
    struct slice *one = &s->list[s->count];
    const char *slash = strrchr(home, '/');
    if (s->count == SLICES_MAX || !slices_kind_of(kind, mode, &one->kind))
        return;
    s->count++;
    snprintf(one->at, sizeof(one->at), "%s", at);
    if (one->kind == SLICE_DATABASE && slash) /* the directory that the file is in */
        snprintf(one->home, sizeof(one->home), "%.*s", slash > home ? (int)(slash - home) : 1,
                 home);
    else
        snprintf(one->home, sizeof(one->home), "%s", one->kind == SLICE_SERVER ? "" : home);
}

void slice_word(const struct slice *s, const char *what, char ret[SLICE_WORD]) {
    bool plain = s->kind == SLICE_REPO || id_valid(what, strlen(what), 'c');
    snprintf(ret, SLICE_WORD, "%.250s%s%s", what, plain ? "" : ":", plain ? "" : s->at);
}
