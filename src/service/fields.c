#include "service/fields.h"

#include <string.h>

#include "base/defer.h"
#include "base/jot.h"
#include "store/db.h"

bool machine_name_ok(const char *name) {
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
    return n > 0 && !name[n] && name[0] != '-' && name[0] != '.' && strncmp(name, "m-", 2) != 0;
}

int pairs_json(const struct texts *pairs, const char *what, char **ret, struct err *err) {
    *ret = NULL;
    if (!pairs->count)
        return 0;
    struct buf text DEFER(buf_done) = BUF(STORE_JSON_MAX);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    for (size_t i = 0; i + 1 < pairs->count; i += 2)
        jot_string(&j, pairs->v[i], pairs->v[i + 1]);
    jot_end(&j, '}');
    if (j.failed)
        return err_set(err, ERR_LIMIT, "field '%s' is larger than %d MiB", what,
                       STORE_JSON_MAX >> 20);
    *ret = buf_take(&text);
    return 0;
}

uint64_t given_or(struct given g, uint64_t otherwise) {
    return g.is ? g.value : otherwise;
}
