#include "service/fields.h"

#include <string.h>

#include "base/defer.h"
#include "base/jot.h"
#include "service/exec/plan.h"
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

/* Linux starts no program with a larger variable, and the image has some variables, too. */
enum { ENV_MAX = EXEC_ENV_MAX - 32, VARIABLE_MAX = 128 << 10, ENV_BYTES_MAX = 384 << 10 };

static int env_check(const struct texts *pairs, struct err *err) {
    size_t bytes = 0;
    if (pairs->count / 2 > ENV_MAX)
        return err_set(err, ERR_INVALID, "there are more than %d environment variables", ENV_MAX);
    for (size_t i = 0; i + 1 < pairs->count; i += 2) {
        const char *name = pairs->v[i];
        size_t n = strlen(name) + strlen(pairs->v[i + 1]) + 2;
        if (!*name || strchr(name, '='))
            return err_set(err, ERR_INVALID,
                           "'%.60s' is not a valid name of an environment variable", name);
        if (n > VARIABLE_MAX)
            return err_set(err, ERR_INVALID, "environment variable '%.60s' is larger than %d KiB",
                           name, VARIABLE_MAX >> 10);
        bytes += n;
    }
    if (bytes > ENV_BYTES_MAX)
        return err_set(err, ERR_INVALID, "the environment variables are larger than %d KiB",
                       ENV_BYTES_MAX >> 10);
    return 0;
}

int variables_json(const struct texts *pairs, char **ret, struct err *err) {
    return env_check(pairs, err) < 0 ? -1 : pairs_json(pairs, "env", ret, err);
}

uint64_t given_or(struct given g, uint64_t otherwise) {
    return g.is ? g.value : otherwise;
}
