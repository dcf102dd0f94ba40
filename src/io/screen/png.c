#include "io/screen/png.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/alloc.h"
#include "base/defer.h"

/*
 * A chunk is its length, its type, its bytes and a checksum. The image is one chunk of each type.
 * FILTER_UP stores the difference from the row above, which makes areas of one colour zeros.
 */
enum { SIGNATURE = 8, FRAME = 12, HEADER = 13, COLOURS = 3, FILTER_UP = 2, RGB = 2 };

static void png_u32(uint8_t *p, uint32_t v) {
    p[0] = (uint8_t)(v >> 24);
    p[1] = (uint8_t)(v >> 16);
    p[2] = (uint8_t)(v >> 8);
    p[3] = (uint8_t)v;
}

/* Completes a chunk whose n bytes are in place at p + 8. Returns the place of the next one. */
static uint8_t *png_chunk(uint8_t *p, const char *type, size_t n) {
    png_u32(p, (uint32_t)n);
    memcpy(p + 4, type, 4);
    png_u32(p + 8 + n, (uint32_t)crc32(0, p + 4, (uInt)n + 4));
    return p + FRAME + n;
}

/* Writes row y of the image, filtered, to ret. */
static void png_row(const uint8_t *pixels, unsigned width, unsigned y, uint8_t *ret) {
    const uint8_t *row = pixels + (size_t)y * width * 4;
    const uint8_t *above = y ? row - (size_t)width * 4 : NULL;
    *ret++ = FILTER_UP;
    for (size_t i = 0; i < (size_t)width * 4; i += 4)
        for (size_t k = i; k < i + COLOURS; k++)
            *ret++ = (uint8_t)(row[k] - (above ? above[k] : 0));
}

static size_t png_deflate(const uint8_t *pixels, unsigned width, unsigned height, z_stream *z) {
    size_t bytes = 1 + (size_t)width * COLOURS;
    uint8_t *row DEFER_FREE = xmalloc(bytes);
    for (unsigned y = 0; y < height; y++) {
        png_row(pixels, width, y, row);
        z->next_in = row;
        z->avail_in = (uInt)bytes;
        int r = deflate(z, y + 1 == height ? Z_FINISH : Z_NO_FLUSH);
        assert(r == Z_OK || r == Z_STREAM_END);
        (void)r;
    }
    return z->total_out;
}

uint8_t *png_write(const uint8_t *pixels, unsigned width, unsigned height, size_t *ret_size) {
    static const uint8_t signature[SIGNATURE] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    z_stream z = {0};
    if (deflateInit2(&z, Z_BEST_SPEED, Z_DEFLATED, 15, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        abort(); /* only a lack of memory can cause this */
    size_t most = deflateBound(&z, (uLong)height * (1 + (size_t)width * COLOURS));
    uint8_t *image = xmalloc(SIGNATURE + 3 * FRAME + HEADER + most), *at = image;
    memcpy(at, signature, SIGNATURE);
    at += SIGNATURE;
    png_u32(at + 8, width);
    png_u32(at + 12, height);
    memcpy(at + 16, (const uint8_t[]){8, RGB, 0, 0, 0}, 5);
    at = png_chunk(at, "IHDR", HEADER);
    z.next_out = at + 8;
    z.avail_out = (uInt)most;
    at = png_chunk(at, "IDAT", png_deflate(pixels, width, height, &z));
    deflateEnd(&z);
    at = png_chunk(at, "IEND", 0);
    *ret_size = (size_t)(at - image);
    return image;
}
