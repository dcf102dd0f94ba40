#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "service/state.h"

bool may_see(const struct caller *who, const char *owner) {
    return who->scopes & SCOPE_ADMIN || strcmp(who->owner, owner) == 0;
}

/* The owner of a uid is named after the user, or by the number if the user has no name. */
static void owner_name(uid_t uid, char *ret, size_t size) {
    char text[1024];
    struct passwd pw, *found = NULL;
    if (getpwuid_r(uid, &pw, text, sizeof(text), &found) == 0 && found && strlen(pw.pw_name) < size)
        snprintf(ret, size, "%s", pw.pw_name);
    else
        snprintf(ret, size, "uid-%u", (unsigned)uid);
}

static int owner_of_uid(struct service *s, uid_t uid, struct owner_row *ret, struct err *err) {
    if (store_owner_by_uid(s->store, uid, ret, err) == 0)
        return 0;
    if (err->code != ERR_NOT_FOUND)
        return -1;
    *ret = (struct owner_row){.uid = uid, .created_ms = wall_ms()};
    owner_name(uid, ret->name, sizeof(ret->name));
    struct owner_row taken;
    /* Names of owners are unique. If tokens or another uid have this one, use the number. */
    for (unsigned n = 0; store_owner_get(s->store, ret->name, &taken, NULL) == 0; n++)
        snprintf(ret->name, sizeof(ret->name), n ? "uid-%u.%u" : "uid-%u", (unsigned)uid, n);
    return store_owner_put(s->store, ret, err);
}

int service_caller_by_uid(struct service *s, uid_t uid, pid_t pid, struct caller *ret,
                          struct err *err) {
    /* Cache the last owner, which every request needs. Owners are never renamed or removed. */
    if (!s->last_owner[0] || s->last_uid != uid) {
        struct owner_row row;
        if (owner_of_uid(s, uid, &row, err) < 0)
            return -1;
        snprintf(s->last_owner, sizeof(s->last_owner), "%s", row.name);
        s->last_uid = uid;
    }
    *ret = (struct caller){.scopes = SCOPE_READ | SCOPE_RUN, .local = true, .uid = uid};
    /* The user that runs the daemon owns its files, so it may do everything. */
    if (uid == geteuid())
        ret->scopes |= SCOPE_ADMIN;
    snprintf(ret->owner, sizeof(ret->owner), "%s", s->last_owner);
    snprintf(ret->client, sizeof(ret->client), "uid %u pid %d", (unsigned)uid, (int)pid);
    return 0;
}

int service_caller_by_token(struct service *s, const char *secret, size_t len, const char *client,
                            struct caller *ret, struct err *err) {
    struct token_row row;
    if (store_token_check(s->store, secret, len, wall_ms(), &row, err) < 0)
        return -1;
    *ret = (struct caller){.scopes = row.scopes, .quota = row.quota};
    snprintf(ret->owner, sizeof(ret->owner), "%s", row.owner);
    snprintf(ret->token, sizeof(ret->token), "%s", row.id);
    snprintf(ret->client, sizeof(ret->client), "%s", client);
    return 0;
}
