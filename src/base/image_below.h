/*
 * The images below a layered image: the file `below` beside its layer. Each line is an image id,
 * topmost first. An image without this file has one layer.
 *
 * Daemon and spawner read the file. Any other form is refused.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/image_id.h"

enum {
    IMAGE_LAYERS_MAX = 16, /* layers of an image; each slows down lookups of files */
    IMAGE_BELOW_MAX = IMAGE_LAYERS_MAX - 1,
    IMAGE_BELOW_SIZE = IMAGE_BELOW_MAX * IMAGE_ID_SIZE + 1,
};

struct image_below {
    size_t count;
    char ids[IMAGE_BELOW_MAX][IMAGE_ID_SIZE];
};

/* Reads the text of a file `below`. 0 or -EBADMSG. Pure. */
int image_below_parse(const char *text, size_t len, struct image_below *ret);
void image_below_print(const struct image_below *b, char ret[IMAGE_BELOW_SIZE]);
bool image_below_has(const struct image_below *b, const char *id);

/*
 * True for an image without the contents of its /usr: those of the host's /usr are below what it
 * has there. It is what a backup of a machine on the image `host` becomes, and has one layer.
 * Without a list of layers, too, the file IMAGE_LENT of an image says so.
 */
#define IMAGE_LENT "usr-of-host"
bool image_is_lent(int images, const char *id);

/* Reads the file of an image. images: the directory of all images. 0 or -errno. */
int image_below_read(int images, const char *id, struct image_below *ret);
