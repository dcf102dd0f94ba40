#include <archive.h>
#include <archive_entry.h>

#include "base/defer.h"
#include "packages/worker.h"

enum { BLOCK = 64 << 10 };

static void unpack_close(struct archive **a) {
    archive_read_free(*a);
}

int worker_unpack(size_t max, worker_piece_fn *fn, void *arg, struct err *err) {
    struct archive *a DEFER(unpack_close) = archive_read_new();
    struct archive_entry *entry;
    static char bytes[BLOCK];
    size_t total = 0;
    archive_read_support_filter_gzip(a);
    archive_read_support_filter_xz(a);
    archive_read_support_format_raw(a);
    archive_read_support_format_empty(a);
    if (archive_read_open_fd(a, WORKER_DOCUMENT, BLOCK) != ARCHIVE_OK)
        return err_set(err, ERR_INVALID, "cannot read the document: %s", archive_error_string(a));
    int r = archive_read_next_header(a, &entry);
    if (r == ARCHIVE_EOF)
        return 0;
    if (r != ARCHIVE_OK)
        return err_set(err, ERR_INVALID, "cannot unpack the document: %s", archive_error_string(a));
    for (;;) {
        la_ssize_t n = archive_read_data(a, bytes, sizeof(bytes));
        if (n == 0)
            return 0;
        if (n < 0)
            return err_set(err, ERR_INVALID, "cannot unpack the document: %s",
                           archive_error_string(a));
        total += (size_t)n;
        if (total > max)
            return err_set(err, ERR_LIMIT, "the document is larger than %zu bytes", max);
        if (!fn(arg, bytes, (size_t)n))
            return err_set(err, ERR_LIMIT, "the document names too many packages");
    }
}
