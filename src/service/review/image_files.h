/* Files that a machine has as its image has them. From any thread; it blocks. */
#pragma once

enum { IMAGE_FILES_MAX = 16 << 10 };

/*
 * Of an archive of the directory `top`: a JSON array of the paths of such files and links, at most
 * so many bytes; beyond, the rest is left out. NULL: there is none. The caller frees. root and usr
 * show the image; usr -1: it has no /usr of its own.
 */
char *image_files_find(int archive, const char *top, int root, int usr);
