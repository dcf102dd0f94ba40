/* Finds files of a change set that are unchanged since the image of the machine. */
#pragma once

enum { IMAGE_FILES_MAX = 16 << 10 };

/*
 * Compares the files and links of an archive of the directory `top` with the image. Returns the
 * paths that are equal as a JSON array of at most IMAGE_FILES_MAX bytes; further paths are omitted.
 * NULL: no path is equal. The caller frees the array. `root` is the root directory of the image,
 * `usr` its /usr if that is a separate directory, else -1. Any thread; blocks.
 */
char *image_files_find(int archive, const char *top, int root, int usr);
