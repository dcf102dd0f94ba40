#include "registry/challenge.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Copies a value, in quotes or not; returns the text after it, or NULL if it is not valid. */
static const char *take_value(const char *at, char *to, size_t size) {
    bool quoted = *at == '"';
    size_t n = 0;
    at += quoted;
    while (*at && (quoted ? *at != '"' : !strchr(", \t", *at))) {
        if (quoted && *at == '\\' && at[1])
            at++;
        if ((unsigned char)*at < ' ' || *at == 0x7f || n + 1 >= size)
            return NULL;
        to[n++] = *at++;
    }
    to[n] = '\0';
    if (quoted && *at != '"')
        return NULL;
    return at + quoted;
}

/* Reads the parameters after "Bearer". False: they are not valid. */
static bool take_parameters(const char *at, struct challenge *c) {
    while (*(at += strspn(at, " \t,"))) {
        char ignored[1024];
        size_t n = strcspn(at, "= \t,");
        if (n == 0 || at[n] != '=')
            return false;
        struct {
            const char *name;
            char *to;
            size_t size;
        } rows[] = {{"realm", c->realm, sizeof(c->realm)},
                    {"service", c->service, sizeof(c->service)},
                    {"scope", c->scope, sizeof(c->scope)},
                    {NULL, ignored, sizeof(ignored)}};
        size_t i = 0;
        while (rows[i].name && (strlen(rows[i].name) != n || strncasecmp(rows[i].name, at, n) != 0))
            i++;
        at = take_value(at + n + 1, rows[i].to, rows[i].size);
        if (!at)
            return false;
    }
    return true;
}

struct challenge challenge_read(const char *field) {
    struct challenge c = {.kind = CHALLENGE_NONE};
    field += strspn(field, " \t");
    if (strncasecmp(field, "Basic", 5) == 0 && (field[5] == ' ' || field[5] == '\0')) {
        c.kind = CHALLENGE_BASIC;
        return c;
    }
    if (strncasecmp(field, "Bearer ", 7) != 0 || !take_parameters(field + 7, &c) || !c.realm[0])
        return (struct challenge){.kind = CHALLENGE_NONE};
    c.kind = CHALLENGE_BEARER;
    return c;
}
