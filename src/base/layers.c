#include "base/layers.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { ID_LEN = ID_SIZE - 1 };

/* Reads digits without a leading zero; 0: not a valid number of a layer. */
static uint32_t layers_number_of(const char *text, size_t len) {
    uint64_t n = 0;
    if (len == 0 || len > 9 || text[0] == '0')
        return 0;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return 0;
        n = 10 * n + (uint64_t)(text[i] - '0');
    }
    return (uint32_t)n;
}

static int parse_one(const char *text, size_t len, struct layer *ret) {
    if (len < ID_LEN + 2 || (!id_valid(text, ID_LEN, 'm') && !id_valid(text, ID_LEN, 'd')) ||
        text[ID_LEN] != '/')
        return -1;
    memcpy(ret->machine, text, ID_LEN);
    ret->machine[ID_LEN] = '\0';
    ret->number = layers_number_of(text + ID_LEN + 1, len - ID_LEN - 1);
    return ret->number ? 0 : -1;
}

int layers_parse(const char *text, struct layers *ret, struct err *err) {
    ret->count = 0;
    while (*text) {
        size_t len = strcspn(text, " ");
        if (ret->count == LAYERS_MAX)
            return err_set(err, ERR_LIMIT, "a machine can have at most %d layers", LAYERS_MAX);
        if (parse_one(text, len, &ret->v[ret->count]) < 0)
            return err_set(err, ERR_INVALID, "malformed layer '%.30s' in a list of layers", text);
        ret->count++;
        text += len;
        if (*text && !*++text)
            return err_set(err, ERR_INVALID, "the list of layers ends with a space");
    }
    return 0;
}

bool layers_print(const struct layers *l, char *text, size_t size) {
    size_t n = 0;
    text[0] = '\0';
    for (size_t i = 0; i < l->count; i++) {
        n += (size_t)snprintf(text + n, size - n, "%s%s/%" PRIu32, i ? " " : "", l->v[i].machine,
                              l->v[i].number);
        if (n >= size)
            return false;
    }
    return true;
}

int layers_push(struct layers *l, const char *machine, uint32_t number, struct err *err) {
    if (l->count == LAYERS_MAX)
        return err_set(err, ERR_LIMIT, "a machine can have at most %d layers", LAYERS_MAX);
    memmove(l->v + 1, l->v, l->count * sizeof(*l->v));
    snprintf(l->v[0].machine, sizeof(l->v[0].machine), "%s", machine);
    l->v[0].number = number;
    l->count++;
    return 0;
}

bool layers_have(const struct layers *l, const char *machine, uint32_t number) {
    for (size_t i = 0; i < l->count; i++)
        if (l->v[i].number == number && strcmp(l->v[i].machine, machine) == 0)
            return true;
    return false;
}
