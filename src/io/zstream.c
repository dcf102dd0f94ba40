#include "io/zstream.h"

#include <stdint.h>
#include <stdlib.h>
#include <zstd.h>

#include "base/alloc.h"

enum { LEVEL = 1, WINDOW_LOG = 23 };
#define BOMB_FREE (1ull << 30)
#define BOMB_RATIO 2000u

struct zpack {
    ZSTD_CCtx *c;
};

struct zunpack {
    ZSTD_DCtx *d;
    uint64_t in, out;
    bool whole;
};

struct zpack *zpack_new(void) {
    struct zpack *z = xnew(struct zpack);
    z->c = alloc_check(ZSTD_createCCtx());
    ZSTD_CCtx_setParameter(z->c, ZSTD_c_compressionLevel, LEVEL);
    ZSTD_CCtx_setParameter(z->c, ZSTD_c_checksumFlag, 1);
    return z;
}

void zpack_free(struct zpack *z) {
    if (!z)
        return;
    ZSTD_freeCCtx(z->c);
    free(z);
}

size_t zpack_go(struct zpack *z, const void *in, size_t n, bool end, void *out, size_t size,
                size_t *ret_used, bool *ret_done) {
    ZSTD_inBuffer from = {in, n, 0};
    ZSTD_outBuffer to = {out, size, 0};
    size_t left = ZSTD_compressStream2(z->c, &to, &from, end ? ZSTD_e_end : ZSTD_e_continue);
    if (ZSTD_isError(left))
        abort(); /* only a lack of memory can cause this: the parameters are fixed */
    *ret_used = from.pos;
    *ret_done = end && left == 0;
    return to.pos;
}

struct zunpack *zunpack_new(void) {
    struct zunpack *z = xnew(struct zunpack);
    z->d = alloc_check(ZSTD_createDCtx());
    ZSTD_DCtx_setParameter(z->d, ZSTD_d_windowLogMax, WINDOW_LOG);
    return z;
}

void zunpack_free(struct zunpack *z) {
    if (!z)
        return;
    ZSTD_freeDCtx(z->d);
    free(z);
}

static int check_bomb(const struct zunpack *z, struct err *err) {
    if (z->out <= BOMB_FREE || z->out / BOMB_RATIO <= z->in)
        return 0;
    err_set(err, ERR_LIMIT, "the compressed body of the request expands more than %u times",
            BOMB_RATIO);
    return err_remedy(err, "send the body without compression");
}

int zunpack_go(struct zunpack *z, const void *in, size_t n, void *out, size_t size,
               size_t *ret_used, size_t *ret_out, struct err *err) {
    ZSTD_inBuffer from = {in, n, 0};
    ZSTD_outBuffer to = {out, size, 0};
    size_t left = ZSTD_decompressStream(z->d, &to, &from);
    if (ZSTD_isError(left)) {
        err_set(err, ERR_INVALID, "cannot decompress the body of the request: %s",
                ZSTD_getErrorName(left));
        return err_remedy(
            err, "compress the body with zstd, level 19 or lower (window of at most 8 MiB)");
    }
    z->in += from.pos;
    z->out += to.pos;
    if (from.pos || to.pos)
        z->whole = left == 0;
    *ret_used = from.pos;
    *ret_out = to.pos;
    return check_bomb(z, err);
}

bool zunpack_is_whole(const struct zunpack *z) {
    return z->whole;
}
