#include "base/text/accounts.h"

#include <string.h>

enum {
    NAME_FIELD = 0,
    UID_FIELD = 2,
    GID_FIELD = 3,
    MEMBERS_FIELD = 3,
    HOME_FIELD = 5,
    SHELL_FIELD
};

static bool equal(struct account_text a, struct account_text b) {
    return a.n == b.n && memcmp(a.s, b.s, a.n) == 0;
}

/* Splits off the text before the first `c`, and that character. False: nothing is left. */
static bool cut(struct account_text *rest, char c, struct account_text *ret) {
    if (!rest->s)
        return false;
    const char *end = rest->n ? memchr(rest->s, c, rest->n) : NULL;
    *ret = (struct account_text){rest->s, end ? (size_t)(end - rest->s) : rest->n};
    *rest = end ? (struct account_text){end + 1, rest->n - ret->n - 1} : (struct account_text){0};
    return true;
}

static bool field(struct account_text line, unsigned number, struct account_text *ret) {
    for (unsigned i = 0; i <= number; i++)
        if (!cut(&line, ':', ret))
            return false;
    return true;
}

static bool is_number(struct account_text text) {
    for (size_t i = 0; i < text.n; i++)
        if (text.s[i] < '0' || text.s[i] > '9')
            return false;
    return text.n > 0;
}

static bool id_of(struct account_text text, uint32_t *ret) {
    uint32_t id = 0;
    if (!is_number(text) || text.n > 10)
        return false;
    for (size_t i = 0; i < text.n; i++) {
        id = id * 10 + (uint32_t)(text.s[i] - '0');
        if (id > ACCOUNT_ID_MAX)
            return false;
    }
    *ret = id;
    return true;
}

static bool id_field(struct account_text line, unsigned number, uint32_t *ret) {
    struct account_text text;
    return field(line, number, &text) && id_of(text, ret);
}

static bool is_plain(struct account_text text) {
    for (size_t i = 0; i < text.n; i++)
        if ((unsigned char)text.s[i] < ' ' || text.s[i] == 0x7f)
            return false;
    return true;
}

static struct account_text path_field(struct account_text line, unsigned number) {
    struct account_text text;
    bool ok = field(line, number, &text) && text.n > 0 && text.s[0] == '/' && is_plain(text);
    return ok ? text : (struct account_text){"", 0};
}

/* Finds the line with this name or number. Only a line with a usable id counts. */
static bool find_line(const char *text, size_t n, const char *name, struct account_text *ret) {
    struct account_text rest = {text, n}, wanted = {name, strlen(name)}, has;
    bool by_number = is_number(wanted);
    uint32_t id = 0, number;
    if (wanted.n == 0 || (by_number && !id_of(wanted, &id)))
        return false;
    while (cut(&rest, '\n', ret))
        if (id_field(*ret, UID_FIELD, &number) &&
            (by_number ? number == id : field(*ret, NAME_FIELD, &has) && equal(has, wanted)))
            return true;
    return false;
}

bool account_name_is_valid(const char *name) {
    static const char first[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._";
    struct account_text text = {name, strlen(name)};
    if (text.n == 0 || is_number(text) || text.n > ACCOUNT_NAME_MAX || !strchr(first, *name))
        return false;
    size_t good = 1;
    while (name[good] && (strchr(first, name[good]) || name[good] == '-'))
        good++;
    return good == text.n || (good == text.n - 1 && name[good] == '$');
}

bool account_find(const char *text, size_t n, const char *name, struct account *ret) {
    struct account_text line;
    *ret = (struct account){0};
    if (!find_line(text, n, name, &line) || !id_field(line, UID_FIELD, &ret->uid) ||
        !id_field(line, GID_FIELD, &ret->gid) || !field(line, NAME_FIELD, &ret->name))
        return false;
    ret->home = path_field(line, HOME_FIELD);
    ret->shell = path_field(line, SHELL_FIELD);
    return is_plain(ret->name);
}

bool account_group_find(const char *text, size_t n, const char *name, uint32_t *ret) {
    struct account_text line;
    return find_line(text, n, name, &line) && id_field(line, UID_FIELD, ret);
}

static bool is_member(struct account_text line, struct account_text member) {
    struct account_text members, name;
    if (!field(line, MEMBERS_FIELD, &members))
        return false;
    while (cut(&members, ',', &name))
        if (equal(name, member))
            return true;
    return false;
}

static bool has_id(const uint32_t *ids, size_t n, uint32_t id) {
    while (n > 0 && ids[n - 1] != id)
        n--;
    return n > 0;
}

size_t account_groups(const char *text, size_t n, struct account_text member, uint32_t *ret,
                      size_t count, size_t max) {
    struct account_text rest = {text, n}, line;
    uint32_t gid;
    while (member.n > 0 && count < max && cut(&rest, '\n', &line))
        if (id_field(line, UID_FIELD, &gid) && !has_id(ret, count, gid) && is_member(line, member))
            ret[count++] = gid;
    return count;
}
