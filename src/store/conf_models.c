#include "store/conf_models.h"

#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/parse.h"

enum word_type { WORD_TEXT, WORD_FORMAT, WORD_URL, WORD_AUTH, WORD_FLAG, WORD_PRICE, WORD_COUNT };

struct word {
    const char *name;
    enum word_type type;
    size_t offset;
    size_t size; /* bytes of the member, if the option's value is a text */
};

#define P(m) offsetof(struct conf_provider, m), sizeof(((struct conf_provider *)0)->m)
static const struct word provider_words[] = {
    {"format", WORD_FORMAT, P(format)},
    {"url", WORD_URL, P(url)},
    {"key_env", WORD_TEXT, P(key_env)},
    {"key_secret", WORD_TEXT, P(key_secret)},
    {"auth", WORD_AUTH, P(auth)},
    {"version", WORD_TEXT, P(version)},
    {"old_max_tokens", WORD_FLAG, P(old_max_tokens)},
    {"charges_whole", WORD_FLAG, P(charges_whole)},
};

#define M(m) offsetof(struct conf_model, m), 0
static const struct word model_words[] = {
    {"in", WORD_PRICE, M(in)},
    {"out", WORD_PRICE, M(out)},
    {"cache_read", WORD_PRICE, M(cache_read)},
    {"cache_write", WORD_PRICE, M(cache_write)},
    {"cache_write_long", WORD_PRICE, M(cache_write_long)},
    {"window", WORD_COUNT, M(window)},
    {"max_tokens", WORD_COUNT, M(max_tokens)},
};
enum {
    PROVIDER_WORDS = sizeof(provider_words) / sizeof(*provider_words),
    MODEL_WORDS = sizeof(model_words) / sizeof(*model_words),
};

static int one_of(const char *value, const char *const *names, struct err *err) {
    for (size_t i = 0; names[i]; i++)
        if (strcmp(value, names[i]) == 0)
            return 0;
    char all[80] = "";
    for (size_t i = 0, n = 0; names[i] && n < sizeof(all); i++)
        n += (size_t)snprintf(all + n, sizeof(all) - n, "%s%s", i ? ", " : "", names[i]);
    return err_set(err, ERR_INVALID, "the value '%s' is not one of %s", value, all);
}

static int check_url(const char *value, struct err *err) {
    size_t n = strlen(value);
    if (strncmp(value, "https://", 8) != 0 && strncmp(value, "http://", 7) != 0)
        return err_set(err, ERR_INVALID, "URL '%s' does not start with https:// or http://", value);
    if (strchr(value, '@') || strchr(value, '?') || strchr(value, '#') || value[n - 1] == '/')
        return err_set(err, ERR_INVALID,
                       "URL '%s' must not have a user, query, fragment or trailing slash", value);
    return 0;
}

static int check_text(const struct word *w, const char *value, struct err *err) {
    static const char *const formats[] = {"anthropic", "chat", "responses", "gemini", NULL};
    static const char *const auths[] = {"bearer", "x-api-key", "x-goog-api-key", NULL};
    switch (w->type) {
    case WORD_FORMAT:
        return one_of(value, formats, err);
    case WORD_AUTH:
        return one_of(value, auths, err);
    case WORD_URL:
        return check_url(value, err);
    case WORD_TEXT:
    case WORD_FLAG:
    case WORD_PRICE:
    case WORD_COUNT:
        break;
    }
    return 0;
}

static int set_number(const struct word *w, const char *value, void *to, struct err *err) {
    const uint64_t dearest = 1000000ull * 1000000, most = 1ull << 32;
    uint64_t n;
    if (w->type == WORD_PRICE ? parse_micro(value, &n, err) < 0
                              : parse_u64(value, 1, most, &n, err) < 0)
        return -1;
    if (n > dearest)
        return err_set(err, ERR_INVALID, "the price %s is larger than 1000000", value);
    memcpy(to, &n, sizeof(n));
    return 0;
}

static int set_word(const struct word *w, const char *value, char *row, struct err *err) {
    char *to = row + w->offset;
    size_t n = strlen(value);
    if (w->type == WORD_FLAG) {
        *(bool *)to = strcmp(value, "yes") == 0;
        return *(bool *)to || strcmp(value, "no") == 0
                   ? 0
                   : err_set(err, ERR_INVALID, "the value '%s' is not yes or no", value);
    }
    if (w->type == WORD_PRICE || w->type == WORD_COUNT)
        return set_number(w, value, to, err);
    if (n == 0 || n >= w->size)
        return err_set(err, ERR_INVALID,
                       "the value of an option (NAME=VALUE) is empty or longer than %zu bytes",
                       w->size - 1);
    if (check_text(w, value, err) < 0)
        return -1;
    memcpy(to, value, n + 1);
    return 0;
}

/* Returns the next word of the line and ends it with a NUL; NULL at the end of the line. */
static char *next_word(char **rest) {
    char *start = *rest + strspn(*rest, " \t\r\n");
    size_t n = strcspn(start, " \t\r\n");
    if (n == 0)
        return NULL;
    *rest = start + n + (start[n] != '\0');
    start[n] = '\0';
    return start;
}

/* Sets the options (NAME=VALUE) of a line in `row`. *seen gets a bit per option that is given. */
static int set_words(char *rest, const struct word *words, size_t count, void *row, unsigned *seen,
                     struct err *err) {
    for (char *text; (text = next_word(&rest));) {
        char *equals = strchr(text, '=');
        size_t i = 0, n = equals ? (size_t)(equals - text) : strlen(text);
        while (i < count && (strlen(words[i].name) != n || memcmp(words[i].name, text, n) != 0))
            i++;
        if (i == count || !equals)
            return err_set(err, ERR_INVALID, "unknown option '%.40s' of a provider or model", text);
        if (*seen & 1u << i)
            return err_set(err, ERR_INVALID, "option '%s' is given twice", words[i].name);
        *seen |= 1u << i;
        if (set_word(&words[i], equals + 1, row, err) < 0)
            return err_wrap(err, "%s", words[i].name);
    }
    return 0;
}

static int set_name(char *to, size_t size, const char *name, const char *also, struct err *err) {
    size_t n = name ? strlen(name) : 0;
    if (n == 0 || n >= size)
        return err_set(
            err, ERR_INVALID,
            "the value must start with a name (of the provider or model) of 1 to %zu bytes",
            size - 1);
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)name[i]) && !strchr(also, name[i]))
            return err_set(err, ERR_INVALID,
                           "'%s' is not a name of a provider or model: use letters, digits and %s",
                           name, also);
    memcpy(to, name, n + 1);
    return 0;
}

/* Copies a line, so that next_word() may change it. conf_parse() refuses longer lines before. */
enum { LINE_SIZE = 256 };
static int copy_line(char to[LINE_SIZE], const char *text, struct err *err) {
    if (strlen(text) >= LINE_SIZE)
        return err_set(err, ERR_LIMIT, "the line of a provider or model is longer than %d bytes",
                       LINE_SIZE - 1);
    memcpy(to, text, strlen(text) + 1);
    return 0;
}

int conf_provider_parse(const char *text, struct conf_provider *ret, struct err *err) {
    char line[LINE_SIZE], *rest = line;
    struct conf_provider p = {0};
    unsigned seen = 0;
    if (copy_line(line, text, err) < 0 ||
        set_name(p.name, sizeof(p.name), next_word(&rest), "-_.", err) < 0 ||
        set_words(rest, provider_words, PROVIDER_WORDS, &p, &seen, err) < 0)
        return -1;
    if (!p.format[0] || !p.url[0]) {
        err_set(err, ERR_INVALID, "provider '%s' needs format= and url=", p.name);
        return err_remedy(err, "write NAME format=chat url=https://...");
    }
    *ret = p;
    return 0;
}

int conf_alias_parse(const char *text, struct conf_alias *ret, struct err *err) {
    char line[LINE_SIZE], *rest = line;
    struct conf_alias a = {0};
    if (copy_line(line, text, err) < 0 ||
        set_name(a.name, sizeof(a.name), next_word(&rest), "-_.", err) < 0)
        return -1;
    for (char *word; (word = next_word(&rest)); a.count++) {
        const char *slash = strchr(word, '/');
        if (a.count == CONF_TARGETS_MAX)
            return err_set(err, ERR_INVALID, "alias '%s' has more than %d models", a.name,
                           CONF_TARGETS_MAX);
        if (!slash || slash == word || !slash[1])
            return err_set(err, ERR_INVALID, "model '%s' of alias '%s' is not PROVIDER/MODEL", word,
                           a.name);
        if (set_name(a.targets[a.count], sizeof(a.targets[0]), word, "-_./:@", err) < 0)
            return -1;
    }
    if (a.count == 0) {
        err_set(err, ERR_INVALID, "alias '%s' has no model", a.name);
        return err_remedy(err, "write NAME PROVIDER/MODEL");
    }
    *ret = a;
    return 0;
}

/* A cache price that is not given is the price of plain input tokens. */
static void fill_prices(struct conf_model *m, unsigned seen) {
    if (!(seen & 1u << 2))
        m->cache_read = m->in;
    if (!(seen & 1u << 3))
        m->cache_write = m->in;
    if (!(seen & 1u << 4))
        m->cache_write_long = m->cache_write;
}

int conf_model_parse(const char *text, struct conf_model *ret, struct err *err) {
    char line[LINE_SIZE], *rest = line;
    struct conf_model m = {0};
    unsigned seen = 0;
    if (copy_line(line, text, err) < 0 ||
        set_name(m.name, sizeof(m.name), next_word(&rest), "-_./:@*", err) < 0 ||
        set_words(rest, model_words, MODEL_WORDS, &m, &seen, err) < 0)
        return -1;
    const char *star = strchr(m.name, '*');
    if (star && star[1])
        return err_set(err, ERR_INVALID, "model name '%s': a star (*) is allowed only at its end",
                       m.name);
    if ((seen & 31u) && (seen & 3u) != 3u)
        return err_set(err, ERR_INVALID, "model '%s' needs both in= and out=, or no price", m.name);
    m.priced = seen & 3u;
    fill_prices(&m, seen);
    *ret = m;
    return 0;
}
