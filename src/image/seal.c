#include "image/seal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/defer.h"
#include "image/cost.h"

/* Change these when the hash method changes. */
#define VERSION "carrel image 1\n"
#define VERSION_LAYER "carrel layer 1\n"

enum { PIECE = 256 << 10 };

struct sealing {
    struct sha256 sum;
    struct seal *ret;
    struct report *report;
    char *piece;
    size_t attributes; /* bytes of the extended attributes of the current entry */
};

static void add_text(struct sealing *s, const char *text) {
    sha256_add(&s->sum, text, strlen(text) + 1);
}

static int add_attribute(void *arg, const char *name, const void *value, size_t size,
                         struct err *err) {
    struct sealing *s = arg;
    char head[32];
    (void)err;
    snprintf(head, sizeof(head), "x %zu", size);
    add_text(s, head);
    add_text(s, name);
    sha256_add(&s->sum, value, size);
    s->attributes += strlen(name) + size;
    return 0;
}

static int add_contents(struct sealing *s, const struct walk_entry *e, struct err *err) {
    uint64_t left = e->size;
    while (left > 0) {
        ssize_t n = read(e->fd, s->piece, left < PIECE ? (size_t)left : PIECE);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? err_sys(err, "cannot read file '/%.120s'", e->path)
                         : err_set(err, ERR_BUSY, "file '/%.120s' changed while it was read",
                                   e->path);
        sha256_add(&s->sum, s->piece, (size_t)n);
        left -= (uint64_t)n;
        s->ret->bytes += (uint64_t)n;
        report_progress(s->report, s->ret->entries, s->ret->bytes);
    }
    return 0;
}

static int add_entry(void *arg, const struct walk_entry *e, struct err *err) {
    struct sealing *s = arg;
    char head[128];
    s->ret->entries++;
    if (!e->twin)
        s->ret->disk += cost_entry(e->mode, e->size, e->target ? strlen(e->target) : 0);
    snprintf(head, sizeof(head), "e %o %" PRIu32 " %" PRIu32 " %" PRId64 " %" PRIu64 " %d",
             (unsigned)e->mode, e->uid, e->gid, e->mtime, e->twin ? 0 : e->size, e->twin != NULL);
    add_text(s, head);
    add_text(s, e->path);
    add_text(s, e->twin ? e->twin : e->target ? e->target : "");
    if (e->fd < 0)
        return 0;
    s->attributes = 0;
    if (image_attributes(e, add_attribute, s, err) < 0)
        return -1;
    s->ret->disk += cost_attributes(s->attributes);
    return add_contents(s, e, err);
}

int image_seal(int root, struct image_ids ids, const char *below, const char *config,
               struct report *report, struct seal *ret, struct err *err) {
    const char *version = below ? VERSION_LAYER : VERSION;
    char *piece DEFER_FREE = malloc(PIECE);
    uint8_t hash[SHA256_BYTES];
    struct sealing s = {.ret = ret, .report = report, .piece = piece};
    const struct walk w = {.root = root,
                           .usr = -1,
                           .ids = ids,
                           .fn = add_entry,
                           .arg = &s,
                           .strict = true,
                           .whiteouts = below != NULL};
    if (!piece)
        return err_set(err, ERR_LIMIT, "out of memory");
    *ret = (struct seal){.entries = 0};
    sha256_init(&s.sum);
    sha256_add(&s.sum, version, strlen(version));
    if (below)
        add_text(&s, below);
    add_text(&s, config);
    if (image_walk(&w, err) < 0)
        return -1;
    sha256_end(&s.sum, hash);
    image_id_of(hash, ret->id);
    return 0;
}
