#include "cli/ship/own_files.h"

#include <string.h>

#include "cli/client.h"

static bool is_below(const char *path, const char *dir) {
    size_t n = strlen(dir);
    return strncmp(path, dir, n) == 0 && path[n] == '/';
}

static bool is_added(const json_t *change) {
    return strcmp(client_text(change, "change"), "added") == 0;
}

static bool is_own_file(const json_t *change) {
    return json_is_true(json_object_get(change, "own"));
}

/* A directory as Carrel makes it, or as a home directory has it. */
static bool is_plain_directory(const json_t *change) {
    const json_t *after = json_object_get(change, "after");
    const char *mode = client_text(after, "mode");
    long long owner = client_number(after, "owner");
    return is_added(change) && strcmp(client_text(after, "type"), "directory") == 0 &&
           (strcmp(mode, "0755") == 0 || strcmp(mode, "0700") == 0) &&
           (owner == 0 || strncmp(client_text(change, "path"), "home/", 5) == 0);
}

/* True if this directory has such a file below it. */
static bool has_own_file(const json_t *changes, const char *dir) {
    size_t i;
    const json_t *other;
    json_array_foreach(changes, i, other) {
        if (is_own_file(other) && is_below(client_text(other, "path"), dir))
            return true;
    }
    return false;
}

bool own_files_has(const json_t *changes, size_t at) {
    const json_t *change = json_array_get(changes, at), *other;
    const char *path = client_text(change, "path");
    size_t i;
    if (is_own_file(change))
        return true;
    if (!is_plain_directory(change) || !has_own_file(changes, path))
        return false;
    json_array_foreach(changes, i, other) {
        const char *name = client_text(other, "path");
        if (is_below(name, path) && !is_own_file(other) &&
            !(is_plain_directory(other) && has_own_file(changes, name)))
            return false;
    }
    return true;
}
