/*
 * Unpacks a layer above an image whose files can be read (unpack.merges). The layer may name
 * directories, links and files that only the image below has. A directory that is needed is created
 * in the layer with the attributes that it has below, and links are followed as in the merged tree.
 *
 * The layer is valid after each entry: a directory that replaces another one has a whiteout for
 * each name that it hides. So no list of whiteouts is kept. Only names are taken from the image
 * below, and files that a hard link needs.
 */
#pragma once

#include "image/unpack.h"

/* Gives the root of the layer the attributes of the image below. Call it first. */
int merged_begin(struct unpack *u, struct err *err);

/*
 * Opens the directory of entry `path` in the layer, and creates it if needed. real: its path
 * without links. -1 with *err.
 */
int merged_parent(struct unpack *u, const char *path, char real[IMAGE_PATH_SIZE], struct err *err);

/* Hides everything that the image below has in the directory `real` and the layer does not. */
int merged_hide(struct unpack *u, const char *real, struct err *err);

/* Applies an entry whose name starts with ".wh.". */
int merged_whiteout(struct unpack *u, const char *path, struct err *err);

/* Copies a file or symbolic link of the image below into directory `dir` of the layer. */
int merged_copy_up(struct unpack *u, int dir, const char *real, struct err *err);
