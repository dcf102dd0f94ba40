/*
 * Rows of an index: the path of a file on a server, and the digest that its bytes must have.
 *
 * An index is text, one row per line, "PATH ALGORITHM:HEX", in ascending order of bytes of the
 * path. A path that has two different digests is left out. Paths and digests come from documents of
 * strangers, so each is checked before it is added. Pure, except for package_rows_write().
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { PACKAGE_PATH_MAX = 1000, PACKAGE_ROWS_MAX = 400000, PACKAGE_DIGEST_SIZE = 7 + 128 + 1 };

struct package_row {
    char *path;
    char digest[PACKAGE_DIGEST_SIZE]; /* "sha256:..." or "sha512:..." */
};

struct package_rows {
    struct package_row *v;
    size_t count, size;
};

void package_rows_done(struct package_rows *r);

/* Whether the text is an absolute path of printable ASCII characters without escapes, and without
 * empty or dot segments. */
bool package_path_is_plain(const char *path, size_t n);

/* Adds the file at `above` + `name`. hex: the digits of its SHA-256 (64) or SHA-512 (128), in any
 * case. Ignores a row that is not valid; false: too many rows. */
bool package_rows_add(struct package_rows *r, const char *above, const char *name, size_t n,
                      const char *hex, size_t digits);

/* Sorts the rows, and removes repeated and contradictory ones. */
void package_rows_sort(struct package_rows *r);

/* Writes the index. 0 or -errno. */
int package_rows_write(const struct package_rows *r, int fd);
