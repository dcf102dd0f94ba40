/* Property: whatever a document holds, each row has a plain path below the directory that the
 * document may speak for, and a digest. How a list is cut into pieces changes nothing. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "packages/apt.h"
#include "packages/npm.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_rows(struct package_rows *rows, const char *below) {
    package_rows_sort(rows);
    for (size_t i = 0; i < rows->count; i++) {
        const struct package_row *r = &rows->v[i];
        assert(package_path_is_plain(r->path, strlen(r->path)));
        assert(strncmp(r->path, below, strlen(below)) == 0);
        assert(strlen(r->digest) == 7 + 64 || strlen(r->digest) == 7 + 128);
        assert(i == 0 || strcmp(rows->v[i - 1].path, r->path) < 0);
    }
}

static struct package_rows list_of(const char *text, size_t n, size_t piece) {
    static struct apt_list list;
    struct package_rows rows = {.v = NULL};
    apt_list_begin(&list, "/root/", &rows);
    for (size_t at = 0; at < n; at += piece)
        assert(apt_list_feed(&list, text + at, n - at < piece ? n - at : piece));
    assert(apt_list_end(&list));
    check_rows(&rows, "/root/");
    return rows;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = size ? (const char *)data : "";
    struct package_rows release = {.v = NULL}, npm = {.v = NULL};
    if (apt_release_read(text, size, "/dists/", &release))
        check_rows(&release, "/dists/");
    if (npm_document_read(text, size, "https://r.test:443", "/thing", &npm))
        check_rows(&npm, "/thing/-/");
    struct package_rows whole = list_of(text, size, size + 1), cut = list_of(text, size, 7);
    assert(whole.count == cut.count);
    for (size_t i = 0; i < whole.count; i++)
        assert(strcmp(whole.v[i].path, cut.v[i].path) == 0 &&
               strcmp(whole.v[i].digest, cut.v[i].digest) == 0);
    package_rows_done(&release);
    package_rows_done(&npm);
    package_rows_done(&whole);
    package_rows_done(&cut);
    return 0;
}
