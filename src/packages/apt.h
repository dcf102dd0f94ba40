/*
 * Parsers of the two documents of a Debian archive that name packages: Release (digests of package
 * lists) and Packages (digests of packages). Pure.
 */
#pragma once

#include "packages/rows.h"

/* Reads a Release file whose signature was verified. Adds the rows of files that are package lists
 * (Packages, Packages.gz, Packages.xz). dir: its directory on the server, with a slash at the end.
 * False: too many rows. */
bool apt_release_read(const char *text, size_t n, const char *dir, struct package_rows *ret);

enum { APT_LINE_MAX = 2048 };

/* Reads a package list in pieces. */
struct apt_list {
    const char *root; /* directory of the archive on the server, with a slash at the end */
    struct package_rows *rows;
    char line[APT_LINE_MAX];
    size_t n; /* length of the line so far, which may be longer than `line` */
    char name[APT_LINE_MAX], hex[APT_LINE_MAX];
    bool spoiled; /* the stanza has a field twice or one that is too long */
};

void apt_list_begin(struct apt_list *l, const char *root, struct package_rows *rows);
bool apt_list_feed(struct apt_list *l, const char *bytes, size_t n); /* false: too many rows */
bool apt_list_end(struct apt_list *l);
