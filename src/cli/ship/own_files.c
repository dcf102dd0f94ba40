#include "cli/ship/own_files.h"

#include <string.h>

#include "cli/client.h"

static const char *const own_paths[] = {
    "etc/apt/apt.conf.d/90carrel",
    "etc/brave/policies/managed/carrel.json",
    "etc/chromium/policies/managed/carrel.json",
    "etc/firefox/policies/policies.json",
    "etc/opt/chrome/policies/managed/carrel.json",
    "etc/opt/edge/policies/managed/carrel.json",
    "etc/ssl/certs/ca-certificates.crt",
    "etc/ssl/certs/java/cacerts",
    "home/user/.pki/nssdb/cert9.db",
    "root/.pki/nssdb/cert9.db",
    "usr/local/share/ca-certificates/carrel.crt",
};
enum { OWN_PATHS = sizeof(own_paths) / sizeof(*own_paths) };

static bool is_below(const char *path, const char *dir) {
    size_t n = strlen(dir);
    return strncmp(path, dir, n) == 0 && path[n] == '/';
}

static bool is_own_file(const char *path) {
    for (size_t i = 0; i < OWN_PATHS; i++)
        if (strcmp(path, own_paths[i]) == 0)
            return true;
    return false;
}

static bool is_own_parent(const char *path) {
    for (size_t i = 0; i < OWN_PATHS; i++)
        if (is_below(own_paths[i], path))
            return true;
    return false;
}

bool own_files_has(const json_t *changes, size_t at) {
    const json_t *change = json_array_get(changes, at), *other;
    const char *path = client_text(change, "path");
    size_t i;
    if (strcmp(client_text(change, "change"), "deleted") == 0)
        return false;
    if (is_own_file(path))
        return true;
    if (strcmp(client_text(change, "change"), "added") != 0 || !is_own_parent(path))
        return false;
    json_array_foreach(changes, i, other) {
        const char *name = client_text(other, "path");
        if (is_below(name, path) && !is_own_file(name) && !is_own_parent(name))
            return false;
    }
    return true;
}
