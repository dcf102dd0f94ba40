#include "io/screen/rfb.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"

/*
 * SLACK is what a server may send beside the pixels asked for. The parts below fit HEAD_MAX; longer
 * ones are skipped or are pixels.
 */
enum { HEAD_MAX = 256, NAME_MAX_BYTES = 4096, CUT_MAX = 1 << 20, SLACK = 2 << 20 };
enum { NONE = 1, RAW = 0, VERSION_BYTES = 12, RECT_BYTES = 12, SERVER_INIT_BYTES = 24 };

/* What the next bytes are. `need` of them make one part. */
enum rfb_state {
    RFB_VERSION,
    RFB_TYPE_COUNT,
    RFB_TYPES,
    RFB_RESULT,
    RFB_INIT,
    RFB_NAME, /* skipped */
    RFB_MESSAGE,
    RFB_UPDATE,
    RFB_RECT,
    RFB_ROWS, /* pixels */
    RFB_COLOURS,
    RFB_CUT,
    RFB_SKIP, /* up to the next message */
};

struct rfb {
    enum rfb_state state;
    uint8_t head[HEAD_MAX];
    size_t have, need;
    uint64_t skip;
    struct buf out;
    unsigned width, height;
    uint8_t *pixels;
    unsigned rects; /* left in this update */
    struct {
        unsigned x, y, w, h;
        size_t at; /* bytes of it that came */
    } rect;
    bool ready, asked, broken;
    uint64_t wanted, came; /* pixels of the present question */
    uint64_t budget;       /* bytes that the server may still send */
    struct buf *show;      /* of a viewer; or NULL */
};

struct rfb *rfb_new(void) {
    struct rfb *r = xnew(struct rfb);
    r->out = (struct buf)BUF(RFB_OUT_MAX);
    r->need = VERSION_BYTES;
    r->budget = SLACK;
    return r;
}

void rfb_free(struct rfb *r) {
    if (!r)
        return;
    buf_done(&r->out);
    free(r->pixels);
    free(r);
}

static unsigned u16(const uint8_t *p) {
    return (unsigned)p[0] << 8 | p[1];
}

static uint32_t u32(const uint8_t *p) {
    return (uint32_t)u16(p) << 16 | u16(p + 2);
}

static void rfb_put16(uint8_t *p, unsigned v) {
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

static int rfb_bad(struct err *err, const char *what) {
    return err_set(err, ERR_INVALID, "the desktop's VNC server sent %s", what);
}

static void rfb_go(struct rfb *r, enum rfb_state state, size_t need) {
    r->state = state;
    r->need = need;
    r->have = 0;
}

static void rfb_next_message(struct rfb *r) {
    rfb_go(r, RFB_MESSAGE, 1);
}

/* ---- the parts ---- */

static int rfb_version(struct rfb *r, struct err *err) {
    static const char ours[] = "RFB 003.008\n";
    if (memcmp(r->head, ours, VERSION_BYTES) != 0)
        return rfb_bad(err, "another version than RFB 3.8");
    rfb_go(r, RFB_TYPE_COUNT, 1);
    return buf_add(&r->out, ours, VERSION_BYTES) ? 0 : rfb_bad(err, "too much");
}

static int rfb_type_count(struct rfb *r, struct err *err) {
    if (r->head[0] == 0)
        return rfb_bad(err, "a refusal instead of its security types");
    rfb_go(r, RFB_TYPES, r->head[0]);
    return 0;
}

static int rfb_types(struct rfb *r, struct err *err) {
    static const uint8_t none = NONE;
    if (!memchr(r->head, NONE, r->need))
        return rfb_bad(err, "no security type that needs no password");
    rfb_go(r, RFB_RESULT, 4);
    return buf_add(&r->out, &none, 1) ? 0 : rfb_bad(err, "too much");
}

static int rfb_result(struct rfb *r, struct err *err) {
    static const uint8_t shared = 1;
    if (u32(r->head) != 0)
        return rfb_bad(err, "a refusal of this client");
    rfb_go(r, RFB_INIT, SERVER_INIT_BYTES);
    return buf_add(&r->out, &shared, 1) ? 0 : rfb_bad(err, "too much");
}

/* 32 bits a pixel, little-endian, 8 bits a colour: the bytes are red, green, blue, 0. */
static const uint8_t set_up[] = {0, 0, 0,  0, 32, 24, 0, 1, 0, 255, 0, 255, 0, 255,
                                 0, 8, 16, 0, 0,  0,  2, 0, 0, 1,   0, 0,   0, RAW};

static int rfb_init(struct rfb *r, struct err *err) {
    unsigned w = u16(r->head), h = u16(r->head + 2);
    r->skip = u32(r->head + 20);
    if (!w || !h || w > RFB_SIDE_MAX || h > RFB_SIDE_MAX || w * h > RFB_PIXELS_MAX)
        return rfb_bad(err, "a size that is not supported");
    if (r->skip > NAME_MAX_BYTES)
        return rfb_bad(err, "a name that is too long");
    r->width = w;
    r->height = h;
    rfb_go(r, RFB_NAME, 0);
    return buf_add(&r->out, set_up, sizeof(set_up)) ? 0 : rfb_bad(err, "too much");
}

static int rfb_message(struct rfb *r, struct err *err) {
    switch (r->head[0]) {
    case 0:
        rfb_go(r, RFB_UPDATE, 3);
        return 0;
    case 1:
        rfb_go(r, RFB_COLOURS, 5);
        return 0;
    case 2: /* a bell */
        rfb_next_message(r);
        return 0;
    case 3:
        rfb_go(r, RFB_CUT, 7);
        return 0;
    default:
        return rfb_bad(err, "a message of an unknown type");
    }
}

/* After a rectangle. The picture is complete when an update ends that completes its pixels. */
static void rfb_next_rect(struct rfb *r) {
    if (r->rects > 0) {
        rfb_go(r, RFB_RECT, RECT_BYTES);
        return;
    }
    if (r->asked && r->came >= r->wanted)
        r->asked = false;
    rfb_next_message(r);
}

/* Copies a checked part to the viewer, if there is one. */
static int rfb_copy(struct rfb *r, const uint8_t *bytes, size_t n, struct err *err) {
    return !r->show || buf_add(r->show, bytes, n) ? 0 : rfb_bad(err, "more than the viewer takes");
}

static int rfb_update(struct rfb *r, struct err *err) {
    const uint8_t head[] = {0, 0, r->head[1], r->head[2]};
    if (!r->pixels && !r->show)
        return rfb_bad(err, "pixels that nobody asked for");
    r->rects = u16(r->head + 1);
    rfb_next_rect(r);
    return rfb_copy(r, head, sizeof(head), err);
}

static int rfb_rect(struct rfb *r, struct err *err) {
    unsigned x = u16(r->head), y = u16(r->head + 2), w = u16(r->head + 4), h = u16(r->head + 6);
    if (x + w > r->width || y + h > r->height)
        return rfb_bad(err, "a rectangle outside of the screen");
    if (u32(r->head + 8) != RAW)
        return rfb_bad(err, "an encoding that nobody asked for");
    r->rects--;
    r->rect.x = x, r->rect.y = y, r->rect.w = w, r->rect.h = h;
    r->rect.at = 0;
    r->came += (uint64_t)w * h;
    if (rfb_copy(r, r->head, RECT_BYTES, err) < 0)
        return -1;
    if (w && h)
        rfb_go(r, RFB_ROWS, 0);
    else
        rfb_next_rect(r);
    return 0;
}

static void rfb_skip(struct rfb *r, uint64_t n) {
    r->skip = n;
    if (n)
        rfb_go(r, RFB_SKIP, 0);
    else
        rfb_next_message(r);
}

static int rfb_colours(struct rfb *r, struct err *err) {
    (void)err;
    rfb_skip(r, 6ull * u16(r->head + 3));
    return 0;
}

static int rfb_cut(struct rfb *r, struct err *err) {
    if (u32(r->head + 3) > CUT_MAX)
        return rfb_bad(err, "a clipboard that is too large");
    rfb_skip(r, u32(r->head + 3));
    return 0;
}

static int (*const parts[])(struct rfb *r, struct err *err) = {
    [RFB_VERSION] = rfb_version, [RFB_TYPE_COUNT] = rfb_type_count,
    [RFB_TYPES] = rfb_types,     [RFB_RESULT] = rfb_result,
    [RFB_INIT] = rfb_init,       [RFB_MESSAGE] = rfb_message,
    [RFB_UPDATE] = rfb_update,   [RFB_RECT] = rfb_rect,
    [RFB_COLOURS] = rfb_colours, [RFB_CUT] = rfb_cut,
    [RFB_NAME] = NULL,           [RFB_ROWS] = NULL,
    [RFB_SKIP] = NULL,
};

/* ---- bytes ---- */

static size_t rfb_least(size_t a, size_t b) {
    return a < b ? a : b;
}

/* Takes pixels of one row of the rectangle. Returns the number of bytes used, or -1. */
static ssize_t rfb_take_row(struct rfb *r, const uint8_t *bytes, size_t n, struct err *err) {
    size_t row = (size_t)r->rect.w * RFB_PIXEL_BYTES, in_row = r->rect.at % row;
    size_t y = r->rect.y + r->rect.at / row, part = rfb_least(n, row - in_row);
    if (r->pixels)
        memcpy(r->pixels + (y * r->width + r->rect.x) * RFB_PIXEL_BYTES + in_row, bytes, part);
    if (rfb_copy(r, bytes, part, err) < 0)
        return -1;
    r->rect.at += part;
    if (r->rect.at == row * r->rect.h)
        rfb_next_rect(r);
    return (ssize_t)part;
}

static size_t rfb_take_skipped(struct rfb *r, size_t n) {
    size_t part = r->skip < n ? (size_t)r->skip : n;
    r->skip -= part;
    if (!r->skip) {
        r->ready = true;
        rfb_next_message(r);
    }
    return part;
}

/* Returns the number of bytes used, or -1. */
static ssize_t rfb_take_part(struct rfb *r, const uint8_t *bytes, size_t n, struct err *err) {
    size_t part = rfb_least(n, r->need - r->have);
    memcpy(r->head + r->have, bytes, part);
    r->have += part;
    return r->have == r->need && parts[r->state](r, err) < 0 ? -1 : (ssize_t)part;
}

/* The name of the screen may be empty: then no byte follows that would end the handshake. */
static void rfb_end_of_name(struct rfb *r) {
    if (r->state == RFB_NAME && !r->skip)
        rfb_take_skipped(r, 0);
}

int rfb_take(struct rfb *r, const uint8_t *bytes, size_t n, struct err *err) {
    if (r->broken || n > r->budget) {
        r->broken = true;
        return rfb_bad(err, "more than was asked for");
    }
    r->budget -= n;
    while (n > 0) {
        ssize_t used;
        if (r->state == RFB_ROWS)
            used = rfb_take_row(r, bytes, n, err);
        else if (r->state == RFB_NAME || r->state == RFB_SKIP)
            used = (ssize_t)rfb_take_skipped(r, n);
        else
            used = rfb_take_part(r, bytes, n, err);
        if (used < 0) {
            r->broken = true;
            return -1;
        }
        rfb_end_of_name(r);
        bytes += used;
        n -= (size_t)used;
    }
    return 0;
}

struct buf *rfb_out(struct rfb *r) {
    return &r->out;
}

bool rfb_is_ready(const struct rfb *r) {
    return r->ready;
}

unsigned rfb_width(const struct rfb *r) {
    return r->width;
}

unsigned rfb_height(const struct rfb *r) {
    return r->height;
}

/* ---- questions and input ---- */

void rfb_show(struct rfb *r, struct buf *to) {
    r->show = to;
}

/* Lets the server send one more picture. */
bool rfb_want(struct rfb *r, bool changed, struct rfb_area area) {
    uint8_t m[10] = {3, changed};
    rfb_put16(m + 2, area.x);
    rfb_put16(m + 4, area.y);
    rfb_put16(m + 6, area.width);
    rfb_put16(m + 8, area.height);
    r->budget = (uint64_t)r->width * r->height * RFB_PIXEL_BYTES + SLACK;
    return buf_add(&r->out, m, sizeof(m));
}

bool rfb_ask(struct rfb *r, bool fence) {
    unsigned w = fence ? 1 : r->width, h = fence ? 1 : r->height;
    if (!r->pixels)
        r->pixels = xcalloc((size_t)r->width * r->height, RFB_PIXEL_BYTES);
    r->wanted = (uint64_t)w * h;
    r->came = 0;
    r->asked = rfb_want(r, false, (struct rfb_area){0, 0, w, h});
    return r->asked;
}

bool rfb_is_answered(const struct rfb *r) {
    return r->pixels && !r->asked;
}

const uint8_t *rfb_pixels(const struct rfb *r) {
    return r->pixels;
}

uint8_t *rfb_pixels_take(struct rfb *r) {
    r->broken = true; /* no more pixels have a place */
    return TAKE(r->pixels);
}

bool rfb_point(struct rfb *r, unsigned buttons, unsigned x, unsigned y) {
    uint8_t m[6] = {5, (uint8_t)buttons};
    rfb_put16(m + 2, x);
    rfb_put16(m + 4, y);
    return buf_add(&r->out, m, sizeof(m));
}

bool rfb_key(struct rfb *r, uint32_t keysym, bool down) {
    uint8_t m[8] = {4, down};
    rfb_put16(m + 4, keysym >> 16);
    rfb_put16(m + 6, keysym & 0xffff);
    return buf_add(&r->out, m, sizeof(m));
}
