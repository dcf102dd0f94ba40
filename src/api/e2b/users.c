/*
 * The user that a request acts as, from the passwd file of its machine, and the paths of that user.
 *
 * E2B's envd is root in its sandbox and gives what it makes to the user: so file messages go as
 * root, and the owner is set afterwards.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/e2b/envd_inner.h"
#include "base/parse.h"
#include "base/text/accounts.h"
#include "service/files.h"

#define DEFAULT_USER "user"

static void copy_text(struct account_text t, char *ret, size_t size) {
    snprintf(ret, size, "%.*s", (int)t.n, t.s);
}

static bool find_user(struct envd_call *c, const char *name) {
    struct envd_user *u = &c->user;
    struct account a;
    if (!c->passwd.len || !account_find(c->passwd.data, c->passwd.len, name, &a))
        return false;
    copy_text(a.name, u->name, sizeof(u->name));
    copy_text(a.home, u->home, sizeof(u->home));
    if (!u->home[0])
        snprintf(u->home, sizeof(u->home), "/");
    u->uid = a.uid;
    u->gid = a.gid;
    return true;
}

/* The user "user"; of a template, or in an image without one, the user that its commands run as. */
static int default_user(struct envd_call *c, struct err *err) {
    struct envd_user *u = &c->user;
    char number[16];
    if (!c->as_image && find_user(c, DEFAULT_USER))
        return 0;
    if (service_file_owner(c->service, &c->who, c->machine, &u->uid, &u->gid, err) < 0)
        return -1;
    snprintf(number, sizeof(number), "%" PRIu32, u->uid);
    if (find_user(c, number))
        return 0;
    snprintf(u->name, sizeof(u->name), "%s", number);
    snprintf(u->home, sizeof(u->home), "/");
    return 0;
}

static void keep_file(struct buf *b, const struct frame *frame) {
    struct msg_read_data m;
    *b = BUF(MSG_CHUNK_MAX + 1);
    if (msg_get_read_data(frame, &m) == 0 && !buf_add(b, m.data.p, m.data.n))
        b->len = 0;
}

static void groups_read(void *arg, const struct frame *frame, const struct err *err) {
    struct envd_call *c = arg;
    struct err why;
    if (!err)
        keep_file(&c->group, frame);
    if (c->user.is_given && !find_user(c, c->user.name)) {
        envd_fail(c, CONNECT_UNAUTHENTICATED, "invalid username: '%s'", c->user.name);
    } else if (!c->user.is_given && default_user(c, &why) < 0) {
        envd_fail_with(c, &why);
    } else {
        c->then(c);
    }
}

/* Both files are read as far as one message holds. A machine may have none of them. */
static void read_file(struct envd_call *c, const char *path,
                      void (*done)(void *arg, const struct frame *frame, const struct err *err)) {
    const struct msg_read m = {.uid = MSG_ID_NONE,
                               .gid = MSG_ID_NONE,
                               .bytes = MSG_CHUNK_MAX,
                               .path = {path, (uint32_t)strlen(path)}};
    envd_file(c, MSG_READ, &m, NULL, done, c);
}

static void users_read(void *arg, const struct frame *frame, const struct err *err) {
    struct envd_call *c = arg;
    if (!err)
        keep_file(&c->passwd, frame);
    read_file(c, "/etc/group", groups_read);
}

void envd_as_user(struct envd_call *c, const char *name, void (*then)(struct envd_call *c)) {
    c->then = then;
    c->user.is_given = name;
    snprintf(c->user.name, sizeof(c->user.name), "%s", name ? name : "");
    read_file(c, "/etc/passwd", users_read);
}

/* ---- names ---- */

void envd_user_name(const struct envd_call *c, uint32_t uid, char ret[ENVD_NAME_SIZE]) {
    struct account a;
    snprintf(ret, ENVD_NAME_SIZE, "%" PRIu32, uid);
    if (c->passwd.len && account_find(c->passwd.data, c->passwd.len, ret, &a))
        copy_text(a.name, ret, ENVD_NAME_SIZE);
}

/* A line is "NAME:PASSWORD:GID:MEMBERS". False: it is of another group. */
static bool group_line(const char *line, size_t n, uint32_t gid, char ret[ENVD_NAME_SIZE]) {
    char number[16];
    uint64_t id;
    const char *end = line + n, *name = memchr(line, ':', n);
    const char *password = name ? memchr(name + 1, ':', (size_t)(end - name - 1)) : NULL;
    const char *last = password ? memchr(password + 1, ':', (size_t)(end - password - 1)) : NULL;
    if (!password || name == line || name - line >= ENVD_NAME_SIZE)
        return false;
    size_t digits = (size_t)((last ? last : end) - password - 1);
    if (digits == 0 || digits >= sizeof(number))
        return false;
    snprintf(number, sizeof(number), "%.*s", (int)digits, password + 1);
    if (parse_u64(number, 0, UINT32_MAX, &id, NULL) < 0 || id != gid)
        return false;
    snprintf(ret, ENVD_NAME_SIZE, "%.*s", (int)(name - line), line);
    return true;
}

void envd_group_name(const struct envd_call *c, uint32_t gid, char ret[ENVD_NAME_SIZE]) {
    const char *at = c->group.data, *end = at ? at + c->group.len : NULL;
    snprintf(ret, ENVD_NAME_SIZE, "%" PRIu32, gid);
    while (at && at < end) {
        const char *nl = memchr(at, '\n', (size_t)(end - at));
        size_t n = (size_t)((nl ? nl : end) - at);
        if (group_line(at, n, gid, ret))
            return;
        at += n + 1;
    }
}

/* ---- paths ---- */

/* Appends one part of a path: "." is left out, and ".." removes the part before. */
static bool add_part(char ret[ENVD_PATH_SIZE], size_t *len, const char *part, size_t n) {
    if (n == 0 || (n == 1 && part[0] == '.'))
        return true;
    if (n == 2 && part[0] == '.' && part[1] == '.') {
        while (*len && ret[--*len] != '/')
            continue;
        return true;
    }
    if (*len + n + 2 > ENVD_PATH_SIZE)
        return false;
    ret[(*len)++] = '/';
    memcpy(ret + *len, part, n);
    *len += n;
    return true;
}

static bool add_parts(char ret[ENVD_PATH_SIZE], size_t *len, const char *path) {
    while (*path) {
        size_t n = strcspn(path, "/");
        if (!add_part(ret, len, path, n))
            return false;
        path += n + (path[n] == '/');
    }
    return true;
}

int envd_path(const char *given, const char *home, char ret[ENVD_PATH_SIZE], struct err *err) {
    size_t len = 0;
    bool is_home = given[0] == '~' && (given[1] == '/' || !given[1]);
    if (given[0] == '~' && !is_home)
        return err_set(err, ERR_INVALID, "path '%.200s': '~' stands only for the home of the user",
                       given);
    if ((given[0] != '/' && !add_parts(ret, &len, home)) ||
        !add_parts(ret, &len, is_home ? given + 1 : given))
        return err_set(err, ERR_INVALID, "path '%.100s' is too long", given);
    if (!len)
        ret[len++] = '/';
    ret[len] = '\0';
    return 0;
}
