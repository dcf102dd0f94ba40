#include "cell/warm.h"

#include <stdio.h>
#include <string.h>

#include "base/banned.h"

void warm_head(const struct warm_program *p, uint64_t seed, char head[WARM_HEAD_SIZE]) {
    char digest[SHA256_HEX];
    const char *driver = p->driver ? p->driver : "";
    sha256_hex(driver, strlen(driver), digest);
    memset(head, 0, WARM_HEAD_SIZE);
    snprintf(head, WARM_HEAD_SIZE, "CRLWARM1 %016llx %.32s",
             (unsigned long long)(p->driver ? seed : 0), digest);
}

bool warm_digest(const uint8_t *state, size_t len, uint8_t digest[SHA256_BYTES]) {
    enum { HEAD = 12 };
    struct sha256 sum;
    if (len < HEAD)
        return false;
    size_t part =
        state[8] | (size_t)state[9] << 8 | (size_t)state[10] << 16 | (size_t)state[11] << 24;
    if (part > len - HEAD)
        return false;
    sha256_init(&sum);
    sha256_add(&sum, state, HEAD + part);
    sha256_end(&sum, digest);
    return true;
}

/* Variables that an interpreter reads when it starts, or that choose where it looks for files. */
static bool is_read_at_start(const char *variable) {
    static const char *const starts[] = {"PYTHON", "RUBY",  "GEM_",  "LC_",
                                         "LANG",   "HOME=", "PATH=", "TZ="};
    for (size_t i = 0; i < sizeof(starts) / sizeof(*starts); i++)
        if (strncmp(variable, starts[i], strlen(starts[i])) == 0)
            return true;
    return false;
}

/* An interpreter with a driver has read all that it reads at its start. */
static bool driver_fits(const struct cell_options *o) {
    for (int i = 0; i < o->grant_count; i++)
        if (strcmp(o->grants[i], "random") == 0)
            return false;
    for (int i = 0; i < o->env_count; i++)
        if (is_read_at_start(o->env[i]))
            return false;
    for (int i = 0; i < o->dir_count; i++)
        if (strcmp(o->dirs[i].name, "/") != 0)
            return false;
    return !o->listen_count;
}

bool warm_fits(const struct warm_program *p, const struct cell_options *o) {
    if (strcmp(o->verb, "run") != 0 || o->resume || o->record || o->has_suspend_at)
        return false;
    return !p->driver || driver_fits(o);
}

bool warm_takes(const struct warm_program *p, const struct cell_options *o) {
    if (!p->driver)
        return true;
    const char *word = o->word_count > 1 ? o->words[1] : "";
    size_t n = strlen(word), end = strlen(p->ending);
    /* Ruby would read options after the code. */
    if (strcmp(word, p->option) == 0)
        return o->word_count > 2 && (o->word_count == 3 || o->words[3][0] != '-');
    return word[0] != '-' && n > end && strcmp(word + n - end, p->ending) == 0;
}

bool warm_request(const struct warm_program *p, const struct cell_options *o, int skip,
                  struct buf *ret) {
    char size[9];
    if (!p->driver)
        return true;
    bool ok = buf_addf(ret, "00000000%d", o->word_count - skip) && buf_add(ret, "", 1);
    for (int i = skip; ok && i < o->word_count; i++)
        ok = buf_add(ret, o->words[i], strlen(o->words[i]) + 1);
    for (int i = 0; ok && i < o->env_count; i++)
        ok = buf_add(ret, o->env[i], strlen(o->env[i]) + 1);
    if (!ok || ret->len - 8 > UINT32_MAX)
        return false;
    snprintf(size, sizeof(size), "%08x", (unsigned)(ret->len - 8));
    memcpy(ret->data, size, 8);
    return true;
}
