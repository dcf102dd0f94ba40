#include "cli/image/build_owner.h"

#include <stdio.h>
#include <string.h>

#include "base/defer.h"
#include "base/text/accounts.h"

static bool is_directory(struct client *c, const char *machine, const char *path, bool *ret_exists,
                         struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    json_t *entry DEFER(json_decrefp) = NULL;
    const struct client_request r = {.method = "GET", .target = target};
    if (client_target(target, err, "/v1/machines/%s/files/stat?path=%s&user=root&follow=1", machine,
                      path) < 0)
        return false;
    *ret_exists = client_call(c, &r, &entry, err) == 0;
    return *ret_exists && strcmp(client_text(entry, "type"), "directory") == 0;
}

int build_place_find(struct client *c, const char *machine, const char *path, bool into,
                     struct build_place *ret, struct err *err) {
    size_t n = strlen(path);
    bool exists = false;
    struct err ignored;
    *ret = (struct build_place){0};
    if (n + 1 >= sizeof(ret->dir))
        return err_set(err, ERR_LIMIT, "path '%.60s...' is too long", path);
    bool is_dir = is_directory(c, machine, path, &exists, &ignored);
    if (is_dir || into || path[n - 1] == '/') {
        snprintf(ret->dir, sizeof(ret->dir), "%s", path);
        while (n > 1 && ret->dir[n - 1] == '/')
            ret->dir[--n] = '\0';
        ret->exists = is_dir;
        return 0;
    }
    const char *slash = strrchr(path, '/');
    snprintf(ret->dir, sizeof(ret->dir), "%.*s", slash > path ? (int)(slash - path) : 1, path);
    if (snprintf(ret->name, sizeof(ret->name), "%s", slash + 1) >= (int)sizeof(ret->name))
        return err_set(err, ERR_LIMIT, "name '%.60s...' is too long", slash + 1);
    ret->exists = is_directory(c, machine, ret->dir, &exists, &ignored);
    return 0;
}

static int build_post(struct client *c, const char *machine, const char *verb,
                      const struct buf *body, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "POST", .target = target, .body = body};
    return snprintf(target, sizeof(target), "/v1/machines/%s/files/%s", machine, verb) < 0
               ? -1
               : client_call(c, &r, NULL, err);
}

int build_mkdir(struct client *c, const char *machine, const char *path, struct err *err) {
    struct buf body DEFER(buf_done) = BUF(8 * PATH_MAX);
    struct jot j = JOT(&body);
    jot_object(&j, NULL);
    jot_string(&j, "path", path);
    jot_string(&j, "user", "root");
    jot_end(&j, '}');
    return build_post(c, machine, "mkdir", &body, err);
}

int build_owner_give(struct client *c, const char *machine, const char *dir, const char *name,
                     const struct build_owner *owner, struct err *err) {
    char path[2 * PATH_MAX];
    struct buf body DEFER(buf_done) = BUF(16 * PATH_MAX);
    struct jot j = JOT(&body);
    snprintf(path, sizeof(path), "%s%s%s", dir, *name && strcmp(dir, "/") != 0 ? "/" : "", name);
    jot_object(&j, NULL);
    jot_string(&j, "path", path);
    jot_u64(&j, "owner", owner->uid);
    jot_u64(&j, "group", owner->gid);
    jot_string(&j, "user", "root");
    jot_end(&j, '}');
    return build_post(c, machine, "chown", &body, err);
}

int build_place_make(struct client *c, const char *machine, const struct build_place *p,
                     const struct build_owner *owner, struct err *err) {
    if (p->exists)
        return 0;
    if (build_mkdir(c, machine, p->dir, err) < 0)
        return -1;
    return owner ? build_owner_give(c, machine, p->dir, "", owner, err) : 0;
}

static int read_inside(struct client *c, const char *machine, const char *path, struct buf *to,
                       struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "GET", .target = target, .accept = "*/*"};
    const struct http_head *head;
    return client_target(target, err, "/v1/machines/%s/files?path=%s&user=root", machine, path) <
                       0 ||
                   client_send(c, c->http, &r, err) < 0 || client_answer(c->http, &head, err) < 0 ||
                   http_client_collect(c->http, to, err) < 0
               ? -1
               : 0;
}

static bool is_id(const char *text, uint32_t *ret) {
    uint64_t n = 0;
    if (!*text || strlen(text) > 5 || text[strspn(text, "0123456789")] != '\0')
        return false;
    for (const char *p = text; *p; p++)
        n = n * 10 + (uint64_t)(*p - '0');
    *ret = (uint32_t)n;
    return n < ACCOUNT_ID_MAX;
}

static int find_id(struct client *c, const char *machine, const char *name, bool group,
                   uint32_t *ret, struct err *err) {
    const char *file = group ? "/etc/group" : "/etc/passwd";
    struct buf text DEFER(buf_done) = BUF(ACCOUNT_FILE_MAX);
    struct account account;
    if (is_id(name, ret))
        return 0;
    if (read_inside(c, machine, file, &text, err) < 0)
        return err_wrap(err, "cannot find '%.40s' of --chown", name);
    const char *bytes = text.data ? text.data : "";
    if (group ? account_group_find(bytes, text.len, name, ret)
              : account_find(bytes, text.len, name, &account)) {
        *ret = group ? *ret : account.uid;
        return 0;
    }
    return err_set(err, ERR_NOT_FOUND, "--chown: %s '%.40s' does not exist in %s of the image",
                   group ? "group" : "user", name, file);
}

/* As in Docker, a group that is not given is the same number as the user. */
int build_owner_find(struct client *c, const char *machine, const char *text,
                     struct build_owner *ret, struct err *err) {
    char user[ACCOUNT_NAME_MAX + 2];
    size_t n = strcspn(text, ":");
    if (n >= sizeof(user))
        return err_set(err, ERR_INVALID, "--chown: user '%.40s...' is too long", text);
    snprintf(user, sizeof(user), "%.*s", (int)n, text);
    if (find_id(c, machine, user, false, &ret->uid, err) < 0)
        return -1;
    ret->gid = ret->uid;
    return text[n] == ':' && text[n + 1] ? find_id(c, machine, text + n + 1, true, &ret->gid, err)
                                         : 0;
}
