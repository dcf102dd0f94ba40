/* Finds the route of a request, and writes paths of routes with the names of their parameters. */
#include <stdio.h>
#include <string.h>

#include "api/route.h"
#include "io/http_uri.h"

/* Compares a path with the pattern of a route, part by part; "{}" matches one decoded parameter. */
static bool match(const char *pattern, struct http_text path,
                  char params[CALL_PARAMS][CALL_PARAM_SIZE]) {
    struct http_text want = {pattern, strlen(pattern)}, a, b;
    size_t param = 0;
    for (;;) {
        bool more = http_path_next(&want, &a);
        if (http_path_next(&path, &b) != more)
            return false;
        if (!more)
            return true;
        if (http_text_is(a, "{}")) {
            size_t n;
            if (param == CALL_PARAMS ||
                http_decode_segment(b, params[param], CALL_PARAM_SIZE, &n) < 0 || n == 0)
                return false;
            param++;
        } else if (!http_text_same(a, b)) {
            return false;
        }
    }
}

static void add_method(char allow[ROUTE_ALLOW_SIZE], const char *method) {
    size_t n = strlen(allow);
    snprintf(allow + n, ROUTE_ALLOW_SIZE - n, "%s%s", n ? ", " : "", method);
}

const struct route *route_find(struct http_text method, struct http_text path,
                               char params[CALL_PARAMS][CALL_PARAM_SIZE],
                               char ret_allow[ROUTE_ALLOW_SIZE]) {
    bool every = http_text_is(method, "OPTIONS") && http_text_is(path, "*");
    ret_allow[0] = '\0';
    for (size_t i = 0; i < route_count; i++) {
        if (!match(routes[i].path, path, params))
            continue;
        bool get = strcmp(routes[i].method, "GET") == 0;
        if ((get && http_text_is(method, "HEAD")) || http_text_is(method, routes[i].method))
            return &routes[i];
        add_method(ret_allow, routes[i].method);
        if (get)
            add_method(ret_allow, "HEAD");
    }
    if (every)
        snprintf(ret_allow, ROUTE_ALLOW_SIZE, "GET, HEAD, POST, PUT, PATCH, DELETE");
    if (*ret_allow)
        add_method(ret_allow, "OPTIONS");
    return NULL;
}

/* Returns the name of a parameter, which follows from the part of the path before it. */
static const char *param_name(const char *path, const char *at) {
    static const struct {
        const char *before, *name;
    } rows[] = {{"/machines/", "machine"}, {"/execs/", "exec"},     {"/tokens/", "token"},
                {"/pending/", "item"},     {"/rules/", "rule"},     {"/steps/", "step"},
                {"/secrets/", "secret"},   {"/runs/", "run"},       {"/changesets/", "changeset"},
                {"/builds/", "build"},     {"/files/", "archive"},  {"/images/", "image"},
                {"/exposures/", "port"},   {"/forward/", "port"},   {"/grants/", "grant"},
                {"/boxes/", "box"},        {"/volumes/", "volume"}, {"/logins/", "login"},
                {"/transfers/", "ticket"}, {"/timers/", "timer"},   {"/backups/", "backup"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        size_t n = strlen(rows[i].before);
        if ((size_t)(at - path) >= n && memcmp(at - n, rows[i].before, n) == 0)
            return rows[i].name;
    }
    return "name";
}

void route_path_named(const struct route *r, char ret[ROUTE_PATH_SIZE]) {
    size_t n = 0;
    for (const char *p = r->path; *p && n + 16 < ROUTE_PATH_SIZE; p++) {
        if (strncmp(p, "{}", 2) == 0) {
            n += (size_t)snprintf(ret + n, ROUTE_PATH_SIZE - n, "{%s}", param_name(r->path, p));
            p++;
        } else {
            ret[n++] = *p;
        }
    }
    ret[n] = '\0';
}
