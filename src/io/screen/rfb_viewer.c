#include "io/screen/rfb_viewer.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { VERSION_BYTES = 12, NONE = 1, HEAD_MAX = 20, CUT_MAX = 1 << 20 };

/* What the next bytes are. `need` of them make one part. */
enum viewer_state {
    VIEWER_VERSION,
    VIEWER_TYPE,
    VIEWER_INIT,
    VIEWER_MESSAGE, /* its type, the first byte of `head` */
    VIEWER_FIELDS,  /* the rest of it */
    VIEWER_SKIP,    /* up to the next message */
};

struct rfb_viewer {
    struct rfb *server;
    struct buf *to;
    enum viewer_state state;
    uint8_t head[HEAD_MAX];
    size_t have, need;
    uint32_t skip;
    bool broken;
};

/* 32 bits a pixel, little-endian, 8 bits a colour: the bytes are red, green, blue, 0. */
static const uint8_t format[] = {32, 24, 0, 1, 0, 255, 0, 255, 0, 255, 0, 8, 16, 0, 0, 0};
static const char version[] = "RFB 003.008\n", name[] = "desktop";

static void viewer_go(struct rfb_viewer *v, enum viewer_state state, size_t need) {
    v->state = state;
    v->need = need;
    v->have = 0;
}

struct rfb_viewer *rfb_viewer_new(struct rfb *server, struct buf *to) {
    struct rfb_viewer *v = xnew(struct rfb_viewer);
    v->server = server;
    v->to = to;
    viewer_go(v, VIEWER_VERSION, VERSION_BYTES);
    (void)!buf_add(to, version, VERSION_BYTES); /* an empty buffer has room for it */
    return v;
}

void rfb_viewer_free(struct rfb_viewer *v) {
    free(v);
}

static unsigned viewer_u16(const uint8_t *p) {
    return (unsigned)p[0] << 8 | p[1];
}

static uint32_t viewer_u32(const uint8_t *p) {
    return (uint32_t)viewer_u16(p) << 16 | viewer_u16(p + 2);
}

static int viewer_bad(struct err *err, const char *what) {
    return err_set(err, ERR_INVALID, "the viewer of the desktop sent %s", what);
}

static int viewer_say(struct rfb_viewer *v, const void *bytes, size_t n, struct err *err) {
    return buf_add(v->to, bytes, n) ? 0 : viewer_bad(err, "more than it reads");
}

/* ---- the handshake ---- */

static int viewer_version(struct rfb_viewer *v, struct err *err) {
    static const uint8_t types[] = {1, NONE};
    if (memcmp(v->head, version, VERSION_BYTES) != 0)
        return viewer_bad(err, "another version than RFB 3.8");
    viewer_go(v, VIEWER_TYPE, 1);
    return viewer_say(v, types, sizeof(types), err);
}

static int viewer_type(struct rfb_viewer *v, struct err *err) {
    static const uint8_t welcome[4] = {0};
    if (v->head[0] != NONE)
        return viewer_bad(err, "a security type that was not offered");
    viewer_go(v, VIEWER_INIT, 1);
    return viewer_say(v, welcome, sizeof(welcome), err);
}

/*
 * The byte of the viewer asks whether others may stay connected: they may. Pixels that come before
 * are refused: the viewer would take them for the handshake.
 */
static int viewer_init(struct rfb_viewer *v, struct err *err) {
    unsigned w = rfb_width(v->server), h = rfb_height(v->server);
    const uint8_t size[] = {(uint8_t)(w >> 8), (uint8_t)w, (uint8_t)(h >> 8), (uint8_t)h};
    const uint8_t length[] = {0, 0, 0, sizeof(name) - 1};
    viewer_go(v, VIEWER_MESSAGE, 1);
    rfb_show(v->server, v->to);
    if (viewer_say(v, size, sizeof(size), err) < 0 ||
        viewer_say(v, format, sizeof(format), err) < 0 ||
        viewer_say(v, length, sizeof(length), err) < 0)
        return -1;
    return viewer_say(v, name, sizeof(name) - 1, err);
}

/* ---- messages, whose first byte is their type ---- */

static int viewer_format(struct rfb_viewer *v, struct err *err) {
    return memcmp(v->head + 4, format, sizeof(format)) == 0
               ? 0
               : viewer_bad(err, "a pixel format that is not supported");
}

static int viewer_encodings(struct rfb_viewer *v, struct err *err) {
    (void)err;
    v->skip = 4 * viewer_u16(v->head + 2);
    return 0;
}

static int viewer_passed(bool was, struct err *err) {
    return was ? 0 : viewer_bad(err, "more than the desktop reads");
}

static int viewer_want(struct rfb_viewer *v, struct err *err) {
    const uint8_t *p = v->head;
    struct rfb_area a = {viewer_u16(p + 2), viewer_u16(p + 4), viewer_u16(p + 6),
                         viewer_u16(p + 8)};
    if (a.x + a.width > rfb_width(v->server) || a.y + a.height > rfb_height(v->server))
        return viewer_bad(err, "a question for pixels outside of the screen");
    return viewer_passed(rfb_want(v->server, p[1] != 0, a), err);
}

static int viewer_key(struct rfb_viewer *v, struct err *err) {
    return viewer_passed(rfb_key(v->server, viewer_u32(v->head + 4), v->head[1] != 0), err);
}

/* A pointer that was dragged out of the screen is at its edge. */
static int viewer_point(struct rfb_viewer *v, struct err *err) {
    unsigned x = viewer_u16(v->head + 2), y = viewer_u16(v->head + 4);
    unsigned w = rfb_width(v->server), h = rfb_height(v->server);
    return viewer_passed(rfb_point(v->server, v->head[1], x < w ? x : w - 1, y < h ? y : h - 1),
                         err);
}

static int viewer_cut(struct rfb_viewer *v, struct err *err) {
    v->skip = viewer_u32(v->head + 4);
    return v->skip <= CUT_MAX ? 0 : viewer_bad(err, "a clipboard that is too large");
}

static const struct {
    size_t bytes; /* with the type */
    int (*take)(struct rfb_viewer *v, struct err *err);
} messages[] = {
    [0] = {20, viewer_format}, [2] = {4, viewer_encodings}, [3] = {10, viewer_want},
    [4] = {8, viewer_key},     [5] = {6, viewer_point},     [6] = {8, viewer_cut},
};

/* ---- bytes ---- */

static void viewer_next(struct rfb_viewer *v) {
    viewer_go(v, v->skip ? VIEWER_SKIP : VIEWER_MESSAGE, 1);
}

static int viewer_part(struct rfb_viewer *v, struct err *err) {
    unsigned type = v->head[0];
    switch (v->state) {
    case VIEWER_VERSION:
        return viewer_version(v, err);
    case VIEWER_TYPE:
        return viewer_type(v, err);
    case VIEWER_INIT:
        return viewer_init(v, err);
    case VIEWER_MESSAGE:
        if (type >= sizeof(messages) / sizeof(*messages) || !messages[type].take)
            return viewer_bad(err, "a message of an unknown type");
        v->state = VIEWER_FIELDS;
        v->need = messages[type].bytes;
        return 0;
    default:
        if (messages[type].take(v, err) < 0)
            return -1;
        viewer_next(v);
        return 0;
    }
}

static size_t viewer_skipped(struct rfb_viewer *v, size_t n) {
    size_t part = n < v->skip ? n : v->skip;
    v->skip -= (uint32_t)part;
    viewer_next(v);
    return part;
}

int rfb_viewer_take(struct rfb_viewer *v, const uint8_t *bytes, size_t n, struct err *err) {
    if (v->broken)
        return viewer_bad(err, "more after an error");
    while (n > 0) {
        size_t part = v->need - v->have < n ? v->need - v->have : n;
        if (v->state == VIEWER_SKIP) {
            part = viewer_skipped(v, n);
        } else {
            memcpy(v->head + v->have, bytes, part);
            v->have += part;
            v->broken = v->have == v->need && viewer_part(v, err) < 0;
        }
        if (v->broken)
            return -1;
        bytes += part;
        n -= part;
    }
    return 0;
}
