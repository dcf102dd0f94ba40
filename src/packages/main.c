/*
 * carrel-packages release KEYRING DIR | list ROOT | npm ORIGIN PATH
 *
 * Reads one document of a package archive from descriptor 3 and writes to descriptor 4 an index of
 * the files that the document vouches for (packages/rows.h). Exit status 0: the index is complete.
 * Otherwise the reason is on standard error, and the index must not be used.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "packages/apt.h"
#include "packages/npm.h"
#include "packages/worker.h"

static int read_release(char **words, struct package_rows *rows, struct err *err) {
    struct buf text DEFER(buf_done) = BUF(WORKER_RELEASE_MAX);
    if (worker_verify(words[0], &text, err) < 0)
        return -1;
    return apt_release_read(text.data ? text.data : "", text.len, words[1], rows)
               ? 0
               : err_set(err, ERR_LIMIT, "the document names too many package lists");
}

static bool feed_list(void *arg, const char *bytes, size_t n) {
    return apt_list_feed(arg, bytes, n);
}

static int read_list(char **words, struct package_rows *rows, struct err *err) {
    static struct apt_list list;
    apt_list_begin(&list, words[0], rows);
    if (worker_confine(err) < 0 || worker_unpack(WORKER_LIST_MAX, feed_list, &list, err) < 0)
        return -1;
    return apt_list_end(&list) ? 0 : err_set(err, ERR_LIMIT, "the list names too many packages");
}

static bool collect(void *arg, const char *bytes, size_t n) {
    return buf_add(arg, bytes, n);
}

static int read_npm(char **words, struct package_rows *rows, struct err *err) {
    struct buf text DEFER(buf_done) = BUF(WORKER_NPM_MAX + 1);
    if (worker_confine(err) < 0 || worker_unpack(WORKER_NPM_MAX, collect, &text, err) < 0)
        return -1;
    return npm_document_read(text.data ? text.data : "", text.len, words[0], words[1], rows)
               ? 0
               : err_set(err, ERR_INVALID, "the document is not JSON, or names too many packages");
}

static const struct {
    const char *name;
    int words;
    int (*read)(char **words, struct package_rows *rows, struct err *err);
} verbs[] = {{"release", 2, read_release}, {"list", 1, read_list}, {"npm", 2, read_npm}};

static int run_verb(int argc, char **argv, struct err *err) {
    struct package_rows rows DEFER(package_rows_done) = {.v = NULL};
    for (size_t i = 0; i < sizeof(verbs) / sizeof(*verbs); i++) {
        if (argc != verbs[i].words + 2 || strcmp(argv[1], verbs[i].name) != 0)
            continue;
        if (verbs[i].read(argv + 2, &rows, err) < 0)
            return -1;
        package_rows_sort(&rows);
        int r = package_rows_write(&rows, WORKER_INDEX);
        return r < 0 ? err_num(err, r, "cannot write the index") : 0;
    }
    return err_set(err, ERR_INVALID,
                   "usage: carrel-packages release KEYRING DIR | list ROOT | npm ORIGIN PATH");
}

int main(int argc, char **argv) {
    struct err err;
    stdio_hold();
    if (run_verb(argc, argv, &err) == 0)
        return 0;
    dprintf(STDERR_FILENO, "%s\n", err.text);
    return 1;
}
