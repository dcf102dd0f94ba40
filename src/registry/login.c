#include "registry/login.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/text/base64.h"
#include "registry/reference.h"

enum { LOGIN_BYTES_MAX = 1 << 20 };

static json_t *login_load(void) {
    char path[4096];
    const char *dir = getenv("DOCKER_CONFIG"), *home = getenv("HOME");
    if (dir && *dir)
        snprintf(path, sizeof(path), "%s/config.json", dir);
    else if (home && *home)
        snprintf(path, sizeof(path), "%s/.docker/config.json", home);
    else
        return NULL;
    char *text DEFER_FREE = xmalloc(LOGIN_BYTES_MAX);
    ssize_t n = read_file_at(AT_FDCWD, path, text, LOGIN_BYTES_MAX);
    json_t *root = n < 0 ? NULL : json_loadb(text, (size_t)n, 0, NULL);
    explicit_bzero(text, LOGIN_BYTES_MAX);
    return root;
}

/* Makes base64 of "user:password" if the file has the two as members. */
static struct secret *login_pair(const char *user, const char *password) {
    char plain[2048], text[BASE64_SIZE(sizeof(plain))];
    int n = snprintf(plain, sizeof(plain), "%s:%s", user, password);
    if (n >= (int)sizeof(plain))
        return NULL;
    base64_encode(plain, (size_t)n, text);
    struct secret *s = secret_new(text, strlen(text));
    explicit_bzero(plain, sizeof(plain));
    explicit_bzero(text, sizeof(text));
    return s;
}

struct secret *login_find(const char *host) {
    json_t *root DEFER(json_decrefp) = login_load();
    const json_t *auths = json_object_get(root, "auths"), *entry;
    char key[300];
    entry = json_object_get(auths, host);
    if (!entry && strcmp(host, REFERENCE_HUB) == 0)
        entry = json_object_get(auths, "https://index.docker.io/v1/");
    if (!entry) {
        snprintf(key, sizeof(key), "https://%s", host);
        entry = json_object_get(auths, key);
    }
    const char *auth = json_string_value(json_object_get(entry, "auth"));
    const char *user = json_string_value(json_object_get(entry, "username"));
    const char *password = json_string_value(json_object_get(entry, "password"));
    if (auth && *auth)
        return secret_new(auth, strlen(auth));
    return user && password ? login_pair(user, password) : NULL;
}
