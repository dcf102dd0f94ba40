#include "io/gzip.h"

#include <stdlib.h>
#include <zlib.h>

#include "base/alloc.h"

enum { GZIP_WINDOW = 15 + 16 }; /* the largest window; + 16: with the header of gzip */

struct gzip {
    z_stream stream;
    bool packs, over;
};

struct gzip *gzip_new(void) {
    struct gzip *z = xnew(struct gzip);
    z->packs = true;
    if (deflateInit2(&z->stream, Z_BEST_SPEED, Z_DEFLATED, GZIP_WINDOW, 8, Z_DEFAULT_STRATEGY) !=
        Z_OK)
        abort(); /* only a lack of memory can cause this */
    return z;
}

struct gzip *gunzip_new(void) {
    struct gzip *z = xnew(struct gzip);
    if (inflateInit2(&z->stream, GZIP_WINDOW) != Z_OK)
        abort();
    return z;
}

void gzip_free(struct gzip *z) {
    if (!z)
        return;
    if (z->packs)
        deflateEnd(&z->stream);
    else
        inflateEnd(&z->stream);
    free(z);
}

int gzip_go(struct gzip *z, const void *in, size_t n, bool end, void *out, size_t size,
            size_t *ret_used, size_t *ret_out, struct err *err) {
    z_stream *s = &z->stream;
    *ret_used = *ret_out = 0;
    if (z->over)
        return n ? err_set(err, ERR_INVALID, "the compressed body has bytes after its end") : 1;
    s->next_in = (unsigned char *)in;
    s->avail_in = (unsigned)n;
    s->next_out = out;
    s->avail_out = (unsigned)size;
    int r = z->packs ? deflate(s, end ? Z_FINISH : Z_NO_FLUSH) : inflate(s, Z_NO_FLUSH);
    *ret_used = n - s->avail_in;
    *ret_out = size - s->avail_out;
    z->over = r == Z_STREAM_END;
    if (z->over)
        return 1;
    if (r != Z_OK && r != Z_BUF_ERROR)
        return err_set(err, ERR_INVALID,
                       "cannot decompress the body of the request: it is not "
                       "gzip");
    if (!z->packs && end && !*ret_used && !*ret_out)
        return err_set(err, ERR_INVALID, "the compressed body of the request is truncated");
    return 0;
}
