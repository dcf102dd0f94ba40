#include "image/path.h"

#include <stdbool.h>
#include <string.h>

static int path_refuse(struct err *err, const char *raw, const char *why) {
    return err_set(err, ERR_INVALID, "archive entry '%.120s' %s", raw, why);
}

/* Returns the length of the next component and advances *at. */
static size_t next_part(const char **at, const char **part) {
    while (**at == '/')
        (*at)++;
    *part = *at;
    *at += strcspn(*at, "/");
    return (size_t)(*at - *part);
}

/* A whiteout, which only the last component can be, is longer than the name that it hides. */
static size_t whiteout_extra(const char *part, const char *rest) {
    bool is_whiteout = strncmp(part, IMAGE_WHITEOUT, strlen(IMAGE_WHITEOUT)) == 0 &&
                       rest[strspn(rest, "/")] == '\0';
    return is_whiteout ? strlen(IMAGE_WHITEOUT) : 0;
}

int image_path(const char *raw, char ret[IMAGE_PATH_SIZE], struct err *err) {
    const char *at = raw, *part;
    size_t len = 0, depth = 0, n;
    ret[0] = '\0';
    if (!raw || !*raw)
        return err_set(err, ERR_INVALID, "an entry of the image archive has no name");
    if (*raw == '/')
        return path_refuse(err, raw, "has an absolute name");
    while ((n = next_part(&at, &part)) > 0) {
        if (n == 1 && part[0] == '.')
            continue;
        if (n == 2 && part[0] == '.' && part[1] == '.')
            return path_refuse(err, raw, "leaves the image by '..'");
        size_t extra = whiteout_extra(part, at);
        if (n > IMAGE_PART_MAX + extra)
            return path_refuse(err, raw, "has a name of more than 255 bytes");
        if (++depth > IMAGE_DEPTH_MAX)
            return path_refuse(err, raw, "is more than 128 directories deep");
        if (len + n + 1 > IMAGE_PATH_MAX + extra)
            return path_refuse(err, raw, "has a path of more than 4095 bytes");
        if (len)
            ret[len++] = '/';
        memcpy(ret + len, part, n);
        len += n;
        ret[len] = '\0';
    }
    return 0;
}

const char *image_path_last(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}
