#include "gate/installing.h"

#include <fnmatch.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "gate/path.h"

enum { PATH_ROOM = 1024 };

/* The first row that matches the path decides; "*" matches any text, including slashes. */
static const struct {
    const char *preset, *path;
    bool refused;
} rows[] = {
    {"apt", "*/dists/*", false},
    {"apt", "*/pool/*", false},
    {"apt", "*/by-hash/*", false},
    {"apt", "*/InRelease", false},
    {"apt", "*/Release", false},
    {"apt", "*/Release.gpg", false},
    {"apt", "*/Packages*", false},
    {"apt", "*/Sources*", false},
    {"apt", "*.deb", false},
    {"pip", "*/simple/*", false},
    {"pip", "*/packages/*", false},
    {"pip", "*.whl", false},
    {"pip", "*.whl.metadata", false},
    {"pip", "*.tar.gz", false},
    {"pip", "*.zip", false},
    {"npm", "/-/*", true}, /* accounts, tokens, search */
    {"npm", "/", true},
    {"npm", "/*", false},
    {"cargo", "/config.json", false},
    {"cargo", "*/crates/*/download", false},
    {"cargo", "*.crate", false},
    {"cargo", "/[123]/*", false}, /* the sparse index, by the first letters of names */
    {"cargo", "/[!/]?/[!/]?/*", false},
    /* A Go proxy fetches from the host in the module name, so no path is safe. */
    {"go", "*", true},
};
enum { ROWS = sizeof(rows) / sizeof(*rows) };

bool installing_is(const char *preset) {
    for (size_t i = 0; i < ROWS; i++)
        if (strcmp(rows[i].preset, preset) == 0)
            return true;
    return false;
}

/* npm encodes the slash in names of packages as %2F. Decodes it, so that path_is_plain() also finds
 * dot segments that the slash would hide. */
static bool decode_slashes(const char *preset, const char *path, char ret[PATH_ROOM]) {
    bool decodes = strcmp(preset, "npm") == 0;
    size_t n = 0;
    for (; *path; path++) {
        bool slash = decodes && strncasecmp(path, "%2f", 3) == 0;
        if (n + 1 == PATH_ROOM)
            return false;
        ret[n++] = slash ? '/' : *path;
        path += slash ? 2 : 0;
    }
    ret[n] = '\0';
    return true;
}

/* Decodes the percent-escapes of the path in place, because servers decode a path before they use
 * it. */
static void installing_decode(char *path) {
    char *to = path;
    for (; *path; path++) {
        int c = *path == '%' ? path_hex(path + 1) : -1;
        *to++ = c < 0 ? *path : (char)c;
        path += c < 0 ? 0 : 2;
    }
    *to = '\0';
}

const char *installing_refuses(const char *preset, const char *method, const char *path) {
    char plain[PATH_ROOM];
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        return "this machine has read data from an untrusted source and may only install packages";
    if (!decode_slashes(preset, path, plain) || !path_is_plain(plain))
        return "the path of the request is ambiguous";
    installing_decode(plain);
    for (size_t i = 0; i < ROWS; i++)
        if (strcmp(rows[i].preset, preset) == 0 && fnmatch(rows[i].path, plain, 0) == 0) {
            if (!rows[i].refused)
                return NULL;
            break;
        }
    return "this machine has read data from an untrusted source, and installing packages does not "
           "need this path";
}
