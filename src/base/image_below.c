#include "base/image_below.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fdio.h"

bool image_below_has(const struct image_below *b, const char *id) {
    for (size_t i = 0; i < b->count; i++)
        if (strcmp(b->ids[i], id) == 0)
            return true;
    return false;
}

int image_below_parse(const char *text, size_t len, struct image_below *ret) {
    enum { LINE = IMAGE_ID_SIZE }; /* the newline takes the place of the NUL */
    struct image_below below = {.count = 0};
    if (len % LINE || len / LINE > IMAGE_BELOW_MAX)
        return -EBADMSG;
    for (const char *line = text; line < text + len; line += LINE) {
        char id[IMAGE_ID_SIZE];
        memcpy(id, line, LINE);
        id[LINE - 1] = '\0';
        if (line[LINE - 1] != '\n' || !image_id_valid(id) || image_below_has(&below, id))
            return -EBADMSG;
        memcpy(below.ids[below.count++], id, sizeof(id));
    }
    *ret = below;
    return 0;
}

void image_below_print(const struct image_below *b, char ret[IMAGE_BELOW_SIZE]) {
    size_t n = 0;
    ret[0] = '\0';
    for (size_t i = 0; i < b->count; i++)
        n += (size_t)snprintf(ret + n, IMAGE_BELOW_SIZE - n, "%s\n", b->ids[i]);
}

int image_below_read(int images, const char *id, struct image_below *ret) {
    char path[IMAGE_ID_SIZE + 8], text[IMAGE_BELOW_SIZE + 1];
    snprintf(path, sizeof(path), "%s/below", id);
    ssize_t n = read_file_at(images, path, text, sizeof(text));
    *ret = (struct image_below){.count = 0};
    if (n < 0)
        return n == -ENOENT ? 0 : (int)n;
    return image_below_parse(text, (size_t)n, ret);
}

bool image_is_lent(int images, const char *id) {
    char path[IMAGE_ID_SIZE + sizeof(IMAGE_LENT) + 1];
    snprintf(path, sizeof(path), "%s/" IMAGE_LENT, id);
    return image_id_valid(id) && faccessat(images, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}
