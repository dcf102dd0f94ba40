#include "cli/handed.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/defer.h"
#include "cli/spec.h"

enum { WORDS_MAX = 2 * PATH_MAX };

void handed_close(struct handed *h) {
    while (h->count)
        close(h->fds[--h->count]);
}

static int keep_fd(struct handed *h, int fd, struct err *err) {
    if (h->count == HANDED_MAX) {
        close(fd);
        return err_set(err, ERR_LIMIT, "more than %d files at once", HANDED_MAX);
    }
    h->fds[h->count++] = fd;
    return 0;
}

static int copy_words(const char *text, char words[WORDS_MAX], struct err *err) {
    if ((size_t)snprintf(words, WORDS_MAX, "%s", text) >= WORDS_MAX)
        return err_set(err, ERR_LIMIT, "'%.60s...' is too long for a grant", text);
    return 0;
}

/* ---- HOST[:/GUEST] ---- */

static int put_file(struct jot *j, const char *text, struct handed *h, struct err *err) {
    char words[WORDS_MAX], real[PATH_MAX];
    if (copy_words(text, words, err) < 0)
        return -1;
    char *guest = strrchr(words, ':');
    if (guest && guest[1] == '/')
        *guest++ = '\0';
    else
        guest = NULL;
    if (!realpath(words, real))
        return err_sys(err, "open file '%s'", words);
    int fd = open(real, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, "open file '%s'", real);
    jot_string(j, "what", real);
    if (guest)
        jot_string(j, "at", guest);
    return keep_fd(h, fd, err);
}

/* ---- NAME@HOST[:WAY] ---- */

static int put_secret(struct jot *j, const char *text, struct handed *h, struct err *err) {
    char words[WORDS_MAX];
    (void)h;
    if (copy_words(text, words, err) < 0)
        return -1;
    char *host = strchr(words, '@'), *way = host ? strrchr(host, ':') : NULL;
    if (!host || host == words || !host[1]) {
        err_set(err, ERR_INVALID, "'%s' does not say for which host", text);
        return err_remedy(err, "write NAME@HOST, and :header, :basic or :query behind it");
    }
    *host++ = '\0';
    if (way)
        *way++ = '\0';
    jot_string(j, "what", words);
    jot_string(j, "at", host);
    if (way)
        jot_string(j, "mode", way);
    return 0;
}

/* ---- NAME=VALUE ---- */

static int put_env(struct jot *j, const char *text, struct handed *h, struct err *err) {
    char name[256];
    const char *eq = strchr(text, '=');
    (void)h;
    if (!eq || eq == text || (size_t)(eq - text) >= sizeof(name))
        return err_set(err, ERR_INVALID, "'%s' is not NAME=VALUE", text);
    snprintf(name, sizeof(name), "%.*s", (int)(eq - text), text);
    jot_string(j, "what", name);
    jot_string(j, "value", eq + 1);
    return 0;
}

static const struct {
    const char *kind;
    int (*put)(struct jot *j, const char *text, struct handed *h, struct err *err);
    size_t offset; /* of its list in handed_options */
    bool listed;
} kinds[] = {
    {"file", put_file, offsetof(struct handed_options, files), true},
    {"secret", put_secret, offsetof(struct handed_options, secrets), true},
    {"env", put_env, 0, false},
};
enum { KINDS = sizeof(kinds) / sizeof(*kinds) };

int handed_put_words(struct jot *j, const char *kind, const char *text, struct handed *h,
                     struct err *err) {
    for (size_t i = 0; i < KINDS; i++)
        if (strcmp(kinds[i].kind, kind) == 0) {
            jot_string(j, "kind", kind);
            return kinds[i].put(j, text, h, err);
        }
    return err_set(err, ERR_INVALID, "'%s' is no kind of grant", kind);
}

static const struct option_list *list_of(const struct handed_options *o, size_t kind) {
    return (const void *)((const char *)o + kinds[kind].offset);
}

int handed_put(struct jot *j, const struct handed_options *o, struct handed *h, struct err *err) {
    bool any = false;
    for (size_t i = 0; i < KINDS; i++)
        any |= kinds[i].listed && list_of(o, i)->count;
    spec_put_duration(j, "expires", o->expires_ms);
    if (!any)
        return 0;
    jot_array(j, "grants");
    for (size_t i = 0; i < KINDS; i++) {
        const struct option_list *list = list_of(o, i);
        for (size_t k = 0; kinds[i].listed && k < list->count; k++) {
            jot_object(j, NULL);
            if (handed_put_words(j, kinds[i].kind, list->items[k], h, err) < 0)
                return -1;
            jot_end(j, '}');
        }
    }
    jot_end(j, ']');
    return 0;
}
